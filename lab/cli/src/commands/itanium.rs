//! `hawkeye-lab itanium`.

use super::sim::machine_options::count_available_cores;
use super::sim::output_options::write_text_file;
use super::sim::published_tables;
use anyhow::Result;
use clap::Args;
use hawkeye_bench::simulated::itanium;
use std::path::PathBuf;

/// Simulate Itanium Linux with many page sizes, beside a thesis.
///
/// The thesis is Wienand's; each simulated value is printed beside the measured one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab itanium
  hawkeye-lab itanium linear sparse")]
pub struct ItaniumCommand {
    /// Names of tables [default: all].
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Draw a figure to FILE, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl ItaniumCommand {
    pub fn execute(self) -> Result<()> {
        let reports = published_tables::simulate_named_tables(
            &itanium::TABLES,
            |table| table.name.into(),
            &self.names,
            self.json,
            |table| Ok(itanium::simulate_table(table, count_available_cores())?),
        )?;
        if let Some(path) = &self.svg {
            write_text_file(path, &itanium::thesis_plot_figure(&reports).to_svg()?)?;
        }
        Ok(())
    }
}
