//! `hawkeye sim paper`.

use super::machine::threads;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use hawkeye_bench::simulated::paper;

/// The HawkEye and Ingens papers' tables and figures, simulated, beside the published ones.
#[derive(Args)]
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
        let known = || paper::TABLES.map(|table| table.name).join(", ");
        for name in &self.names {
            if !paper::TABLES.iter().any(|table| table.name == name) {
                bail!("there is no table {name:?}; there are {}", known());
            }
        }
        let mut reports = Vec::new();
        for table in &paper::TABLES {
            if !self.names.is_empty() && !self.names.iter().any(|name| name == table.name) {
                continue;
            }
            let report = paper::simulate(table, threads()).map_err(|message| anyhow!(message))?;
            if !self.json {
                println!("{report}");
            }
            reports.push(report);
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
        }
        Ok(())
    }
}
