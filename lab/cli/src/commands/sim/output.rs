//! Where results go.

use super::entry::Entry;
use super::table;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_bench::plot::Figure;
use hawkeye_recording::{ResultRow, ResultWriter, SizeRow, SizeWriter};
use hawkeye_sim::engine::Outcome;
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// What to make of results beside a table.
#[derive(Args)]
#[command(next_help_heading = "Results")]
pub struct Output {
    /// Write JSON; without a name, print it.
    ///
    /// Instead of the table.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,

    /// Write the results as Parquet.
    ///
    /// The table "results" of docs/recordings.md.
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,

    /// Write pages by their size as Parquet.
    ///
    /// The table "sizes" of docs/recordings.md.
    #[arg(long, value_name = "FILE")]
    parquet_sizes: Option<PathBuf>,

    /// Draw a figure into an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Output {
    /// Prints, writes and draws. `json` is how the results look there.
    pub fn put(
        &self,
        entries: &[Entry],
        json: &impl Serialize,
        figure: impl FnOnce() -> Figure,
    ) -> Result<()> {
        if let Some(path) = &self.parquet {
            let file = File::create(path);
            let file = file.with_context(|| format!("{} can't be written", path.display()))?;
            write_results(entries, file).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.parquet_sizes {
            let file = File::create(path);
            let file = file.with_context(|| format!("{} can't be written", path.display()))?;
            write_sizes(entries, file).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.svg {
            write(path, &figure().to_svg()?)?;
        }
        match &self.json {
            Some(None) => println!("{}", serde_json::to_string_pretty(json)?),
            Some(Some(path)) => {
                write(path, &serde_json::to_string_pretty(json)?)?;
                table::print(entries);
            }
            None => table::print(entries),
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

fn write_results(entries: &[Entry], file: File) -> Result<()> {
    let mut writer = ResultWriter::new(BufWriter::new(file))?;
    for entry in entries {
        let run = &entry.run;
        for program in run.figures.all_programs() {
            writer.write(&ResultRow {
                workload: &run.workload,
                system: &run.system,
                parameter: &entry.parameter,
                value: &entry.value,
                seed: entry.seed,
                program: &program.name,
                outcome: match program.outcome {
                    Outcome::Done => "done",
                    Outcome::Killed => "killed",
                    Outcome::Unfinished => "unfinished",
                },
                wall_s: program.wall_s,
                accesses: program.accesses,
                overhead_percent: program.overhead_percent,
                faults: program.faults,
                system_s: program.system_s,
                rss_peak_bytes: program.rss_peak_bytes,
                huge_peak_bytes: program.huge_peak_bytes,
                promoted: run.promoted,
                split: run.split,
                recovered_bytes: run.recovered_bytes,
                manager_cpu_s: run.figures.manager_cpu_s,
                zeroing_cpu_s: run.figures.zeroing_cpu_s,
            })?;
        }
    }
    writer.finish()?;
    Ok(())
}

fn write_sizes(entries: &[Entry], file: File) -> Result<()> {
    let mut writer = SizeWriter::new(BufWriter::new(file))?;
    for entry in entries {
        for program in entry.run.figures.all_programs() {
            for size in &program.sizes {
                writer.write(&SizeRow {
                    workload: &entry.run.workload,
                    system: &entry.run.system,
                    parameter: &entry.parameter,
                    value: &entry.value,
                    seed: entry.seed,
                    program: &program.name,
                    page_bytes: size.page_bytes,
                    faults: size.faults,
                    fallbacks: size.fallbacks,
                    mapped_end_bytes: size.mapped_end_bytes,
                    mapped_mean_bytes: size.mapped_mean_bytes,
                })?;
            }
        }
    }
    writer.finish()?;
    Ok(())
}
