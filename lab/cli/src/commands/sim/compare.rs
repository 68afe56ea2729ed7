//! `hawkeye-lab sim compare`.

use super::entry::Entry;
use super::machine::{Machine, systems, threads, workload};
use super::output::Output;
use super::trace::Tracing;
use super::{bar, figures};
use anyhow::Result;
use clap::Args;
use hawkeye_sim::simulate::{Job, simulate_each};
use hawkeye_sim::workloads::Workload;

/// Run workloads on several systems, on all cores, and compare.
#[derive(Args)]
#[command(after_help = "\
Example:
  hawkeye-lab sim compare --systems linux-4k,linux,hawkeye --workloads random
`hawkeye-lab help sim compare` shows all options, and says more about each.")]
pub struct Compare {
    /// Systems [default: all].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,

    /// Workloads: names, files NAME.toml, or traces.
    ///
    /// See docs/workloads.md.
    #[arg(long, value_name = "W,V", value_delimiter = ',', required = true)]
    workloads: Vec<String>,

    /// Runs at a time [default: one a core].
    ///
    /// The results are the same.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    #[command(flatten)]
    machine: Machine,

    #[command(flatten)]
    tracing: Tracing,

    #[command(flatten)]
    output: Output,
}

impl Compare {
    /// Does it.
    pub fn execute(self) -> Result<()> {
        let systems = systems(&self.systems)?;
        let workloads = self
            .workloads
            .iter()
            .map(|name| workload(name, &self.tracing));
        let workloads = workloads.map(|found| Ok(self.machine.place(found?)));
        let workloads: Vec<Workload> = workloads.collect::<Result<_>>()?;
        let setup = self.machine.setup()?;
        let mut jobs = Vec::new();
        for workload in &workloads {
            for system in &systems {
                jobs.push(Job {
                    system: *system,
                    workload,
                    setup,
                });
            }
        }
        let bar = bar::over(jobs.len());
        let threads = self.threads.unwrap_or_else(threads);
        let done = simulate_each(&jobs, threads, &|_| bar.inc(1));
        bar.finish_and_clear();
        let entries = done?.into_iter().map(|run| Entry {
            parameter: String::new(),
            value: String::new(),
            seed: setup.seed,
            run,
        });
        let entries: Vec<Entry> = entries.collect();
        self.output
            .put(&entries, &entries, || figures::of_comparison(&entries))
    }
}
