//! The cost model's figures, measured on this machine (`hawkeye-lab calibrate`).

mod costs;
mod processor;

use crate::error::BenchError;
use crate::machine_costs::{
    Found, Spread, caches, changing, copying, faults, sampling, shoot_down,
};
use hawkeye_linux::sample::walk_costs;
use hawkeye_policy::run_rate::WalkCosts;
use hawkeye_sim::machine_file::MachineFile;
use serde::Serialize;
use std::fmt::Write;
use std::sync::OnceLock;

pub use processor::Here;

/// One figure, as it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// The median of several turns, the least and the greatest.
    #[serde(flatten)]
    pub spread: Spread,
}

/// One figure that could not be had.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// What was to be measured.
    pub what: &'static str,
    /// Why it was not, and what stands instead of it.
    pub why: String,
}

/// A machine as it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibrated {
    /// What the simulator takes.
    pub machine: MachineFile,
    /// The preset that the processor is after, in all that can't be measured.
    pub like: &'static str,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What page walks cost, as live management measures it.
    pub walks: WalkCosts,
    /// What was not.
    pub missing: Vec<Missing>,
}

/// Collects figures on their way into costs.
#[derive(Default)]
struct Notes {
    figures: Vec<Figure>,
    missing: Vec<Missing>,
}

impl Notes {
    fn note(&mut self, what: impl Into<String>, unit: &'static str, spread: Spread) -> Spread {
        let what = what.into();
        self.figures.push(Figure { what, unit, spread });
        spread
    }

    /// The figure if there is one.
    fn found(&mut self, what: &'static str, found: Found) -> Option<Spread> {
        match found {
            Ok(spread) => Some(self.note(what, "ns", spread)),
            Err(error) => {
                let why = format!("{error}; the default stands");
                self.missing.push(Missing { what, why });
                None
            }
        }
    }

    fn never(&mut self, what: &'static str, why: &str) {
        let why = format!("{why}; the default stands");
        self.missing.push(Missing { what, why });
    }
}

/// Measures all of it: some tens of seconds, up to 5 GiB of memory. No setting of the machine is changed.
///
/// # Errors
/// Memory or huge pages that can't be had.
pub fn calibrate() -> Result<Calibrated, BenchError> {
    let mut notes = Notes::default();
    let core = caches::measure()?;
    let walks = walk_costs::measure()?;
    let here = processor::of(&core, &walks, &mut notes);
    let measured = costs::Measured {
        faults: faults::measure()?,
        copying: copying::measure()?,
        changing: changing::measure(),
        sampling: sampling::measure(),
        shoot_down: shoot_down::measure(),
    };
    let processor = here.processor;
    let costs = costs::of(measured, processor.memory.latency_ns, &mut notes);
    Ok(Calibrated {
        machine: MachineFile { costs, processor },
        like: here.like,
        figures: notes.figures,
        walks,
        missing: notes.missing,
    })
}

/// The processor alone. It stays the same: whoever asks again in this process gets what was measured.
///
/// # Errors
/// The same.
pub fn processor() -> Result<Here, BenchError> {
    static MEASURED: OnceLock<Here> = OnceLock::new();
    if let Some(here) = MEASURED.get() {
        return Ok(*here);
    }
    let core = caches::measure()?;
    let walks = walk_costs::measure()?;
    let here = processor::of(&core, &walks, &mut Notes::default());
    Ok(*MEASURED.get_or_init(|| here))
}

impl Calibrated {
    /// The file that the simulator takes, with what was measured in comments.
    ///
    /// # Errors
    /// None for finite figures.
    pub fn to_file(&self) -> Result<String, BenchError> {
        let mut text = "# What work costs on one machine, by `hawkeye-lab calibrate`; for `--costs` of `hawkeye-lab sim`.\n#\n\
            # Measured: the median of several turns (least - greatest).\n"
            .to_owned();
        for figure in &self.figures {
            // Writing to a string never fails.
            let _ = writeln!(text, "#   {figure}");
        }
        for missing in &self.missing {
            let _ = writeln!(text, "# Not measured: {}: {}", missing.what, missing.why);
        }
        let _ = writeln!(
            text,
            "# The processor's data that can't be measured is that of {}.\n",
            self.like
        );
        let machine = self.machine.to_toml();
        let machine = machine.map_err(|error| BenchError::Impossible(error.to_string()))?;
        text.push_str(&machine);
        Ok(text)
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spread {
            median,
            low,
            high,
            turns,
        } = self.spread;
        let decimals = if median >= 1000.0 { 0 } else { 2 };
        write!(
            f,
            "{:<52} {median:>12.decimals$} {:<5} ({low:.decimals$} - {high:.decimals$}, {turns} turns)",
            self.what, self.unit
        )
    }
}
