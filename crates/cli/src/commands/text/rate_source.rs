//! The rate by which a trial decides: hardware counters, or a command of the user's.

use super::error::TextError;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::sample::counters::instruction_rate::InstructionRateCounters;
use hawkeye_linux::stop_signals::{StopSignals, WaitResult, unblock_signals_in_child};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::io::{Seek, SeekFrom};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a rate command may take.
const COMMAND_TIME: Duration = Duration::from_secs(10);
/// Longest output that is read. A number is shorter.
const MOST_BYTES: u64 = 4096;

pub enum RateSource {
    Counters(InstructionRateCounters),
    Command { command: String, begun: Option<Reading> },
}

/// What the rates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateUnit {
    InstructionsPerCycle,
    /// Growth of the command's number.
    CountsPerSecond,
}

/// A number that the command printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    at: Instant,
    number: f64,
}

impl RateSource {
    /// The command where one is given, else counters.
    pub fn choose(pid: u32, command: Option<String>) -> Result<Self, TextError> {
        match command {
            Some(command) => Ok(Self::Command { command, begun: None }),
            None => InstructionRateCounters::open(pid)
                .map(Self::Counters)
                .map_err(|counters| TextError::NoRate { counters }),
        }
    }

    pub fn unit(&self) -> RateUnit {
        match self {
            Self::Counters(_) => RateUnit::InstructionsPerCycle,
            Self::Command { .. } => RateUnit::CountsPerSecond,
        }
    }

    /// Begins a window.
    pub fn begin(&mut self, signals: &StopSignals) -> Result<(), TextError> {
        match self {
            Self::Counters(counters) => {
                counters.instructions_per_cycle_since_last_call()?;
            }
            Self::Command { command, begun } => *begun = Some(run_command(command, signals)?),
        }
        Ok(())
    }

    /// The rate since the window began; 0 if the program did nothing.
    pub fn end(&mut self, signals: &StopSignals) -> Result<f64, TextError> {
        match self {
            Self::Counters(counters) => {
                Ok(counters.instructions_per_cycle_since_last_call()?.unwrap_or(0.0))
            }
            Self::Command { command, begun } => {
                let now = run_command(command, signals)?;
                let begun = begun.take().unwrap_or(now);
                rate_between(begun, now).map_err(|why| rate_error(command, why))
            }
        }
    }
}

fn rate_error(command: &str, why: impl Into<String>) -> TextError {
    TextError::RateCommand { command: command.to_owned(), why: why.into() }
}

/// Counts per second.
fn rate_between(before: Reading, after: Reading) -> Result<f64, String> {
    let grown = after.number - before.number;
    if grown < 0.0 {
        return Err(format!("went back from {} to {}", before.number, after.number));
    }
    let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
    if seconds > 0.0 { Ok(grown / seconds) } else { Ok(0.0) }
}

fn parse_number(output: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(output);
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| match text.trim() {
        "" => "printed nothing".to_owned(),
        text => format!("printed {:?}", text.chars().take(60).collect::<String>()),
    })
}

/// Runs the command. Its number counts for the middle of that time.
fn run_command(command: &str, signals: &StopSignals) -> Result<Reading, TextError> {
    // A pipe could be held open by what the command leaves running.
    let output = memfd_create(c"hawkeye-rate", MFdFlags::MFD_CLOEXEC)
        .map_err(|errno| TextError::Start(errno.into()))?;
    let mut output = File::from(output);
    let mut sh = Command::new("sh");
    sh.args(["-c", command]).stdin(Stdio::null());
    sh.stdout(output.try_clone().map_err(TextError::Start)?);
    unblock_signals_in_child(&mut sh);
    let began = Instant::now();
    let mut child = sh.spawn().map_err(TextError::Start)?;
    let waited = ProcessHandle::open_child(child.id())
        .map(|handle| signals.wait(&[handle.fd()], COMMAND_TIME));
    if !matches!(waited, Ok(WaitResult::Readable)) {
        // It fails if the command has ended just now.
        let _ = child.kill();
    }
    let status = child.wait().map_err(TextError::Start)?;
    match waited? {
        WaitResult::Signal(signal) => return Err(TextError::Stopped(signal)),
        WaitResult::TimedOut => {
            let most = COMMAND_TIME.as_secs();
            return Err(rate_error(command, format!("took longer than {most} s")));
        }
        WaitResult::Readable if !status.success() => {
            return Err(rate_error(command, format!("failed ({status})")));
        }
        WaitResult::Readable => {}
    }
    let at = began + began.elapsed() / 2;
    let mut printed = Vec::new();
    let read = output.seek(SeekFrom::Start(0));
    read.and_then(|_| output.take(MOST_BYTES).read_to_end(&mut printed))
        .map_err(TextError::Start)?;
    let number = parse_number(&printed).map_err(|why| rate_error(command, why))?;
    Ok(Reading { at, number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(command: &str) -> Result<f64, String> {
        let reading = run_command(command, &StopSignals::disabled());
        reading.map(|reading| reading.number).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_prints_one_number() {
        assert_eq!(number("echo 12; sleep 0 &"), Ok(12.0));
        assert_eq!(number("printf '3.5\\r\\n'"), Ok(3.5));
        for (command, why) in [
            ("true", "printed nothing"),
            ("echo twelve", "printed \"twelve\""),
            ("echo 1 2", "printed \"1 2\""),
            ("echo nan", "printed \"nan\""),
            ("echo 1; exit 3", "failed (exit status: 3)"),
        ] {
            let error = number(command).expect_err(command);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_a_command_leaves_running_does_not_delay_it() {
        let begun = Instant::now();
        assert_eq!(number("sleep 8 & echo 7"), Ok(7.0));
        assert!(begun.elapsed() < Duration::from_secs(8));
    }

    #[test]
    fn a_rate_is_growth_over_time() {
        let at = Instant::now();
        let reading =
            |seconds: u64, number| Reading { at: at + Duration::from_secs(seconds), number };
        assert_eq!(rate_between(reading(1, 100.0), reading(5, 300.0)), Ok(50.0));
        assert_eq!(rate_between(reading(1, 100.0), reading(1, 100.0)), Ok(0.0));
        let back = rate_between(reading(1, 100.0), reading(2, 90.0));
        assert_eq!(back, Err("went back from 100 to 90".to_owned()));
    }
}
