//! `hawkeye pause` and `hawkeye resume`.

use super::asking::{AskOptions, unexpected};
use crate::daemon::protocol::{Reply, Request};
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Outcome {
    paused: bool,
    changed: bool,
}

/// Pauses or resumes the daemon.
pub fn set(options: &AskOptions, paused: bool) -> Result<ExitCode> {
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
            (true, false) => "The daemon is paused already.",
            (false, true) => "Resumed: processes are managed again.",
            (false, false) => "The daemon was not paused.",
        };
        format!("{sentence}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}
