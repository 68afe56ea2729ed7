//! Asks the daemon in a thread of its own, so that the screen never waits.

use crate::commands::client::{ClientOptions, unexpected_reply};
use crate::daemon::protocol::{DaemonRequest, DaemonStatus, Reply};
use crate::view::{AddressStrip, Explanation};
use anyhow::Result;
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The daemon's answers for one refresh.
pub struct TopData {
    /// The state of management.
    pub status: Box<DaemonStatus>,
    /// The process that is open, if one is.
    pub opened: Option<ProcessDetails>,
}

/// What `top` shows of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessDetails {
    /// Why the daemon treats the process as it does.
    #[serde(flatten)]
    pub why: Explanation,
    /// Its address space; `None`: the process is not managed.
    pub strip: Option<AddressStrip>,
}

/// Sends the requests for everything that is shown.
pub fn fetch(options: &ClientOptions, pid: Option<u32>, columns: u16) -> Result<TopData> {
    let Reply::Status(status) = options.request(DaemonRequest::Status)? else {
        return Err(unexpected_reply());
    };
    let opened = pid
        .map(|pid| fetch_process(options, pid, columns))
        .transpose()?;
    Ok(TopData { status, opened })
}

fn fetch_process(options: &ClientOptions, pid: u32, columns: u16) -> Result<ProcessDetails> {
    let address = None;
    let Reply::Explanation(why) = options.request(DaemonRequest::Why { pid, address })? else {
        return Err(unexpected_reply());
    };
    if !why.is_managed() {
        return Ok(ProcessDetails { why, strip: None });
    }
    match options.request(DaemonRequest::Strip { pid, columns })? {
        Reply::Strip(strip) => Ok(ProcessDetails {
            why,
            strip: Some(strip),
        }),
        _ => Err(unexpected_reply()),
    }
}

/// The process that is open, and the columns of its strip.
type TopQuery = (Option<u32>, u16);

/// A thread that asks the daemon; it ends when this is dropped.
pub struct DaemonPoller {
    questions: Sender<TopQuery>,
    answers: Receiver<Result<TopData>>,
    waiting: bool,
}

impl DaemonPoller {
    /// Starts the thread.
    pub fn start(options: ClientOptions) -> Result<Self> {
        let (questions, asked) = channel::<TopQuery>();
        let (answer, answers) = channel();
        thread::Builder::new()
            .name("hawkeye-asker".into())
            .spawn(move || {
                for (pid, columns) in asked {
                    if answer.send(fetch(&options, pid, columns)).is_err() {
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
    pub fn poll(&mut self, question: TopQuery) {
        if !self.waiting {
            self.waiting = self.questions.send(question).is_ok();
        }
    }

    /// The answer, if one has arrived.
    pub fn take_data(&mut self) -> Option<Result<TopData>> {
        let answer = self.answers.try_recv().ok()?;
        self.waiting = false;
        Some(answer)
    }
}

impl ProcessDetails {
    /// The process that the answer is about.
    pub fn pid(&self) -> u32 {
        match &self.why {
            Explanation::NotManaged { pid, .. } => *pid,
            Explanation::Process(why) => why.process.pid,
            Explanation::Region(why) => why.process.pid,
        }
    }
}
