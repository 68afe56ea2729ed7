//! `hawkeye-lab sim compare`.

use super::machine_options::{MachineOptions, systems_by_names_or_all, workload_from_argument};
use super::output_options::OutputOptions;
use super::run_plots;
use super::run_result::{RunResult, simulate_on_systems};
use super::trace_options::TraceOptions;
use anyhow::Result;
use clap::Args;
use hawkeye_sim::workloads::WorkloadSpec;

/// Run workloads on several systems, on all cores, and compare.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye-lab sim compare --systems linux-4k,linux,hawkeye --workloads random
`hawkeye-lab help sim compare` shows all options in full.")]
pub struct CompareCommand {
    /// Systems [default: all].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Workloads: names, files NAME.toml, or traces.
    ///
    /// See docs/research/workloads.md.
    #[arg(long, value_name = "W,V", value_delimiter = ',', required = true)]
    workloads: Vec<String>,

    /// Runs at the same time [default: one per core].
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    #[command(flatten)]
    machine: MachineOptions,

    #[command(flatten)]
    tracing: TraceOptions,

    #[command(flatten)]
    output: OutputOptions,
}

impl CompareCommand {
    pub fn execute(self) -> Result<()> {
        let systems = systems_by_names_or_all(&self.systems)?;
        let setup = self.machine.simulation_setup()?;
        let place = |name: &String| {
            let workload = workload_from_argument(name, &self.tracing)?;
            Ok(self.machine.workload_in_requested_guest(workload, &setup))
        };
        let workloads = self.workloads.iter().map(place);
        let workloads: Vec<WorkloadSpec> = workloads.collect::<Result<_>>()?;
        let on_machine = workloads.iter().map(|workload| (workload, setup));
        let done = simulate_on_systems(on_machine, &systems, self.threads)?;
        let entries = done.into_iter().map(|run| RunResult::without_parameter(setup.seed, run));
        let entries: Vec<RunResult> = entries.collect();
        self.output
            .output_results(&entries, &entries, || run_plots::comparison_plot_figure(&entries))
    }
}
