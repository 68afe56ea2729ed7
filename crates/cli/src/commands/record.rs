//! `hawkeye record`: samples processes for a while and writes what it sees to a file.

use super::session::{PreparedSession, open_target_of_pids, pids_text};
use crate::options::{self, DEFAULT_PERIOD_S, DEFAULT_WINDOW_S};
use crate::output::print_to_stderr;
use crate::recording::RecordingTarget;
use crate::text_format::format_count;
use anyhow::Result;
use clap::Args;
use hawkeye_manager::Settings;
use hawkeye_policy::CpuBudget;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Record what processes do with their memory, and change nothing.
///
/// Coverage by region, overhead, huge pages, resident memory and bloat go into a Parquet file,
/// until interrupted or until all processes have ended. `hawkeye report FILE` shows it,
/// `hawkeye-lab sim run --recording FILE` tries other policies on it, and docs/use/recordings.md
/// explains how to query it. After a kill, FILE.part has all but the last minute, and `report`
/// reads it too. An earlier FILE becomes FILE.1.
#[derive(Args)]
#[command(
    after_help = "\
Example:
  hawkeye record $(pidof redis-server) -o redis.parquet --length 600
`hawkeye help record` describes all options in full.",
    after_long_help = "\
Example:
  hawkeye record $(pidof redis-server) -o redis.parquet --length 600"
)]
pub struct RecordOptions {
    /// Processes to record.
    #[arg(required = true, value_name = "PID", value_parser = options::parse_pid)]
    pids: Vec<u32>,

    /// Parquet file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Seconds to record [default: until interrupted].
    #[arg(long, value_name = "S", value_parser = options::parse_seconds)]
    length: Option<Duration>,

    /// Seconds between sampling windows; more where sampling would cost the processes, or a core,
    /// over 1 %.
    #[arg(long, value_name = "S", default_value = DEFAULT_PERIOD_S, value_parser = options::parse_seconds)]
    period: Duration,

    /// Seconds that a sampling window lasts.
    #[arg(long, value_name = "S", default_value = DEFAULT_WINDOW_S, value_parser = options::parse_seconds)]
    window: Duration,

    /// Record shared memory too, with the file that it is part of.
    ///
    /// Only where it can become huge: at addresses that are congruent to the file offset modulo
    /// 2 MiB. Of memory that several processes map, no accesses can be seen.
    #[arg(long)]
    shared_memory: bool,
}

/// CPU time for recording, in per cent of one core. Windows move further apart to stay below.
const CPU_PERCENT: f64 = 1.0;

impl RecordOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let (scope, processes) = open_target_of_pids(&self.pids)?;
        let settings = Settings {
            period: self.period,
            window: self.window,
            cpu: CpuBudget::new(CPU_PERCENT)?,
            ..Settings::default()
        };
        let purpose = format!("record {}", pids_text(&processes, " "));
        let place = RecordingTarget::File(self.output.clone());
        let session = PreparedSession::for_measurement(
            settings.check()?,
            place,
            self.shared_memory,
            &purpose,
        )?;
        let goes_on = |now| self.length.is_none_or(|length| now < length);
        let mut managed = session.manage_until_end(scope, goes_on)?;
        managed.finish_recording()?;
        let (lasted, samples) = (managed.summary.wall_s, managed.summary.samples);
        let percent = managed.summary.manager_cpu_s * 100.0 / lasted.max(1e-3);
        let bytes = format_count(std::fs::metadata(&self.output).map_or(0, |file| file.len()));
        let file = self.output.display();
        let report = report_command(&self.output, std::env::var_os("SUDO_UID").is_some());
        print_to_stderr(&format!(
            "hawkeye: {samples} samples in {lasted:.0} s, {bytes} bytes in {file}; {percent:.2} % of a core. `{report}` shows them.\n"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// The command that shows a recording. Only the user that made it may read it, which is root under
/// sudo.
fn report_command(file: &Path, under_sudo: bool) -> String {
    let sudo = if under_sudo { "sudo " } else { "" };
    format!("{sudo}hawkeye report {}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_made_under_sudo_is_shown_under_sudo() {
        let file = Path::new("redis.parquet");
        assert_eq!(report_command(file, true), "sudo hawkeye report redis.parquet");
        assert_eq!(report_command(file, false), "hawkeye report redis.parquet");
    }
}
