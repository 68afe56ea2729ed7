//! `hawkeye sim run`.

use super::machine::{Machine, workload};
use super::output::{Entry, Output};
use super::trace::Tracing;
use super::{bar, figures};
use anyhow::{Context, Result, bail};
use clap::Args;
use hawkeye_policy::ProcessSample;
use hawkeye_recording::{CoverageWriter, RecordingError};
use hawkeye_sim::simulate::{SampleObserver, Setup, Simulated, simulate, simulate_observed};
use hawkeye_sim::systems::{self, System};
use hawkeye_sim::trace::{BadRecords, Recording};
use hawkeye_sim::workloads::{Replay, Workload};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Run one workload on one system.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye sim run --system hawkeye-g --workload random --fragment 1 --svg r.svg
`hawkeye help sim run` shows all options, and says more about each.")]
pub struct Run {
    /// The system: `hawkeye sim list` shows them.
    #[arg(long, value_name = "S")]
    system: String,

    /// The workload: a name, file or trace.
    ///
    /// One of `hawkeye sim list`, or a file NAME.toml.
    ///
    /// A trace is one of memory accesses: see docs/workloads.md.
    #[arg(
        long,
        value_name = "W",
        required_unless_present = "recording",
        conflicts_with = "recording"
    )]
    workload: Option<String>,

    /// Instead of a workload: what was recorded.
    ///
    /// Of coverage over time, see docs/recordings.md.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,

    /// Record coverage into a Parquet file.
    ///
    /// As the manager sees it: see docs/recordings.md.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    #[command(flatten)]
    machine: Machine,

    #[command(flatten)]
    tracing: Tracing,

    #[command(flatten)]
    output: Output,
}

/// Writes samples down; the first error ends that.
struct Recorder {
    writer: CoverageWriter<BufWriter<File>>,
    failed: Option<RecordingError>,
}

impl SampleObserver for Recorder {
    fn sampled(&mut self, at: Duration, window: Duration, command: &str, sample: &ProcessSample) {
        if self.failed.is_none() {
            self.failed = self.writer.write(at, window, command, sample).err();
        }
    }
}

impl Run {
    /// Does it.
    pub fn execute(self) -> Result<()> {
        let system = systems::by_name(&self.system)?;
        let workload = match (&self.workload, &self.recording) {
            (Some(name), _) => workload(name, &self.tracing)?,
            (None, Some(path)) => replayed(path)?,
            (None, None) => bail!("there is neither a workload nor a recording"),
        };
        let workload = self.machine.place(workload);
        let setup = self.machine.setup()?;
        let bar = bar::over(1);
        let done = match &self.record {
            Some(path) => recorded(&system, &workload, &setup, path),
            None => Ok(simulate(&system, &workload, &setup)?),
        };
        bar.finish_and_clear();
        let entry = Entry {
            parameter: String::new(),
            value: String::new(),
            seed: setup.seed,
            run: done?,
        };
        self.output.put(std::slice::from_ref(&entry), &entry, || {
            figures::of_run(&entry.run)
        })
    }
}

/// What was recorded, as a workload.
fn replayed(path: &Path) -> Result<Workload> {
    let named = || path.display().to_string();
    let mut replay = Replay::default();
    for row in Recording::open(path, BadRecords::Fail).with_context(named)? {
        replay.add(&row.with_context(named)?);
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(replay.finish(&name.to_string_lossy())?)
}

fn recorded(system: &System, workload: &Workload, setup: &Setup, path: &Path) -> Result<Simulated> {
    let named = || path.display().to_string();
    let file = File::create(path).with_context(|| format!("{} can't be written", named()))?;
    let mut recorder = Recorder {
        writer: CoverageWriter::new(BufWriter::new(file)).with_context(named)?,
        failed: None,
    };
    let done = simulate_observed(system, workload, setup, &mut recorder)?;
    let finished = match recorder.failed {
        Some(error) => Err(error),
        None => recorder.writer.finish(),
    };
    finished.with_context(named)?;
    Ok(done)
}
