//! Executables of new processes, read by a thread of their own: a file system may never answer.

use super::Executable;
use hawkeye_policy::ProcessId;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

/// Reads one executable after the other.
#[derive(Debug)]
pub(super) struct Reader {
    /// `None` where there is no thread.
    ask: Option<Sender<ProcessId>>,
    answers: Receiver<(ProcessId, Option<Executable>)>,
    /// Asked for, and not answered.
    waiting: BTreeSet<ProcessId>,
}

impl Reader {
    /// `read` looks an executable up by its process's pid.
    pub(super) fn new(read: impl Fn(u32) -> Option<Executable> + Send + 'static) -> Self {
        let (ask, asked) = mpsc::channel::<ProcessId>();
        let (answer, answers) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("hawkeye-learn".into())
            .spawn(move || {
                for process in asked {
                    if answer.send((process, read(process.pid))).is_err() {
                        return;
                    }
                }
            });
        if let Err(error) = &thread {
            tracing::warn!("nothing is learned of programs: no thread can be started: {error}");
        }
        Self {
            ask: thread.is_ok().then_some(ask),
            answers,
            waiting: BTreeSet::new(),
        }
    }

    /// Whether all that was asked is answered.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Asks for the executable of a process; once, until it is answered.
    pub(super) fn ask(&mut self, process: ProcessId) {
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
    pub(super) fn answers(&mut self, deadline: Instant) -> Vec<(ProcessId, Option<Executable>)> {
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
