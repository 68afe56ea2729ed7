//! `hawkeye-lab bench`: measurements.

use super::sim::machine_options::count_available_cores;
use super::sim::output_options::{print_json, write_text_file};
use crate::output::print_to_stderr;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use hawkeye_bench::experiments::{
    self, BenchResults, ExperimentEntry, ExperimentName, ExperimentOutcome, LiveOrSimulatedReport,
    ResultFile,
};
use hawkeye_bench::live::{BenchHost, ManagerCpuUse, Scale, SessionOptions};
use hawkeye_bench::simulated::paper;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Run experiments on this machine and on the simulated one.
///
/// Each figure is printed beside the one that it is compared with, from the same run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab bench --list
  hawkeye-lab bench --quick no-gain bloat
  hawkeye-lab bench --live headline --programs redis --rounds 1 --out docs
  hawkeye-lab bench --sim")]
pub struct BenchCommand {
    /// Names or aliases of experiments [default: all].
    ///
    /// An alias is the number of the paper's table or figure, such as table-7.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// List names, aliases, sides and what each experiment shows.
    #[arg(long)]
    list: bool,

    /// Run live sides only; needs root.
    #[arg(long)]
    live: bool,

    /// Run simulated sides only; needs no root, and changes nothing on this machine.
    #[arg(long, conflicts_with = "live")]
    sim: bool,

    /// Run shorter and smaller live experiments.
    ///
    /// Shows only the direction of an effect. Simulations stay the same. Those that take half a
    /// minute of CPU time or more run only if they are named.
    #[arg(long)]
    quick: bool,

