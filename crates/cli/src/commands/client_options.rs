//! What the commands that send a request to the daemon have in common.

use crate::daemon::protocol::{DaemonReply, DaemonRequest, DaemonStatus};
use crate::daemon::{client, socket_path_in_state_dir};
use crate::output;
use crate::view::Explanation;
use anyhow::Result;
use clap::Args;
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub struct ClientOptions {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// Socket of the daemon.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl ClientOptions {
    pub fn send_request(&self, request: DaemonRequest) -> Result<DaemonReply> {
        let usual = || socket_path_in_state_dir(&state_dir());
        client::send_request(&self.socket.clone().unwrap_or_else(usual), request)
    }

    pub fn fetch_status(&self) -> Result<Box<DaemonStatus>> {
        match self.send_request(DaemonRequest::Status)? {
            DaemonReply::Status(status) => Ok(status),
            _ => Err(unexpected_reply_error()),
        }
    }

    pub fn fetch_explanation(&self, pid: u32, address: Option<u64>) -> Result<Explanation> {
        match self.send_request(DaemonRequest::Why { pid, address })? {
            DaemonReply::Explanation(why) => Ok(why),
            _ => Err(unexpected_reply_error()),
        }
    }
}

pub fn print_text_or_json<T: Serialize>(
    json: bool,
    it: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<()> {
    let text = if json { serde_json::to_string_pretty(it)? + "\n" } else { text(it) };
    output::print_to_stdout(&text)
}

/// The error for a reply of the wrong kind: the program that answered is not our daemon.
pub fn unexpected_reply_error() -> anyhow::Error {
    anyhow::anyhow!("unexpected reply from the daemon: is it another version of hawkeye?")
}
