//! `hawkeye bench`: measurements.

use anyhow::{Result, bail};
use clap::Args;
use hawkeye_bench::live::{EXPERIMENTS, Experiment, Host, Scale};
use std::process::ExitCode;

/// Measure on this machine: every figure beside what it is compared with, in one run.
///
/// Example: hawkeye bench hot-first bloat
#[derive(Args)]
pub struct Bench {
    /// Experiments to run; all of them if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// List the experiments.
    #[arg(long)]
    list: bool,

    /// Smaller and shorter: shows the direction.
    #[arg(long)]
    quick: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Bench {
    /// Runs them.
    pub fn execute(self) -> Result<ExitCode> {
        if self.list {
            for experiment in &EXPERIMENTS {
                println!("{:15} {}", experiment.name, experiment.shows);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = self.chosen()?;
        let scale = if self.quick {
            Scale::Quick
        } else {
            Scale::Full
        };
        let mut host = Host::take_over(std::env::current_exe()?)?;
        host.warm_up(if self.quick { 6 << 30 } else { 18 << 30 })?;
        let mut reports = Vec::new();
        let mut failed = false;
        for experiment in chosen {
            match (experiment.run)(&mut host, scale) {
                Ok(report) => {
                    if !self.json {
                        println!("{report}");
                    }
                    reports.push(report);
                }
                Err(error) => {
                    eprintln!("hawkeye: {} could not be done: {error}", experiment.name);
                    failed = true;
                }
            }
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
        }
        Ok(ExitCode::from(u8::from(failed)))
    }

    fn chosen(&self) -> Result<Vec<&'static Experiment>> {
        if self.names.is_empty() {
            return Ok(EXPERIMENTS.iter().collect());
        }
        let mut chosen = Vec::new();
        for name in &self.names {
            match EXPERIMENTS
                .iter()
                .find(|experiment| experiment.name == name)
            {
                Some(experiment) => chosen.push(experiment),
                None => bail!("there is no experiment {name:?}: `hawkeye bench --list` shows them"),
            }
        }
        Ok(chosen)
    }
}
