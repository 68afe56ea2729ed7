//! `hawkeye record`: looks at processes for a while, and writes down what it sees.

use super::managing::{Session, Working};
use crate::options::{self, DEFAULT_PERIOD_S, DEFAULT_WINDOW_S};
use crate::progress::Progress;
use crate::recording::Place;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_linux::Scope;
use hawkeye_linux::processes::process::{ProcessHandle, own_cpu};
use hawkeye_manager::{Machine, Settings, Wake};
use hawkeye_policy::CpuBudget;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Record what processes do with their memory, and change nothing.
///
/// Coverage by region, overhead, huge pages, resident memory and bloat go into a Parquet file, until interrupted or until all processes have
/// ended. `hawkeye report FILE` shows it, `hawkeye-lab sim run --recording FILE` tries other policies on it, and docs/recordings.md
/// tells how to query it. Whoever is killed leaves all but the last minute in FILE.part, which `report` reads too; what was at FILE before is
/// FILE.1 then.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye record $(pidof redis-server) -o redis.parquet --length 600
`hawkeye help record` says more.")]
pub struct Record {
    /// Processes to look at.
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,

    /// The file.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Seconds to record; unless set, until interrupted.
    #[arg(long, value_name = "S", value_parser = options::seconds)]
    length: Option<Duration>,

    /// Seconds from one sampling window to the next; more where that would cost the processes, or a core, over 1 %.
    #[arg(long, value_name = "S", default_value = DEFAULT_PERIOD_S, value_parser = options::seconds)]
    period: Duration,

    /// Seconds that a sampling window lasts.
    #[arg(long, value_name = "S", default_value = DEFAULT_WINDOW_S, value_parser = options::seconds)]
    window: Duration,
}

/// What recording may take of a core: windows are further apart where they would take more.
const CPU_PERCENT: f64 = 1.0;

impl Record {
    /// Records.
    pub fn execute(self) -> Result<ExitCode> {
        let handles = self.pids.iter().map(|pid| ProcessHandle::open(*pid));
        let handles = handles.collect::<Result<Vec<_>, _>>()?;
        let settings = Settings {
            period: self.period,
            window: self.window,
            cpu: CpuBudget::new(CPU_PERCENT)?,
            ..Settings::default()
        };
        let names: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let purpose = format!("record {}", names.join(" "));
        let place = Place::File(self.output.clone());
        let session = Session::to_measure(settings.check()?, place, &purpose)?;
        let cpu_before = own_cpu();
        let Working {
            takeover: _takeover,
            recording,
            mut manager,
            ..
        } = session.into_manager(Scope::Processes(handles))?;
        let mut recording = recording.context("nothing is recorded")?;
        let mut progress = Progress::new();
        let over = |now: Duration| self.length.is_some_and(|length| now >= length);
        while manager.step() != Wake::Stop && !over(manager.machine().now()) {
            recording.take(&mut manager);
            progress.draw(&manager);
        }
        recording.take(&mut manager);
        progress.finish();
        let lasted = manager.machine().now().as_secs_f64();
        let cpu = manager.machine().own_costs().cpu.saturating_sub(cpu_before);
        let windows = manager.journal().totals().samples;
        recording.finish()?;
        let bytes = std::fs::metadata(&self.output).map_or(0, |file| file.len());
        eprintln!(
            "hawkeye: {windows} sampling windows in {lasted:.0} s, {} bytes in {}; {:.2} % of a core. `hawkeye report {}` shows them.",
            crate::words::count(bytes),
            self.output.display(),
            cpu.as_secs_f64() * 100.0 / lasted.max(1e-3),
            self.output.display(),
        );
        Ok(ExitCode::SUCCESS)
    }
}
