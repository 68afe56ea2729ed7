//! Asks the daemon, without holding up whoever watches.

use crate::commands::asking::{AskOptions, unexpected};
use crate::daemon::protocol::{DaemonStatus, Reply, Request};
use crate::view::{Explanation, Strip};
use anyhow::Result;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// What the daemon answers to one refresh.
pub struct Answer {
    /// How management stands.
    pub status: Box<DaemonStatus>,
    /// Of the process that is open.
    pub opened: Option<Opened>,
}

/// What is shown of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Why it is treated as it is.
    pub why: Explanation,
    /// Its address space; `None`: it is not managed.
    pub strip: Option<Strip>,
}

/// Asks for everything that is shown.
///
/// # Errors
/// No daemon answers, or not sensibly.
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
    if matches!(why, Explanation::NotManaged { .. }) {
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

/// What is asked for: which process is open, and how many columns there are.
type Question = (Option<u32>, u16);

/// A thread that asks; it ends with this.
pub struct Asker {
    questions: Sender<Question>,
    answers: Receiver<Result<Answer>>,
    waiting: bool,
}

impl Asker {
    /// Starts it.
    ///
    /// # Errors
    /// No thread can be started.
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

    /// Asks, unless an answer is still waited for.
    pub fn ask(&mut self, question: Question) {
        if !self.waiting {
            self.waiting = self.questions.send(question).is_ok();
        }
    }

    /// What was answered meanwhile.
    pub fn answer(&mut self) -> Option<Result<Answer>> {
        let answer = self.answers.try_recv().ok()?;
        self.waiting = false;
        Some(answer)
    }
}

impl Opened {
    /// Which process it is about.
    pub fn pid(&self) -> u32 {
        match &self.why {
            Explanation::NotManaged { pid, .. } => *pid,
            Explanation::Process(why) => why.process.pid,
            Explanation::Region(why) => why.process.pid,
        }
    }
}
