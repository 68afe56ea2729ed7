//! `hawkeye sim`: the same policies on a simulated machine.

mod bar;
mod calibrate;
mod compare;
mod figures;
mod itanium;
mod list;
mod machine;
mod output;
mod paper;
mod predict;
mod prezeroing;
mod published;
mod run;
mod sweep;
mod table;
mod trace;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Try systems and workloads on a simulated machine, without privileges.
///
/// Deterministic, and faster than real time.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye sim list
  hawkeye sim run --system hawkeye --workload random
  hawkeye sim compare --systems linux,hawkeye --workloads random")]
pub struct Sim {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    Run(run::Run),
    Compare(compare::Compare),
    Sweep(sweep::Sweep),
    Calibrate(calibrate::Calibrate),
    Predict(predict::Predict),
    Prezeroing(prezeroing::Prezeroing),
    Paper(paper::Paper),
    Itanium(itanium::Itanium),
    /// Show systems, workloads and where their figures are from.
    #[command(after_help = "Example: hawkeye sim list")]
    List,
}

impl Sim {
    /// Does it.
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            SimCommand::Run(run) => run.execute()?,
            SimCommand::Compare(compare) => compare.execute()?,
            SimCommand::Sweep(sweep) => sweep.execute()?,
            SimCommand::Calibrate(calibrate) => calibrate.execute()?,
            SimCommand::Predict(predict) => predict.execute()?,
            SimCommand::Prezeroing(prezeroing) => prezeroing.execute()?,
            SimCommand::Paper(paper) => paper.execute()?,
            SimCommand::Itanium(itanium) => itanium.execute()?,
            SimCommand::List => list::list()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
