//! What the commands that ask the daemon have in common.

use crate::daemon::protocol::{Reply, Request};
use crate::daemon::{client, default_socket};
use anyhow::Result;
use clap::Args;
use hawkeye_linux::takeover::instance::state_dir;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

#[derive(Args)]
pub struct AskOptions {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Where the daemon listens.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl AskOptions {
    /// Asks the daemon.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        match &self.socket {
            Some(socket) => client::ask(socket, request),
            None => client::ask(&default_socket(&state_dir()), request),
        }
    }

    /// Whether programs are to read it.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints an answer: for programs if that was asked for, otherwise for people.
    pub fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(answer)? + "\n"
        } else {
            text(answer)
        };
        match std::io::stdout().write_all(text.as_bytes()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}

/// An answer to another question: the daemon is not what it seems.
pub fn unexpected() -> anyhow::Error {
    anyhow::anyhow!("the daemon answered something else than was asked")
}
