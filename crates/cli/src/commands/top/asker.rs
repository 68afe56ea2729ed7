//! Asks the daemon in a thread of its own, so that the screen never waits.

use crate::commands::asking::{AskOptions, unexpected};
use crate::daemon::protocol::{DaemonStatus, Reply, Request};
use crate::view::{Explanation, Strip};
use anyhow::Result;
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The daemon's answers for one refresh.
pub struct Answer {
    /// The state of management.
    pub status: Box<DaemonStatus>,
    /// The process that is open, if one is.
    pub opened: Option<Opened>,
}

/// What `top` shows of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opened {
    /// Why the daemon treats the process as it does.
    #[serde(flatten)]
    pub why: Explanation,
    /// Its address space; `None`: the process is not managed.
    pub strip: Option<Strip>,
}

/// Sends the requests for everything that is shown.
pub fn ask(options: &AskOptions, pid: Option<u32>, columns: u16) -> Result<Answer> {
    let Reply::Status(status) = options.ask(Request::Status)? else {
        return Err(unexpected());
    };
    let opened = pid.map(|pid| open(options, pid, columns)).transpose()?;
    Ok(Answer { status, opened })
}

fn open(options: &AskOptions, pid: u32, columns: u16) -> Result<Opened> {
    let address = None;
    let Reply::Explanation(why) = options.ask(Request::Why { pid, address })? else {
        return Err(unexpected());
    };
    if !why.is_managed() {
        return Ok(Opened { why, strip: None });
    }
    match options.ask(Request::Strip { pid, columns })? {
        Reply::Strip(strip) => Ok(Opened {
            why,
            strip: Some(strip),
        }),
        _ => Err(unexpected()),
    }
}

/// The process that is open, and the columns of its strip.
type Question = (Option<u32>, u16);

/// A thread that asks the daemon; it ends when this is dropped.
pub struct Asker {
    questions: Sender<Question>,
    answers: Receiver<Result<Answer>>,
    waiting: bool,
}

impl Asker {
    /// Starts the thread.
    pub fn start(options: AskOptions) -> Result<Self> {
        let (questions, asked) = channel::<Question>();
        let (answer, answers) = channel();
        thread::Builder::new()
            .name("hawkeye-asker".into())
            .spawn(move || {
                for (pid, columns) in asked {
                    if answer.send(ask(&options, pid, columns)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            questions,
            answers,
            waiting: false,
        })
    }

    /// Asks, unless an answer is still outstanding.
    pub fn ask(&mut self, question: Question) {
        if !self.waiting {
            self.waiting = self.questions.send(question).is_ok();
        }
    }

    /// The answer, if one has arrived.
    pub fn answer(&mut self) -> Option<Result<Answer>> {
        let answer = self.answers.try_recv().ok()?;
        self.waiting = false;
        Some(answer)
    }
}

impl Opened {
    /// The process that the answer is about.
    pub fn pid(&self) -> u32 {
        match &self.why {
            Explanation::NotManaged { pid, .. } => *pid,
            Explanation::Process(why) => why.process.pid,
            Explanation::Region(why) => why.process.pid,
        }
    }
}
