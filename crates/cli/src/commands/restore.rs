//! `hawkeye restore`: puts back what a killed manager left changed.

use anyhow::Result;
use clap::Args;
use hawkeye_linux::takeover::instance::{Instance, state_dir};
use hawkeye_linux::takeover::stop_leftover_damon;
use hawkeye_linux::takeover::thp_settings::{Outcome, restore_leftovers};
use std::process::ExitCode;

/// Put back kernel settings that a killed manager left changed.
///
/// Only those that are still as it left them. One that was changed since stays, and is shown. Every start
/// of a manager does this too.
#[derive(Args)]
#[command(after_help = "Example: hawkeye restore")]
pub struct Restore {}

impl Restore {
    /// Restores, and says what.
    pub fn execute(self) -> Result<ExitCode> {
        let state = state_dir();
        let _instance = Instance::claim(&state, "restore")?;
        stop_leftover_damon();
        let restored = restore_leftovers(&state)?;
        if restored.is_empty() {
            println!("Nothing to restore: every setting is as it was found.");
        }
        for outcome in &restored {
            println!("{outcome}");
        }
        let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed { .. });
        Ok(if restored.iter().any(failed) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}
