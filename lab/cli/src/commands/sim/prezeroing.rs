//! `hawkeye-lab sim prezeroing`.

use super::output_options::print_json;
use anyhow::{Context, Result};
use clap::Args;
use hawkeye_bench::live::LiveReport;
use hawkeye_bench::simulated::prezeroing_model_vs_kernel::{RECORDED, compare_with_recording};
use std::fs;
use std::path::PathBuf;

/// Simulate zeroed free memory, beside a kernel that zeroes it.
///
/// The kernel is built with HawkEye's patches (kernel/README.md). kernel/test/programs/trace.c
/// recorded it in an emulated machine: the shares of huge pages, base pages, files and copies that
/// got zeroed memory. The simulator repeats the same steps on its free lists.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye-lab sim prezeroing
  hawkeye-lab sim prezeroing trace.txt --json")]
pub struct PrezeroingCommand {
    /// Recordings of kernel/test/programs/trace.c [default: built-in].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl PrezeroingCommand {
    pub fn execute(self) -> Result<()> {
        let reports = self.simulate_reports()?;
        if self.json {
            return print_json(&reports);
        }
        for report in &reports {
            print_line!("{report}");
        }
        Ok(())
    }

    fn simulate_reports(&self) -> Result<Vec<LiveReport>> {
        if self.files.is_empty() {
            let known = RECORDED.iter();
            return known.map(|(_, text)| Ok(compare_with_recording(text)?)).collect();
        }
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            compare_with_recording(&text)
                .with_context(|| format!("{} is not a valid recording", path.display()))
        };
        self.files.iter().map(read).collect()
    }
}
