//! `hawkeye-lab calibrate`.

use super::sim::output_options::{print_json, write_text_file};
use anyhow::{Result, bail};
use clap::Args;
use hawkeye_bench::calibrate;
use std::path::PathBuf;

/// Measure this machine's costs, for `sim --costs`.
///
/// Takes about half a minute and up to 5 GiB of memory. Changes no setting of the machine. Only the
/// cost of reading page tables needs privileges.
#[derive(Args)]
#[command(after_help = "\
Example: hawkeye-lab calibrate -o here.toml
Then: hawkeye-lab sim compare --costs here.toml --workloads random")]
pub struct CalibrateCommand {
    /// Write the costs and the processor to FILE, as TOML.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CalibrateCommand {
    pub fn execute(self) -> Result<()> {
        require_optimised_build()?;
        let done = calibrate::calibrate_this_machine()?;
        if let Some(path) = &self.output {
            write_text_file(path, &done.to_commented_toml()?)?;
        }
        if self.json {
            return print_json(&done);
        }
        for figure in &done.figures {
            print_line!("{figure}");
        }
        for missing in &done.missing {
            print_line!("not measured: {}: {}", missing.what, missing.why);
        }
        print_line!("Data of the processor that cannot be measured is that of {}.", done.like);
        Ok(())
    }
}

/// Refuses to measure with an unoptimised build, which would measure itself.
pub(super) fn require_optimised_build() -> Result<()> {
    if cfg!(debug_assertions) {
        bail!(
            "this build is not optimised, so its figures would be wrong: build it with --release"
        );
    }
    Ok(())
}
