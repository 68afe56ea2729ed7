//! `hawkeye-lab predict`.

use super::calibrate::require_optimised_build;
use super::sim::output_options::print_json;
use anyhow::Result;
use clap::Args;
use hawkeye_bench::simulated::predicted_speed_ups;

/// Measure the gain from huge pages here, beside the predicted gain.
///
/// Five programs are measured, and the simulator predicts each one's gain.
///
/// The simulator is calibrated first, as by `hawkeye-lab calibrate`. Nothing is fitted to the
/// programs' speed. Takes about a minute and a half and 5 GiB of memory. Changes no setting of the
/// machine, and needs no privileges.
#[derive(Args)]
#[command(after_help = "Example: hawkeye-lab predict --json")]
pub struct PredictCommand {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl PredictCommand {
    pub fn execute(self) -> Result<()> {
        require_optimised_build()?;
        let report = predicted_speed_ups::measure_and_predict_speed_ups(&std::env::current_exe()?)?;
        if self.json {
            return print_json(&report);
        }
        print_line!("{report}");
        Ok(())
    }
}
