//! What the commands that send a request to the daemon have in common.

use crate::daemon::protocol::{DaemonRequest, Reply};
use crate::daemon::{client, default_socket};
use crate::output;
use anyhow::Result;
use clap::Args;
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub struct ClientOptions {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Socket of the daemon.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl ClientOptions {
    pub fn request(&self, request: DaemonRequest) -> Result<Reply> {
        match &self.socket {
            Some(socket) => client::send_request(socket, request),
            None => client::send_request(&default_socket(&state_dir()), request),
        }
    }

    pub fn json(&self) -> bool {
        self.json
    }

    pub fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        print(self.json, answer, text)
    }
}

/// Prints a value: as JSON for programs, as text for people.
pub fn print<T: Serialize>(json: bool, it: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
    let text = match json {
        true => serde_json::to_string_pretty(it)? + "\n",
        false => text(it),
    };
    output::print(&text)
}

/// The error for a reply of the wrong kind: the program that answered is not our daemon.
pub fn unexpected_reply() -> anyhow::Error {
    anyhow::anyhow!("unexpected reply from the daemon: is it another version of hawkeye?")
}
