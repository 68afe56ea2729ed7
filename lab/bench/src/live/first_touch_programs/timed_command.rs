//! Starts a program on one core, and measures the time until it is ready.

use crate::error::BenchError;
use crate::live::prelude::*;
use crate::live::programs::RunningProcess;
use crate::live::programs::debian_packages::find_hawkeye_program;
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadySign {
    Ended,
    Line,
}

#[derive(Clone, Debug)]
pub(super) struct TimedCommand {
    pub(super) words: Vec<String>,
    pub(super) ready: ReadySign,
    /// The package that contains the program, unless it is compiled here.
    pub(super) package: Option<&'static str>,
}

pub(super) const CORE: usize = 0;

impl TimedCommand {
    pub(super) fn from_package(package: &'static str, words: &str, ready: ReadySign) -> Self {
        let words = words.split(' ').map(String::from).collect();
        Self { words, ready, package: Some(package) }
    }

    /// Starts the program once, with or without prefault; returns the seconds until it was ready.
    pub(super) fn measure_start_seconds(
        &self,
        ahead: bool,
        warm_gib: Option<u64>,
    ) -> BenchResult<f64> {
        let mut command = command_on_core(ahead, warm_gib, &self.words)?;
        command.stdout(Stdio::piped());
        let begun = Instant::now();
        let mut running = start_with_sigterm_on_drop(command)?;
        let failed = || BenchError::program_error_mapper(self.words.join(" "));
        let mut line = String::new();
        if let Some(output) = running.child.stdout.take() {
            let mut output = BufReader::new(output);
            let read = match self.ready {
                ReadySign::Line => output.read_line(&mut line),
                ReadySign::Ended => {
                    std::io::copy(&mut output, &mut std::io::sink()).map(|n| n as usize)
                }
            };
            read.map_err(failed())?;
        }
        if self.ready == ReadySign::Ended {
            let status = running.child.wait().map_err(failed())?;
            if !status.success() {
                bail!("{} ended with {status}", self.words.join(" "));
            }
        } else if line.is_empty() {
            bail!("{} printed nothing", self.words.join(" "));
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// `hawkeye run` itself is not bound to the core, so `taskset` binds the program in both ways.
pub(super) fn command_on_core(
    ahead: bool,
    warm_gib: Option<u64>,
    words: &[String],
) -> BenchResult<Command> {
    let mut command = Command::new("taskset");
    if ahead {
        command = Command::new(find_hawkeye_program()?);
        command.args(["run", "--policy", "none", "--fault-ahead", "on"]);
        command.args(["--huge-faults", "--first-touch", "off"]);
        if let Some(gib) = warm_gib {
            command.args(["--warm", &format!("{gib}GiB")]);
        }
        command.args(["--", "taskset"]);
    }
    command.args(["-c", &CORE.to_string()]).args(words);
    // Some programs end when their input does.
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

pub(super) fn start_with_sigterm_on_drop(mut command: Command) -> BenchResult<RunningProcess> {
    // `hawkeye run` passes the signal on and restores its settings.
    RunningProcess::start(&mut command, Signal::SIGTERM)
}
