//! Measures the cost model's figures on this machine (`hawkeye-lab calibrate`).

mod calibrated_processor;
mod kernel_costs;

use crate::error::{BenchError, BenchResult};
use crate::machine_costs::{CostResult, MedianAndRange, core_measurements};
use hawkeye_linux::sample::walk_costs;
use hawkeye_policy::walk_rate::WalkCosts;
use hawkeye_sim::machine_file::MachineFile;
use serde::Serialize;
use std::fmt::Write;
use std::sync::OnceLock;

pub(crate) use calibrated_processor::CalibratedProcessor;

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredCost {
    what: String,
    unit: &'static str,
    /// The median, the minimum and the maximum of several turns.
    #[serde(flatten)]
    spread: MedianAndRange,
}

/// A figure that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct UnmeasuredCost {
    /// What should have been measured.
    pub what: &'static str,
    /// Why it was not measured, and what value is used instead.
    pub why: String,
}

/// A machine and its measured figures.
#[derive(Clone, Debug, Serialize)]
pub struct CalibratedMachine {
    /// The machine file for the simulator.
    machine: MachineFile,
    /// The preset that supplies everything about the processor that can't be measured.
    pub like: &'static str,
    /// The measured figures.
    pub figures: Vec<MeasuredCost>,
    /// The cost of page walks, as live management measures it.
    walks: WalkCosts,
    /// What could not be measured.
    pub missing: Vec<UnmeasuredCost>,
}

#[derive(Default)]
struct CostRecorder {
    figures: Vec<MeasuredCost>,
    missing: Vec<UnmeasuredCost>,
}

impl CostRecorder {
    /// Returns the median.
    fn add_measured_cost(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        spread: MedianAndRange,
    ) -> f64 {
        let what = what.into();
        self.figures.push(MeasuredCost { what, unit, spread });
        spread.median
    }

    fn add_cost_in_ns(&mut self, what: impl Into<String>, spread: MedianAndRange) -> f64 {
        self.add_measured_cost(what, "ns", spread)
    }

    fn add_cost_if_measured(&mut self, what: &'static str, found: CostResult) -> Option<f64> {
        match found {
            Ok(spread) => Some(self.add_cost_in_ns(what, spread)),
            Err(error) => {
                self.add_unmeasured_cost(what, &error.to_string());
                None
            }
        }
    }

    fn add_unmeasured_cost(&mut self, what: &'static str, why: &str) {
        let why = format!("{why}; the default is used");
        self.missing.push(UnmeasuredCost { what, why });
    }
}

/// Measures everything: it takes some tens of seconds and up to 5 GiB of memory. It changes no
/// setting of the machine.
pub fn calibrate_this_machine() -> BenchResult<CalibratedMachine> {
    let mut notes = CostRecorder::default();
    let (here, walks) = measure_processor(&mut notes)?;
    let processor = here.processor;
    let costs = kernel_costs::measure_kernel_costs(processor.memory.latency_ns, &mut notes)?;
    Ok(CalibratedMachine {
        machine: MachineFile { costs, processor },
        like: here.like,
        figures: notes.figures,
        walks,
        missing: notes.missing,
    })
}

/// Measures the processor alone. The result is kept: later calls in this process return the same
/// one.
pub(crate) fn measure_processor_once() -> BenchResult<CalibratedProcessor> {
    static MEASURED: OnceLock<CalibratedProcessor> = OnceLock::new();
    if let Some(here) = MEASURED.get() {
        return Ok(*here);
    }
    let (here, _) = measure_processor(&mut CostRecorder::default())?;
    Ok(*MEASURED.get_or_init(|| here))
}

fn measure_processor(notes: &mut CostRecorder) -> BenchResult<(CalibratedProcessor, WalkCosts)> {
    let core = core_measurements::measure_core()?;
    let walks = walk_costs::measure_walk_costs()?;
    Ok((calibrated_processor::processor_from_measurements(&core, &walks, notes), walks))
}

impl CalibratedMachine {
    /// The file for the simulator, with the measured figures as comments.
    pub fn to_commented_toml(&self) -> BenchResult<String> {
        let mut text = "# Costs of work on one machine, measured by `hawkeye-lab calibrate`, for `hawkeye-lab sim --costs`.\n#\n\
            # Measured: the median of several turns (minimum - maximum).\n"
            .to_owned();
        for figure in &self.figures {
            // Writing to a string never fails.
            let _ = writeln!(text, "#   {figure}");
        }
        for UnmeasuredCost { what, why } in &self.missing {
            let _ = writeln!(text, "# Not measured: {what}: {why}");
        }
        let _ = writeln!(
            text,
            "# Data of the processor that cannot be measured is that of {}.\n",
            self.like
        );
        let machine = self.machine.to_toml();
        let machine = machine.map_err(|error| BenchError::Impossible(error.to_string()))?;
        text.push_str(&machine);
        Ok(text)
    }
}

impl std::fmt::Display for MeasuredCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MedianAndRange { median, low, high, turns } = self.spread;
        let decimals = if median >= 1000.0 { 0 } else { 2 };
        write!(
            f,
            "{:<52} {median:>12.decimals$} {:<5} ({low:.decimals$} - {high:.decimals$}, {turns} turns)",
            self.what, self.unit
        )
    }
}
