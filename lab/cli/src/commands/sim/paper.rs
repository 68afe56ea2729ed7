//! `hawkeye-lab sim paper`.

use super::machine_options::count_available_cores;
use super::published_tables;
use anyhow::{Result, anyhow};
use clap::Args;
use hawkeye_bench::simulated::paper;

/// Simulate the HawkEye and Ingens papers' tables and figures.
///
/// Each simulated value is printed beside the published one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab sim paper
  hawkeye-lab sim paper first-touch-costs --json")]
pub struct PaperCommand {
    /// Names, or aliases such as table-1 [default: all].
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl PaperCommand {
    pub fn execute(self) -> Result<()> {
        published_tables::simulate_named_tables(
            paper::TABLES,
            |table| table.name,
            &self.names,
            self.json,
            |table| {
                paper::simulate_table(table, count_available_cores())
                    .map_err(|message| anyhow!(message))
            },
        )?;
        Ok(())
    }
}
