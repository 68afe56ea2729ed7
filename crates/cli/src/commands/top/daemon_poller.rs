//! Asks the daemon in a thread, so that the screen never waits.

use crate::commands::client_options::{ClientOptions, unexpected_reply_error};
use crate::daemon::protocol::{DaemonReply, DaemonRequest, DaemonStatus};
use crate::view::{AddressStrip, Explanation};
use anyhow::Result;
use serde::Serialize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
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
    let details = |pid| fetch_process_details(options, pid, columns);
    let opened = pid.map(details).transpose()?;
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
        DaemonReply::Strip(strip) => Ok(ProcessDetails {
            why,
            strip: Some(strip),
        }),
        _ => Err(unexpected_reply_error()),
    }
}

/// Asks the daemon, one request at a time.
pub struct DaemonPoller {
    options: Arc<ClientOptions>,
    /// Receives the outstanding answer.
    answer: Option<Receiver<Result<TopData>>>,
}

impl DaemonPoller {
    pub fn new(options: ClientOptions) -> Self {
        Self {
            options: Arc::new(options),
            answer: None,
        }
    }

    /// Asks about the process that is open, unless an answer is still outstanding.
    pub fn ask_unless_waiting(&mut self, pid: Option<u32>, columns: u16) -> Result<()> {
        if self.answer.is_none() {
            let (sender, answer) = channel();
            let options = Arc::clone(&self.options);
            let thread = thread::Builder::new().name("hawkeye-asker".into());
            // The screen may be gone before the answer arrives.
            let ask = move || drop(sender.send(fetch_top_data(&options, pid, columns)));
            thread.spawn(ask)?;
            self.answer = Some(answer);
        }
        Ok(())
    }

    pub fn take_arrived_answer(&mut self) -> Option<Result<TopData>> {
        let answer = self.answer.as_ref()?.try_recv().ok()?;
        self.answer = None;
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
