//! `hawkeye-lab verify`.

use super::calibrate::require_optimised_build;
use super::sim::output_options::print_json;
use crate::json_file::JsonFile;
use anyhow::Result;
use clap::Args;
use hawkeye_bench::live::{BenchHost, estimate_verification};
use std::path::PathBuf;

/// Compare estimated overhead with hardware counters.
///
/// Runs the nine programs of `bench walk-rate` under base pages. Counts each one's cycles in page
/// walks for some seconds, then estimates its overhead without counters. Needs root, hardware
/// counters and 5 GiB of free memory. Takes about ten minutes.
#[derive(Args)]
#[command(after_help = "\
Example: hawkeye-lab verify -o verify.json
The file names the processor and the kernel, not the machine or its users.")]
pub struct VerifyCommand {
    /// Write the results to FILE, as JSON to send to HawkEye's developers.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl VerifyCommand {
    pub fn execute(self) -> Result<()> {
        let output = self.output.as_deref().map(JsonFile::open).transpose()?;
        // Before the machine is taken over: it takes no time and fails on most virtual machines.
        let counters = estimate_verification::find_walk_counters()?;
        require_optimised_build()?;
        let host = BenchHost::take_over_machine(std::env::current_exe()?)?;
        let results = estimate_verification::count_and_estimate_nine_programs(&host, &counters)?;
        // Before the file, which may be on a full disk.
        match self.json {
            true => print_json(&results)?,
            false => print_line!("{results}"),
        }
        if let Some(output) = output {
            output.write(&results)?;
        }
        Ok(())
    }
}
