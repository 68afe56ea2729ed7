//! Files of processes, read by a thread of its own: a file system may never answer, nor a process that holds its `mmap_lock`.

use hawkeye_policy::ProcessId;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

/// Reads of one process after the other.
#[derive(Debug)]
pub(crate) struct ProcessReader<T> {
    /// `None` where there is no thread.
    ask: Option<Sender<ProcessId>>,
    answers: Receiver<(ProcessId, T)>,
    /// Asked for, and not answered.
    waiting: BTreeSet<ProcessId>,
}

impl<T: Send + 'static> ProcessReader<T> {
    /// `read` reads of the process with a pid; `name` is the thread's.
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
            tracing::warn!("{name}: nothing is read, because no thread can be started: {error}");
        }
        Self {
            ask: thread.is_ok().then_some(ask),
            answers,
            waiting: BTreeSet::new(),
        }
    }

    /// Whether all that was asked is answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Asks for a process; once, until it is answered.
    pub(crate) fn ask(&mut self, process: ProcessId) {
        if self.waiting.contains(&process) {
            return;
        }
        if self
            .ask
            .as_ref()
            .is_some_and(|ask| ask.send(process).is_ok())
        {
            self.waiting.insert(process);
        }
    }

    /// Answers that have come, or come before the deadline; not waited for once all have come.
    pub(crate) fn answers(&mut self, deadline: Instant) -> Vec<(ProcessId, T)> {
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
