//! `hawkeye-lab calibrate`.

use super::sim::output::{print_json, write};
use anyhow::{Result, bail};
use clap::Args;
use hawkeye_bench::calibrate;
use std::path::PathBuf;

/// Measure what this machine's work costs, for --costs of run, compare and sweep.
///
/// Takes about half a minute and up to 5 GiB of memory; changes no setting of the machine. Needs no
/// privileges, except for what reading page tables costs.
#[derive(Args)]
#[command(after_help = "\
Example: hawkeye-lab calibrate -o here.toml
Then: hawkeye-lab sim compare --costs here.toml --workloads random")]
pub struct Calibrate {
    /// Write the machine into this file, as TOML.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Calibrate {
    pub fn execute(self) -> Result<()> {
        must_be_optimised()?;
        let done = calibrate::calibrate()?;
        if let Some(path) = &self.output {
            write(path, &done.to_file()?)?;
        }
        if self.json {
            return print_json(&done);
        }
        for figure in &done.figures {
            println!("{figure}");
        }
        for missing in &done.missing {
            println!("not measured: {}: {}", missing.what, missing.why);
        }
        println!(
            "What can't be measured of the processor is {}'s.",
            done.like
        );
        Ok(())
    }
}

/// Refuses to measure with an unoptimised build, which would measure itself.
pub(super) fn must_be_optimised() -> Result<()> {
    if cfg!(debug_assertions) {
        bail!("this build is not optimised, and would measure itself: build it with --release");
    }
    Ok(())
}
