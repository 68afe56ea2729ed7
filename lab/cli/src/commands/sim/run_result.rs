//! One run of many.

use super::machine_options::count_available_cores;
use anyhow::Result;
use hawkeye_sim::simulate::{SimulationJob, SimulationResult, SimulationSetup, simulate_all};
use hawkeye_sim::systems::SimulatedSystem;
use hawkeye_sim::workloads::WorkloadSpec;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::time::Duration;

/// A run, with the value of the varied parameter.
#[derive(Serialize)]
pub struct RunResult {
    /// Its dotted key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parameter: String,
    /// The value as given.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The seed.
    pub seed: u64,
    /// Its results.
    #[serde(flatten)]
    pub run: SimulationResult,
}

impl RunResult {
    /// A run without a varied parameter.
    pub fn without_parameter(seed: u64, run: SimulationResult) -> Self {
        Self { parameter: String::new(), value: String::new(), seed, run }
    }
}

/// Runs each workload on each system, `at_a_time` in parallel; by default one per core.
pub fn simulate_on_systems<'a>(
    workloads: impl IntoIterator<Item = (&'a WorkloadSpec, SimulationSetup)>,
    systems: &[SimulatedSystem],
    at_a_time: Option<usize>,
) -> Result<Vec<SimulationResult>> {
    let jobs = workloads.into_iter().flat_map(|(workload, setup)| {
        systems.iter().map(move |system| SimulationJob { system: *system, workload, setup })
    });
    let jobs: Vec<SimulationJob> = jobs.collect();
    let bar = start_progress_bar(jobs.len());
    let done =
        simulate_all(&jobs, at_a_time.unwrap_or_else(count_available_cores), &|_| bar.inc(1));
    bar.finish_and_clear();
    Ok(done?)
}

/// A progress bar over `runs` runs, on standard error if that is a terminal. For a single run it
/// shows only activity.
pub fn start_progress_bar(runs: usize) -> ProgressBar {
    // The library hides it if standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let template = if runs == 1 {
        "{spinner} simulating, {elapsed}"
    } else {
        "{bar:40} {pos} of {len} runs, {elapsed}, {eta} left"
    };
    // If the template is invalid, the default style will do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
