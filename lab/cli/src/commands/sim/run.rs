//! `hawkeye-lab sim run`.

use super::entry::Entry;
use super::machine::{Machine, workload};
use super::output::Output;
use super::trace::Tracing;
use super::{bar, figures};

use anyhow::{Context, Result, bail};
use clap::Args;
use hawkeye_recording::{About, Recorder, Tap};
use hawkeye_sim::simulate::{Setup, Simulated, simulate, simulate_observed};
use hawkeye_sim::systems::{self, System};
use hawkeye_sim::trace::{self, BadRecords};
use hawkeye_sim::workloads::{Replay, Workload};
use std::path::{Path, PathBuf};

/// Run one workload on one system.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye-lab sim run --system hawkeye-g --workload random --svg run.svg
`hawkeye-lab help sim run` shows all options in full.")]
pub struct Run {
    /// System, one of `hawkeye-lab sim list`.
    #[arg(long, value_name = "S")]
    system: String,

    /// Workload: a name, file or trace.
    ///
    /// One of `hawkeye-lab sim list`, or a file NAME.toml.
    ///
    /// A trace is one of memory accesses: see docs/research/workloads.md.
    #[arg(
        long,
        value_name = "W",
        required_unless_present = "recording",
        conflicts_with = "recording"
    )]
    workload: Option<String>,

    /// Replay a recording instead of a workload.
    ///
    /// FILE is from `hawkeye record`, or from --record of run, attach or sim run; see
    /// docs/use/recordings.md.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,

    /// Record the manager to FILE, as Parquet.
    ///
    /// FILE has the manager's samples and actions, for `hawkeye report`; see
    /// docs/use/recordings.md.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    #[command(flatten)]
    machine: Machine,

    #[command(flatten)]
    tracing: Tracing,

    #[command(flatten)]
    output: Output,
}

impl Run {
    pub fn execute(self) -> Result<()> {
        let system = systems::by_name(&self.system)?;
        let workload = match (&self.workload, &self.recording) {
            (Some(name), _) => workload(name, &self.tracing)?,
            (None, Some(path)) => replayed(path)?,
            (None, None) => bail!("give a workload (--workload) or a recording (--recording)"),
        };
        let workload = self.machine.place(workload);
        let setup = self.machine.setup()?;
        let bar = bar::over(1);
        let done = match &self.record {
            Some(path) => recorded(&system, &workload, &setup, path),
            None => Ok(simulate(&system, &workload, &setup)?),
        };
        bar.finish_and_clear();
        let entry = Entry::plain(setup.seed, done?);
        self.output.put(std::slice::from_ref(&entry), &entry, || {
            figures::of_run(&entry.run)
        })
    }
}

fn replayed(path: &Path) -> Result<Workload> {
    let named = || path.display().to_string();
    let mut replay = Replay::default();
    for row in trace::Recording::open(path, BadRecords::Fail).with_context(named)? {
        replay.add(&row.with_context(named)?);
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(replay.finish(&name.to_string_lossy())?)
}

fn recorded(system: &System, workload: &Workload, setup: &Setup, path: &Path) -> Result<Simulated> {
    let named = || path.display().to_string();
    let about = About {
        host: "simulated".to_owned(),
        policy: system.policy.to_owned(),
        ..About::default()
    };
    let mut recorder = Recorder::begin(path, about).with_context(named)?;
    let (mut tap, mut failed) = (Tap::default(), None);
    let done = simulate_observed(system, workload, setup, &mut |manager| {
        // A search for zeros would cost the manager time.
        for row in tap.take(manager, |_| None) {
            // The first error ends the recording.
            if failed.is_none() {
                failed = recorder.write(row).err();
            }
        }
    })?;
    let finished = failed.map_or_else(|| recorder.finish(), Err);
    finished.with_context(named)?;
    Ok(done)
}
