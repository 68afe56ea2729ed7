//! `hawkeye-lab predict`.

use anyhow::{Result, bail};
use clap::Args;
use hawkeye_bench::simulated::this_machine;

/// Measure what huge pages bring here, beside what is predicted.
///
/// To five programs, beside what the simulator predicts of it.
///
/// The simulator is calibrated first, as by `hawkeye-lab calibrate`; nothing is fitted to the programs' speed. Takes about a minute and a
/// half and 5 GiB of memory; changes no setting of the machine, and needs no privileges.
#[derive(Args)]
#[command(after_help = "Example: hawkeye-lab predict --json")]
pub struct Predict {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Predict {
    /// Does it.
    pub fn execute(self) -> Result<()> {
        if cfg!(debug_assertions) {
            bail!("this build is not optimised, and would measure itself: build it with --release");
        }
        let report = this_machine::predict(&std::env::current_exe()?)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!("{report}");
        }
        Ok(())
    }
}
