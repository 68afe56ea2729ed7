//! `hawkeye-lab sim`: the same policies on a simulated machine.
//!
//! ```text
//!  machine_options, trace_options: the machine; workloads and traces
//!     v
//!  run, compare, sweep --> run_result: RunResult --> output_options --+--> table (text)
//!                                                                     |--> JSON, Parquet
//!                                                                     `--> run_plots (SVG)
//!  paper --> published_tables: tables by name
//!  prezeroing: free lists beside those of a patched kernel
//! ```
//!
//! One file for each subcommand. Read `run` first: `compare` repeats it for each system and
//! workload, `sweep` for each system and value of a parameter.

mod compare;
pub(super) mod machine_options;
pub(super) mod output_options;
mod paper;
mod prezeroing;
pub(super) mod published_tables;
mod run;
mod run_plots;
mod run_result;
mod sweep;
mod table;
mod trace_options;

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
pub struct SimCommand {
    #[command(subcommand)]
    command: SimSubcommand,
}

#[derive(Subcommand)]
enum SimSubcommand {
    Run(run::RunCommand),
    Compare(compare::CompareCommand),
    Sweep(sweep::SweepCommand),
    Prezeroing(prezeroing::PrezeroingCommand),
    Paper(paper::PaperCommand),
    /// List systems, workloads with their sources, and processors.
    #[command(after_help = "Example: hawkeye-lab sim list")]
    List,
}

impl SimCommand {
    pub fn execute(self) -> Result<()> {
        match self.command {
            SimSubcommand::Run(run) => run.execute(),
            SimSubcommand::Compare(compare) => compare.execute(),
            SimSubcommand::Sweep(sweep) => sweep.execute(),
            SimSubcommand::Prezeroing(prezeroing) => prezeroing.execute(),
            SimSubcommand::Paper(paper) => paper.execute(),
            SimSubcommand::List => print_known_names(),
        }
    }
}

fn print_known_names() -> Result<()> {
    print_line!("Systems:");
    for system in &SYSTEMS {
        print_line!("  {:12} {}", system.name, system.about);
    }
    print_line!("Workloads:");
    for name in workloads::built_in_names() {
        let source = workloads::by_name(name)?.source;
        print_line!("  {name:12} {}", source.trim());
    }
    print_line!("Processors:");
    for processor in &PROCESSORS {
        print_line!("  {}", processor.name);
    }
    Ok(())
}
