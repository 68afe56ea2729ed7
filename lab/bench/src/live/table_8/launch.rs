//! A program, started on one core and timed until it is ready.

use crate::error::BenchError;
use crate::live::Host;
use hawkeye_linux::stop::let_signals_through;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// When a program has done what is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// It has ended.
    Ended,
    /// It has printed a line.
    Line,
}

/// What to start.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) words: Vec<String>,
    pub(super) ready: Ready,
}

/// The core that programs are kept on.
pub(super) const CORE: usize = 0;

impl Launch {
    /// Starts it once, with memory filled ahead or not; seconds until it was ready.
    pub(super) fn seconds(
        &self,
        host: &Host,
        ahead: bool,
        warm_gib: Option<u64>,
    ) -> Result<f64, BenchError> {
        let mut command = command(host, ahead, warm_gib, &self.words);
        command.stdout(Stdio::piped());
        let begun = Instant::now();
        let mut running = Running::start(command)?;
        let mut line = String::new();
        if let Some(output) = running.0.stdout.take() {
            let mut output = BufReader::new(output);
            let read = match self.ready {
                Ready::Line => output.read_line(&mut line),
                Ready::Ended => {
                    std::io::copy(&mut output, &mut std::io::sink()).map(|n| n as usize)
                }
            };
            read.map_err(|source| self.failed(source))?;
        }
        if self.ready == Ready::Ended {
            let status = running.0.wait().map_err(|source| self.failed(source))?;
            if !status.success() {
                let message = format!("{} ended with {status}", self.words.join(" "));
                return Err(BenchError::Impossible(message));
            }
        } else if line.is_empty() {
            let message = format!("{} said nothing", self.words.join(" "));
            return Err(BenchError::Impossible(message));
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn failed(&self, source: std::io::Error) -> BenchError {
        BenchError::Program {
            program: self.words.join(" "),
            source,
        }
    }
}

/// The command for a program on its core: under `hawkeye run` where its memory is filled ahead. That one is not kept
/// there itself, so it is `taskset` which keeps the program, in both ways alike.
pub(super) fn command(
    host: &Host,
    ahead: bool,
    warm_gib: Option<u64>,
    words: &[String],
) -> Command {
    let core = CORE.to_string();
    let mut command = if ahead {
        let mut command = Command::new(host.program());
        command.args(["run", "--policy", "none", "--fault-ahead", "on"]);
        if let Some(gib) = warm_gib {
            command.args(["--warm", &format!("{gib}GiB")]);
        }
        // This experiment has the machine, not they.
        command.env("HAWKEYE_STATE_DIR", state_dir());
        command.args(["--", "taskset", "-c", &core]);
        command
    } else {
        let mut command = Command::new("taskset");
        command.args(["-c", &core]);
        command
    };
    command.args(words);
    // Some end when their input does.
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    let_signals_through(&mut command);
    command
}

fn state_dir() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("hawkeye-bench-{}-table-8", std::process::id()))
}

/// Ended when dropped.
pub(super) struct Running(pub(super) Child);

impl Running {
    pub(super) fn start(mut command: Command) -> Result<Self, BenchError> {
        let child = command.spawn().map_err(|source| BenchError::Program {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        Ok(Self(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, kill};
        use nix::unistd::Pid;
        // `hawkeye run` passes it on and puts its settings back.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
