//! Output of results.

use super::run_result::RunResult;
use super::table;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_bench::plot::PlotFigure;
use hawkeye_bench::result_tables::{
    PageSizeResultRow, ProgramResultRow, TableRow, write_parquet_table,
};
use hawkeye_sim::engine::ProgramOutcome;
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// What to make of results beside a table.
#[derive(Args)]
#[command(next_help_heading = "Results")]
pub struct OutputOptions {
    /// Write JSON to FILE; without FILE, print it.
    ///
    /// Printed JSON replaces the table.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,

    /// Write results to FILE, as Parquet.
    ///
    /// The table "results" of docs/use/recordings.md.
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,

    /// Write pages by size to FILE, as Parquet.
    ///
    /// The table "sizes" of docs/use/recordings.md.
    #[arg(long, value_name = "FILE")]
    parquet_sizes: Option<PathBuf>,

    /// Draw a figure to FILE, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl OutputOptions {
    /// Prints, writes and draws results. `json` is their form in JSON.
    pub fn output_results(
        &self,
        entries: &[RunResult],
        json: &impl Serialize,
        figure: impl FnOnce() -> PlotFigure,
    ) -> Result<()> {
        if let Some(path) = &self.parquet {
            write_parquet(path, entries.iter().flat_map(parquet_result_rows))?;
        }
        if let Some(path) = &self.parquet_sizes {
            write_parquet(path, entries.iter().flat_map(parquet_page_size_rows))?;
        }
        if let Some(path) = &self.svg {
            write_text_file(path, &figure().to_svg()?)?;
        }
        match &self.json {
            Some(None) => print_json(json),
            Some(Some(path)) => {
                write_text_file(path, &serde_json::to_string_pretty(json)?)?;
                table::print_result_tables(entries)
            }
            None => table::print_result_tables(entries),
        }
    }
}

pub fn print_json(what: &impl Serialize) -> Result<()> {
    print_line!("{}", serde_json::to_string_pretty(what)?);
    Ok(())
}

pub fn write_text_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn write_parquet<R: TableRow>(path: &Path, rows: impl Iterator<Item = R>) -> Result<()> {
    let file = File::create(path);
    let file = file.with_context(|| format!("writing {}", path.display()))?;
    let written = write_parquet_table(rows, BufWriter::new(file));
    written.map(drop).with_context(|| path.display().to_string())
}

fn parquet_result_rows(entry: &RunResult) -> impl Iterator<Item = ProgramResultRow<'_>> {
    let run = &entry.run;
    run.figures.all_programs().map(move |program| ProgramResultRow {
        workload: &run.workload,
        system: &run.system,
        parameter: &entry.parameter,
        value: &entry.value,
        seed: entry.seed,
        program: &program.name,
        outcome: match program.outcome {
            ProgramOutcome::Done => "done",
            ProgramOutcome::Killed => "killed",
            ProgramOutcome::Unfinished => "unfinished",
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
    })
}

fn parquet_page_size_rows(entry: &RunResult) -> impl Iterator<Item = PageSizeResultRow<'_>> {
    let run = &entry.run;
    run.figures.all_programs().flat_map(move |program| {
        program.sizes.iter().map(move |size| PageSizeResultRow {
            workload: &run.workload,
            system: &run.system,
            parameter: &entry.parameter,
            value: &entry.value,
            seed: entry.seed,
            program: &program.name,
            page_bytes: size.page_bytes,
            faults: size.faults,
            fallbacks: size.fallbacks,
            mapped_end_bytes: size.mapped_end_bytes,
            mapped_mean_bytes: size.mapped_mean_bytes,
        })
    })
}
