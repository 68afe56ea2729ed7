//! `hawkeye-lab sim run`.

use super::machine_options::{MachineOptions, workload_from_argument};
use super::output_options::OutputOptions;
use super::run_plots;
use super::run_result::{RunResult, start_progress_bar};
use super::trace_options::TraceOptions;
use anyhow::{Context, Result, bail};
use clap::Args;
use hawkeye_recording::{Recorder, RecordingMetadata, RecordingRowsFromManager};
use hawkeye_sim::simulate::{SimulationResult, SimulationSetup, simulate, simulate_observed};
use hawkeye_sim::systems::{self, SimulatedSystem};
use hawkeye_sim::trace::{self, BadRecordHandling};
use hawkeye_sim::workloads::{RecordingReplay, WorkloadSpec};
use std::path::{Path, PathBuf};

/// Run one workload on one system.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye-lab sim run --system hawkeye-g --workload random --svg run.svg
`hawkeye-lab help sim run` shows all options in full.")]
pub struct RunCommand {
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
    /// docs/use/recordings.md. Runs with virtual machines are refused: they have several managers.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    #[command(flatten)]
    machine: MachineOptions,

    #[command(flatten)]
    tracing: TraceOptions,

    #[command(flatten)]
    output: OutputOptions,
}

impl RunCommand {
    pub fn execute(self) -> Result<()> {
        let system = systems::by_name(&self.system)?;
        let workload = match (&self.workload, &self.recording) {
            (Some(name), _) => workload_from_argument(name, &self.tracing)?,
            (None, Some(path)) => workload_of_recording(path)?,
            (None, None) => bail!("give a workload (--workload) or a recording (--recording)"),
        };
        let setup = self.machine.simulation_setup()?;
        let workload = self.machine.workload_in_requested_guest(workload, &setup);
        if self.record.is_some() && !workload.guests.is_empty() {
            bail!(
                "--record cannot record {}: it has virtual machines, and a recording is of one manager; leave --record out",
                workload.name
            );
        }
        let bar = start_progress_bar(1);
        let done = match &self.record {
            Some(path) => simulate_and_record(&system, &workload, &setup, path),
            None => Ok(simulate(&system, &workload, &setup)?),
        };
        bar.finish_and_clear();
        let entry = RunResult::without_parameter(setup.seed, done?);
        self.output.output_results(std::slice::from_ref(&entry), &entry, || {
            run_plots::run_plot_figure(&entry.run)
        })
    }
}

fn workload_of_recording(path: &Path) -> Result<WorkloadSpec> {
    let named = || path.display().to_string();
    let mut replay = RecordingReplay::default();
    for row in trace::CoverageRowReader::open(path, BadRecordHandling::Fail).with_context(named)? {
        replay.add_row(&row.with_context(named)?);
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(replay.finish(&name.to_string_lossy())?)
}

fn simulate_and_record(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
    path: &Path,
) -> Result<SimulationResult> {
    let named = || path.display().to_string();
    let about = RecordingMetadata {
        host: "simulated".to_owned(),
        policy: system.policy.to_owned(),
        ..RecordingMetadata::default()
    };
    let mut recorder = Recorder::begin_file_recording(path, about).with_context(named)?;
    let (mut tap, mut failed) = (RecordingRowsFromManager::default(), None);
    let done = simulate_observed(system, workload, setup, &mut |manager| {
        // A search for zeros would cost the manager time.
        for row in tap.take_new_rows(manager, |_| None) {
            // The first error ends the recording.
            if failed.is_none() {
                failed = recorder.write_row(row).err();
            }
        }
    })?;
    let finished = failed.map_or_else(|| recorder.finish(), Err);
    finished.with_context(named)?;
    Ok(done)
}
