//! `hawkeye-lab sim sweep`.

use super::machine_options::{MachineOptions, read_workload_text, systems_by_names_or_all};
use super::output_options::OutputOptions;
use super::run_plots;
use super::run_result::{RunResult, simulate_on_systems};
use anyhow::{Result, anyhow};
use clap::Args;
use hawkeye_sim::sweep_parameters::{SweepBase, SweepParameter, parse_values};

/// Vary one parameter of a workload, machine, costs or systems.
///
/// Keys: machine.KEY (memory, cores, fragment, seed, sample, longest_s), processor or
/// processor.KEY, costs.KEY, system.KEY (rate_per_s, period_s, ...), workload.KEY
/// (process.0.area.heap.size). The error for a wrong key lists the valid ones.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye-lab sim sweep --vary machine.fragment=0..1+0.25 --workload random
Keys: machine.KEY, processor, costs.KEY, system.KEY, workload.KEY; the error for a
wrong key lists the valid ones. `hawkeye-lab help sim sweep` shows all options.")]
pub struct SweepCommand {
    /// Vary KEY over its values: A,B or FROM..TO+STEP.
    ///
    /// A list A,B,C; each item may be a range FROM..TO+STEP or FROM..TO*FACTOR.
    #[arg(long, value_name = "KEY=VALUES")]
    vary: String,

    /// Workload: a name, or a file NAME.toml.
    #[arg(long, value_name = "W")]
    workload: String,

    /// Systems [default: all].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Runs at the same time [default: one per core].
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    #[command(flatten)]
    machine: MachineOptions,

    #[command(flatten)]
    output: OutputOptions,
}

impl SweepCommand {
    pub fn execute(self) -> Result<()> {
        let (key, values) = self.vary.split_once('=').ok_or_else(|| {
            let given = &self.vary;
            anyhow!("--vary {given:?} has no values: write KEY=VALUES, as in machine.cores=1,2,4")
        })?;
        let (parameter, values) = (SweepParameter::new(key.trim()), parse_values(values)?);
        let systems = systems_by_names_or_all(&self.systems)?;
        let base = SweepBase {
            setup: self.machine.simulation_setup()?,
            name: self.workload.clone(),
            text: read_workload_text(&self.workload)?,
        };
        // Checks all values before the first run.
        let set = values.iter().map(|value| {
            let (setup, workload) = parameter.apply(&base, value)?;
            let workload = self.machine.workload_in_requested_guest(workload, &setup);
            Ok((setup, workload))
        });
        let set: Vec<_> = set.collect::<Result<_>>()?;
        let on_machine = set.iter().map(|(setup, workload)| (workload, *setup));
        let done = simulate_on_systems(on_machine, &systems, self.threads)?;
        let entries = done.into_iter().enumerate().map(|(number, run)| RunResult {
            parameter: parameter.key().to_owned(),
            value: values[number / systems.len()].clone(),
            seed: set[number / systems.len()].0.seed,
            run,
        });
        let entries: Vec<RunResult> = entries.collect();
        self.output.output_results(&entries, &entries, || {
            run_plots::sweep_plot_figure(&entries, parameter.key(), &values)
        })
    }
}
