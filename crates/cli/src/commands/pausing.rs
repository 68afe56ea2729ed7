//! `hawkeye pause` and `hawkeye resume`.

use super::asking::{AskOptions, unexpected};
use crate::daemon::protocol::{Reply, Request};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

/// Have the daemon leave every process alone, until `resume`. Takes root.
#[derive(Args)]
#[command(after_help = "Example: hawkeye pause")]
pub struct Pause {
    #[command(flatten)]
    options: AskOptions,
}

/// Have the daemon go on after `pause`. Takes root.
#[derive(Args)]
#[command(after_help = "Example: hawkeye resume --json")]
pub struct Resume {
    #[command(flatten)]
    options: AskOptions,
}

#[derive(Serialize)]
struct Outcome {
    paused: bool,
    changed: bool,
}

impl Pause {
    /// Pauses.
    pub fn execute(self) -> Result<ExitCode> {
        set(&self.options, true)
    }
}

impl Resume {
    /// Resumes.
    pub fn execute(self) -> Result<ExitCode> {
        set(&self.options, false)
    }
}

fn set(options: &AskOptions, paused: bool) -> Result<ExitCode> {
    let request = if paused {
        Request::Pause
    } else {
        Request::Resume
    };
    let Reply::Done { changed } = options.ask(request)? else {
        return Err(unexpected());
    };
    options.print(&Outcome { paused, changed }, |outcome| {
        let sentence = match (outcome.paused, outcome.changed) {
            (true, true) => "Paused: every process is left alone until `hawkeye resume`.",
            (true, false) => "It is paused already.",
            (false, true) => "Management goes on.",
            (false, false) => "It was not paused.",
        };
        format!("{sentence}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}
