//! `hawkeye sim itanium`.

use super::machine::threads;
use anyhow::{Context, Result, bail};
use clap::Args;
use hawkeye_bench::simulated::itanium;
use std::path::PathBuf;

/// Wienand's thesis on Itanium Linux with many page sizes, simulated, beside what was measured.
#[derive(Args)]
pub struct Itanium {
    /// Tables; all of them if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Draw a figure into an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Itanium {
    pub fn execute(self) -> Result<()> {
        let known = || itanium::TABLES.map(|table| table.name).join(", ");
        for name in &self.names {
            if !itanium::TABLES.iter().any(|table| table.name == name) {
                bail!("there is no table {name:?}; there are {}", known());
            }
        }
        let mut reports = Vec::new();
        for table in &itanium::TABLES {
            if !self.names.is_empty() && !self.names.iter().any(|name| name == table.name) {
                continue;
            }
            let report = itanium::simulate(table, threads())?;
            if !self.json {
                println!("{report}");
            }
            reports.push(report);
        }
        if let Some(path) = &self.svg {
            let svg = itanium::figure(&reports).to_svg()?;
            std::fs::write(path, svg)
                .with_context(|| format!("{} can't be written", path.display()))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
        }
        Ok(())
    }
}
