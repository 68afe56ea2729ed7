//! `hawkeye-lab bench`: measurements.

use super::sim::machine::threads;
use super::sim::output::{print_json, write};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use hawkeye_bench::experiments::{self, Experiment, Outcome, Results, Side, Written};
use hawkeye_bench::live::{Host, Managing, Scale};
use hawkeye_bench::simulated::paper::{self, Table};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Measure on this machine and on the simulated one, beside published figures.
///
/// Every figure beside what it is compared with, in one run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab bench --list
  hawkeye-lab bench --quick hot-first bloat
  hawkeye-lab bench --sim")]
pub struct Bench {
    /// Experiments to do; all of them if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// List the experiments.
    #[arg(long)]
    list: bool,

    /// Measure on this machine only.
    #[arg(long)]
    live: bool,

    /// Simulate only; takes no root, and leaves the machine alone.
    #[arg(long, conflicts_with = "live")]
    sim: bool,

    /// Measure less and shorter.
    ///
    /// Shows the direction. Simulations are the same; unless they are named, those that take half a
    /// minute of CPU time are left out.
    #[arg(long)]
    quick: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Write each experiment into `results` in a folder, as Markdown, JSON and SVG, and an index of
    /// all that is there into results.md.
    ///
    /// What is simulated of an experiment that is also measured here is named NAME-simulated there.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Bench {
    pub fn execute(self) -> Result<ExitCode> {
        if self.list {
            println!("{:25} live sim", "");
            for experiment in experiments::all() {
                let has = |side: bool| if side { "x" } else { "" };
                let (live, simulated) = (experiment.live.is_some(), experiment.simulated.is_some());
                let (name, shows) = (experiment.name, experiment.shows());
                println!("{name:25} {:^4} {:^3} {shows}", has(live), has(simulated));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = self.chosen()?;
        if let Some(folder) = &self.out {
            let folder = folder.join(experiments::FIGURES);
            fs::create_dir_all(&folder)
                .with_context(|| format!("{} can't be made", folder.display()))?;
        }
        let mut host = None;
        if chosen.iter().any(|experiment| experiment.live.is_some()) {
            let taken = Host::take_over(std::env::current_exe()?)?;
            taken.warm_up(if self.quick { 6 << 30 } else { 18 << 30 })?;
            host = Some(taken);
        }
        let mut results = Results::here(self.quick);
        let mut failed = false;
        for side in chosen.into_iter().flat_map(Experiment::sides) {
            match self.outcome(&side, host.as_mut()) {
                Ok(outcome) => {
                    if !self.json {
                        println!("{outcome}");
                    }
                    if let Some(folder) = &self.out {
                        let section = results.section(&outcome);
                        write_outcome(&folder.join(experiments::FIGURES), &outcome, &section)?;
                        write_index(folder)?;
                    }
                    results.outcomes.push(outcome);
                }
                Err(error) => {
                    eprintln!("hawkeye: {} could not be done: {error}", side.title());
                    failed = true;
                }
            }
        }
        if self.json {
            print_json(&results)?;
        }
        Ok(ExitCode::from(u8::from(failed)))
    }

    /// Result of one side.
    fn outcome(&self, experiment: &Experiment, host: Option<&mut Host>) -> Result<Outcome> {
        let scale = match self.quick {
            true => Scale::Quick,
            false => Scale::Full,
        };
        let begun = Instant::now();
        let side = match (experiment.live, host, experiment.simulated) {
            (Some(live), Some(host), _) => Side::Live(live.run(host, scale)?),
            (_, _, Some(table)) => {
                let simulated = paper::simulate(table, threads());
                Side::Simulated(simulated.map_err(|message| anyhow!(message))?)
            }
            _ => bail!("it has no side"),
        };
        Ok(Outcome {
            name: experiment.name,
            side,
            took_s: begun.elapsed().as_secs_f64(),
        })
    }

    /// Whether `--quick` skips the simulation of this table, because it takes minutes.
    fn leaves_out(&self, table: &Table) -> bool {
        self.quick && self.names.is_empty() && table.is_long()
    }

    /// The experiments that are named, with the sides that are wanted.
    fn chosen(&self) -> Result<Vec<Experiment>> {
        let all = experiments::all();
        for name in &self.names {
            let Some(found) = all.iter().find(|known| known.name == name) else {
                bail!("there is no experiment {name:?}: `hawkeye-lab bench --list` shows them");
            };
            if self.live && found.live.is_none() {
                bail!("{name} is simulated only");
            }
            if self.sim && found.simulated.is_none() {
                bail!("{name} is not simulated");
            }
        }
        let named = |known: &Experiment| {
            self.names.is_empty() || self.names.iter().any(|name| name == known.name)
        };
        let wanted = all.into_iter().filter(named).map(|known| Experiment {
            live: known.live.filter(|_| !self.sim),
            simulated: known
                .simulated
                .filter(|table| !self.live && !self.leaves_out(table)),
            ..known
        });
        Ok(wanted
            .filter(|left| left.live.is_some() || left.simulated.is_some())
            .collect())
    }
}

fn write_outcome(folder: &Path, outcome: &Outcome, section: &str) -> Result<()> {
    let file = |kind| folder.join(format!("{}.{kind}", outcome.title()));
    write(&file("json"), &serde_json::to_string_pretty(outcome)?)?;
    write(&file("md"), section)?;
    if let Some(figure) = outcome.figure() {
        write(&file("svg"), &figure.to_svg()?)?;
    }
    Ok(())
}

/// Index of all sides of the experiments that were ever written into the folder.
fn write_index(folder: &Path) -> Result<()> {
    let mut written = Vec::new();
    for side in experiments::all().into_iter().flat_map(Experiment::sides) {
        let title = side.title();
        let read = |kind| {
            let file = format!("{title}.{kind}");
            fs::read_to_string(folder.join(experiments::FIGURES).join(file))
        };
        let Ok(text) = read("md") else {
            continue;
        };
        let mut managing = Managing::default();
        if let Ok(json) = read("json") {
            let json: serde_json::Value = serde_json::from_str(&json)
                .with_context(|| format!("{title}.json is not what was written"))?;
            if let Some(found) = json["live"].get("managing") {
                managing = Managing::deserialize(found)?;
            }
        }
        written.push(Written {
            title,
            shows: side.shows(),
            text,
            managing,
        });
    }
    write(&folder.join("results.md"), &experiments::index(&written))
}
