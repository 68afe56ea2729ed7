//! `hawkeye pause` and `hawkeye resume`.

use super::client_options::{ClientOptions, print_text_or_json, unexpected_reply_error};
use crate::daemon::protocol::{DaemonReply, DaemonRequest};
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct PauseResult {
    paused: bool,
    changed: bool,
}

pub fn request_pause_or_resume(options: &ClientOptions, paused: bool) -> Result<ExitCode> {
    let request = if paused { DaemonRequest::Pause } else { DaemonRequest::Resume };
    let DaemonReply::Done { changed } = options.send_request(request)? else {
        return Err(unexpected_reply_error());
    };
    print_text_or_json(options.json, &PauseResult { paused, changed }, |outcome| {
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
