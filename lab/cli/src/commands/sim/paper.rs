//! `hawkeye-lab sim paper`.

use super::machine::threads;
use super::published;
use anyhow::{Result, anyhow};
use clap::Args;
use hawkeye_bench::simulated::paper;

/// The HawkEye and Ingens papers' tables and figures, simulated, beside the published ones.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab sim paper
  hawkeye-lab sim paper table-1 --json")]
pub struct Paper {
    /// Tables and figures; all of them if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Paper {
    pub fn execute(self) -> Result<()> {
        published::simulate(
            paper::TABLES,
            |table| table.name,
            &self.names,
            self.json,
            |table| paper::simulate(table, threads()).map_err(|message| anyhow!(message)),
        )?;
        Ok(())
    }
}
