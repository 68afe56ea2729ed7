//! Asks the daemon in a thread, so that the screen never waits.

use crate::commands::client_options::{ClientOptions, unexpected_reply_error};
use crate::daemon::protocol::{DaemonReply, DaemonRequest, DaemonStatus};
use crate::view::{AddressStrip, Explanation};
use anyhow::Result;
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

pub struct TopData {
    pub status: Box<DaemonStatus>,
    pub opened: Option<ProcessDetails>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessDetails {
    #[serde(flatten)]
    pub why: Explanation,
    /// Its address space; `None`: the process is not managed.
    pub strip: Option<AddressStrip>,
}

pub fn fetch_top_data(options: &ClientOptions, pid: Option<u32>, columns: u16) -> Result<TopData> {
    let status = options.fetch_status()?;
    let opened = pid.map(|pid| fetch_process_details(options, pid, columns)).transpose()?;
    Ok(TopData { status, opened })
}

fn fetch_process_details(
    options: &ClientOptions,
    pid: u32,
    columns: u16,
) -> Result<ProcessDetails> {
    let why = options.fetch_explanation(pid, None)?;
    if !why.is_managed() {
        return Ok(ProcessDetails { why, strip: None });
    }
    match options.send_request(DaemonRequest::Strip { pid, columns })? {
        DaemonReply::Strip(strip) => Ok(ProcessDetails { why, strip: Some(strip) }),
        _ => Err(unexpected_reply_error()),
    }
}

/// The process that is open, and the columns of its strip.
type TopQuery = (Option<u32>, u16);

/// A thread that asks the daemon, one request at a time; it ends when this is dropped.
pub struct DaemonPoller {
    queries: Sender<TopQuery>,
    answers: Receiver<Result<TopData>>,
    waiting: bool,
}

impl DaemonPoller {
    pub fn start(options: ClientOptions) -> Result<Self> {
        let (queries, asked) = channel::<TopQuery>();
        let (answer, answers) = channel();
        thread::Builder::new().name("hawkeye-asker".into()).spawn(move || {
            for (pid, columns) in asked {
                // The screen may be gone before the answer arrives.
                if answer.send(fetch_top_data(&options, pid, columns)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { queries, answers, waiting: false })
    }

    /// Asks about the process that is open, unless an answer is still outstanding.
    pub fn ask_unless_waiting(&mut self, query: TopQuery) {
        if !self.waiting {
            self.waiting = self.queries.send(query).is_ok();
        }
    }

    pub fn take_arrived_answer(&mut self) -> Option<Result<TopData>> {
        let answer = self.answers.try_recv().ok()?;
        self.waiting = false;
        Some(answer)
    }
}

impl ProcessDetails {
    pub fn pid(&self) -> u32 {
        match &self.why {
            Explanation::NotManaged { pid, .. } => *pid,
            Explanation::Process(why) => why.process.pid,
            Explanation::Region(why) => why.process.pid,
        }
    }
}
