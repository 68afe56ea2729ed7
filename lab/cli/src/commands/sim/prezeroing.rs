//! `hawkeye-lab sim prezeroing`.

use super::output::print_json;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_bench::live::Report;
use hawkeye_bench::simulated::prezeroing::{RECORDED, compare};
use std::fs;
use std::path::PathBuf;

/// Zeroed free memory, simulated, beside a kernel that does it.
///
/// The kernel is built with HawkEye's patches (kernel/README.md) and was recorded in an emulated
/// machine, by kernel/test/programs/trace.c: what share of huge pages, base pages, files and copies
/// got zeroed memory. The same steps are done on the simulator's free lists.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab sim prezeroing
  hawkeye-lab sim prezeroing trace.txt --json")]
pub struct Prezeroing {
    /// Recordings, as kernel/test/programs/trace.c prints them; those that come with the program if
    /// none is named.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Prezeroing {
    pub fn execute(self) -> Result<()> {
        let reports = self.reports()?;
        if self.json {
            return print_json(&reports);
        }
        reports.iter().for_each(|report| println!("{report}"));
        Ok(())
    }

    fn reports(&self) -> Result<Vec<Report>> {
        if self.files.is_empty() {
            let known = RECORDED.iter();
            return known.map(|(_, text)| Ok(compare(text)?)).collect();
        }
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            compare(&text).with_context(|| format!("{} is no recording", path.display()))
        };
        self.files.iter().map(read).collect()
    }
}