    /// Measure only these programs, in experiments that run several.
    ///
    /// Names are those of the results in lower case, with hyphens, such as redis,jvm-hash-map.
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',', conflicts_with = "sim")]
    programs: Vec<String>,

    /// Measure N rounds in experiments that keep them in FOLDER.
    ///
    /// These are the experiments called headline, guard-limits and forecast. A round that is
    /// finished is written to FOLDER/results/NAME-rounds.jsonl at once, and stays when the run is
    /// stopped. Later runs of the same build add rounds of the same programs; those of another
    /// build replace them. With 0, nothing is measured, and the results of the kept rounds are
    /// written. Those of headline are of all kept rounds, and name other builds. Those of the
    /// others are of rounds of this build and machine, and they fail without any.
    #[arg(long, value_name = "N", conflicts_with = "sim")]
    rounds: Option<usize>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Write results to FOLDER/results, and their index to FOLDER/results.md.
    ///
    /// Each experiment gets a Markdown, a JSON and an SVG file. The simulated side of an experiment
    /// that has a live side, too, is named NAME-simulated.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl BenchCommand {
    pub fn execute(self) -> Result<ExitCode> {
        if self.list {
            print_line!("{:29} {:22} live sim shows", "experiment", "alias");
            for experiment in experiments::all_experiments() {
                let has = |side: bool| if side { "x" } else { "" };
                let live = has(experiment.live.is_some());
                let simulated = has(experiment.simulated.is_some());
                let (ExperimentName { name, alias }, shows) =
                    (experiment.name, experiment.summary_line());
                print_line!("{name:29} {alias:22} {live:^4} {simulated:^3} {shows}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = self.chosen_experiments()?;
        let folder = self.out.as_ref().map(|folder| folder.join(experiments::RESULTS_FOLDER));
        if let Some(folder) = &folder {
            fs::create_dir_all(folder)
                .with_context(|| format!("creating the folder {}", folder.display()))?;
        }
        let mut host = None;
        if chosen.iter().any(|experiment| experiment.live.is_some()) {
            let mut taken = BenchHost::take_over_machine(std::env::current_exe()?)?;
            taken.select_programs(&self.programs)?;
            taken.set_session_options(SessionOptions { rounds: self.rounds, folder });
            taken.touch_memory_once(if self.quick { 6 << 30 } else { 18 << 30 })?;
            host = Some(taken);
        }
        let mut results = BenchResults::empty_for_this_machine(self.quick);
        let mut failed = false;
        for side in chosen.into_iter().flat_map(ExperimentEntry::split_live_and_simulated) {
            match self.run_live_or_simulated(&side, host.as_mut()) {
                Ok(outcome) => {
                    if !self.json {
                        print_line!("{outcome}");
                    }
                    if let Some(folder) = &self.out {
                        let section = results.outcome_to_markdown(&outcome);
                        write_outcome_files(
                            &folder.join(experiments::RESULTS_FOLDER),
                            &outcome,
                            &section,
                        )?;
                        write_results_index(folder)?;
                    }
                    results.outcomes.push(outcome);
                }
                Err(error) => {
                    print_to_stderr(&format!(
                        "hawkeye-lab: experiment {} failed: {error}\n",
                        side.first_result_title()
                    ));
                    failed = true;
                }
            }
        }
        if self.json {
            print_json(&results)?;
        }
        Ok(ExitCode::from(u8::from(failed)))
    }

    fn run_live_or_simulated(
        &self,
        experiment: &ExperimentEntry,
        host: Option<&mut BenchHost>,
    ) -> Result<ExperimentOutcome> {
        let scale = match self.quick {
            true => Scale::Quick,
            false => Scale::Full,
        };
        let begun = Instant::now();
        let side = match (experiment.live, host, experiment.simulated) {
            (Some(live), Some(host), _) => LiveOrSimulatedReport::Live(live.run(host, scale)?),
            (_, _, Some(table)) => {
                let simulated = paper::simulate_table(table, count_available_cores());
                LiveOrSimulatedReport::Simulated(simulated.map_err(|message| anyhow!(message))?)
            }
            _ => bail!("this experiment has no side that was requested"),
        };
        Ok(ExperimentOutcome { name: experiment.name, side, took_s: begun.elapsed().as_secs_f64() })
    }

    fn chosen_experiments(&self) -> Result<Vec<ExperimentEntry>> {
        let all = experiments::all_experiments();
        for name in &self.names {
            let Some(found) = all.iter().find(|known| known.name.matches_name_or_alias(name))
            else {
                bail!("no experiment {name:?}: `hawkeye-lab bench --list` shows all experiments");
            };
            if self.live && found.live.is_none() {
                bail!("{name} has no live side: run it without --live");
            }
            if self.sim && found.simulated.is_none() {
                bail!("{name} has no simulated side: run it without --sim");
            }
        }
        let named = |known: &ExperimentEntry| {
            self.names.is_empty()
                || self.names.iter().any(|name| known.name.matches_name_or_alias(name))
        };
        let skips_long = self.quick && self.names.is_empty();
        let wanted = all.into_iter().filter(named).map(|known| ExperimentEntry {
            live: known.live.filter(|_| !self.sim),
            simulated: known.simulated.filter(|table| !(self.live || skips_long && table.long)),
            ..known
        });
        Ok(wanted.filter(|left| left.live.is_some() || left.simulated.is_some()).collect())
    }
}

fn write_outcome_files(folder: &Path, outcome: &ExperimentOutcome, section: &str) -> Result<()> {
    let file = |kind| folder.join(format!("{}.{kind}", outcome.title()));
    write_text_file(&file("json"), &serde_json::to_string_pretty(outcome)?)?;
    write_text_file(&file("md"), section)?;
    if let Some(figure) = outcome.to_plot() {
        write_text_file(&file("svg"), &figure.to_svg()?)?;
    }
    Ok(())
}

fn write_results_index(folder: &Path) -> Result<()> {
    let mut written = Vec::new();
    for side in experiments::all_experiments()
        .into_iter()
        .flat_map(ExperimentEntry::split_live_and_simulated)
    {
        let title = side.first_result_title();
        let read = |kind| {
            let file = format!("{title}.{kind}");
            fs::read_to_string(folder.join(experiments::RESULTS_FOLDER).join(file))
        };
        let Ok(text) = read("md") else {
            continue;
        };
        let mut managing = ManagerCpuUse::default();
        if let Ok(json) = read("json") {
            let json: serde_json::Value = serde_json::from_str(&json)
                .with_context(|| format!("{title}.json is not a result of `bench --out`"))?;
            if let Some(found) = json["live"].get("managing") {
                managing = ManagerCpuUse::deserialize(found)?;
            }
        }
        written.push(ResultFile { title, shows: side.summary_line(), text, managing });
    }
    write_text_file(&folder.join("results.md"), &experiments::results_index_markdown(&written))
}
