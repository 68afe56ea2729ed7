//! `hawkeye bench`: measurements.

use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// Measure on this machine, side by side in one run.
#[derive(Args)]
pub struct Bench {}

impl Bench {
    /// Runs them.
    pub fn execute(self) -> Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
