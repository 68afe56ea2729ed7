//! `hawkeye-lab sim`: the same policies on a simulated machine.

mod compare;
pub(super) mod machine;
pub(super) mod output;
mod paper;
mod prezeroing;
pub(super) mod published_tables;
mod run;
mod run_plots;
mod run_result;
mod sweep;
mod table;
mod trace;

use anyhow::Result;
use clap::{Args, Subcommand};
use hawkeye_sim::mmu::PROCESSORS;
use hawkeye_sim::systems::SYSTEMS;
use hawkeye_sim::workloads;

/// Simulate systems and workloads, without privileges.
///
/// Results are deterministic. Simulations are faster than real time.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab sim list
  hawkeye-lab sim run --system hawkeye --workload random
  hawkeye-lab sim compare --systems linux,hawkeye --workloads random")]
pub struct Sim {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    Run(run::RunCommand),
    Compare(compare::Compare),
    Sweep(sweep::SweepCommand),
    Prezeroing(prezeroing::PrezeroingCommand),
    Paper(paper::Paper),
    /// List systems, workloads with their sources, and processors.
    #[command(after_help = "Example: hawkeye-lab sim list")]
    List,
}

impl Sim {
    pub fn execute(self) -> Result<()> {
        match self.command {
            SimCommand::Run(run) => run.execute()?,
            SimCommand::Compare(compare) => compare.execute()?,
            SimCommand::Sweep(sweep) => sweep.execute()?,
            SimCommand::Prezeroing(prezeroing) => prezeroing.execute()?,
            SimCommand::Paper(paper) => paper.execute()?,
            SimCommand::List => list()?,
        }
        Ok(())
    }
}

fn list() -> Result<()> {
    println!("Systems:");
    for system in &SYSTEMS {
        println!("  {:12} {}", system.name, system.about);
    }
    println!("Workloads:");
    for name in workloads::built_in_names() {
        let source = workloads::by_name(name)?.source;
        println!("  {name:12} {}", source.trim());
    }
    println!("Processors:");
    for processor in &PROCESSORS {
        println!("  {}", processor.name);
    }
    Ok(())
}
