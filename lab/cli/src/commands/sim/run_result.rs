//! One run of many.

use super::machine::threads;
use super::progress;
use anyhow::Result;
use hawkeye_sim::simulate::{SimulationJob, SimulationResult, simulate_each};
use serde::Serialize;

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
        Self {
            parameter: String::new(),
            value: String::new(),
            seed,
            run,
        }
    }
}

/// Runs all jobs, `at_a_time` in parallel; by default one per core.
pub fn simulate_jobs(
    jobs: &[SimulationJob],
    at_a_time: Option<usize>,
) -> Result<Vec<SimulationResult>> {
    let bar = progress::progress_bar(jobs.len());
    let done = simulate_each(jobs, at_a_time.unwrap_or_else(threads), &|_| bar.inc(1));
    bar.finish_and_clear();
    Ok(done?)
}
