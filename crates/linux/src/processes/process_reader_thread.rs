//! Reads files of processes in a separate thread. A file system may never answer, and neither may a
//! process that holds its `mmap_lock`.

use hawkeye_policy::ProcessId;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

/// Reads one process after the other.
#[derive(Debug)]
pub(crate) struct ProcessReaderThread<T> {
    /// `None` where the thread could not be started.
    ask: Option<Sender<ProcessId>>,
    answers: Receiver<(ProcessId, T)>,
    /// Requested, but not answered yet.
    waiting: BTreeSet<ProcessId>,
}

impl<T: Send + 'static> ProcessReaderThread<T> {
    /// `read` reads the process with a pid. `name` is the thread's name.
    pub(crate) fn new(name: &'static str, read: impl Fn(u32) -> T + Send + 'static) -> Self {
        let (ask, asked) = mpsc::channel::<ProcessId>();
        let (answer, answers) = mpsc::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            for process in asked {
                if answer.send((process, read(process.pid))).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = &thread {
            tracing::warn!("the thread {name} could not be started, so it reads nothing: {error}");
        }
        Self { ask: thread.is_ok().then_some(ask), answers, waiting: BTreeSet::new() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Requests a read of a process. Has no effect while an earlier request is unanswered.
    pub(crate) fn request_read(&mut self, process: ProcessId) {
        let is_new = !self.waiting.contains(&process);
        let ask = self.ask.as_ref().filter(|_| is_new);
        if ask.is_some_and(|ask| ask.send(process).is_ok()) {
            self.waiting.insert(process);
        }
    }

    /// Answers that arrive before the deadline. Returns early once all requests are answered.
    pub(crate) fn wait_for_results(&mut self, deadline: Instant) -> Vec<(ProcessId, T)> {
        let mut answers = Vec::new();
        while !self.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(answer) = self.answers.recv_timeout(left) else {
                break;
            };
            self.waiting.remove(&answer.0);
            answers.push(answer);
        }
        answers
    }
}
