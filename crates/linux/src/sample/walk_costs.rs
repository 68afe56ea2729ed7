//! What address translation costs on this machine, measured at the first start after a boot. It
//! takes some seconds. The costs are kept from one manager to the next.
//!
//! Page tables of gigabytes are read without the gigabytes: the same memory, at most 512 MiB, is
//! mapped repeatedly (`measured_memory`). Loops over it measure page walks (`measuring_loops`).

mod measured_memory;
mod measuring_loops;

pub use measuring_loops::measure_walk_costs;

use crate::error::{LinuxError, Result};
use crate::machine_lease::own_files::{self, UnusableFileReason};
use crate::test_costs;
use hawkeye_policy::walk_rate::WalkCosts;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The file of costs, in the directory of state.
const FILE: &str = "walk-costs.json";
/// Upper limit for a file of costs, in bytes.
const LONGEST_FILE: u64 = 64 << 10;

/// Costs of page walks in use: typical ones until this machine's are known.
pub struct CurrentWalkCosts {
    costs: WalkCosts,
    measurement: Option<WalkCostMeasuringProcess>,
}

/// A process that measures and writes the file. It has memory of its own: this process forks
/// helpers, which would keep what is mapped here.
struct WalkCostMeasuringProcess {
    command: Command,
    running: Option<Child>,
    file: PathBuf,
}

impl CurrentWalkCosts {
    /// The costs that were measured since the machine started. If there are none, `measurer` is
    /// started when costs are first used, and typical ones are used until it ends, so that programs
    /// start at once. It has to call [`measure_at_lowest_priority`].
    pub fn load_or_measure_meanwhile(state_dir: &Path, measurer: Command) -> Result<Self> {
        let file = state_dir.join(FILE);
        if let Some(known) = load_known_costs(&file)? {
            return Ok(known.into());
        }
        tracing::info!("page walks will be measured; until then their typical costs are used");
        let measurement = WalkCostMeasuringProcess { command: measurer, running: None, file };
        Ok(Self { costs: WalkCosts::typical(), measurement: Some(measurement) })
    }

    /// The costs to use now.
    pub fn measured_or_typical(&mut self) -> &WalkCosts {
        if let Some(measurement) = &mut self.measurement {
            if measurement.start_or_has_ended() {
                let file = &measurement.file;
                if let Ok(Some(costs)) =
                    own_files::read_trusted_file(file, LONGEST_FILE, parse_costs)
                {
                    self.costs = costs;
                }
                self.measurement = None;
            }
        }
        &self.costs
    }
}

impl From<WalkCosts> for CurrentWalkCosts {
    fn from(costs: WalkCosts) -> Self {
        Self { costs, measurement: None }
    }
}

impl WalkCostMeasuringProcess {
    /// Starts it at the first call; returns whether it has ended, or cannot start.
    fn start_or_has_ended(&mut self) -> bool {
        let under_way = match &mut self.running {
            Some(child) => child.try_wait().map(|status| status.is_none()),
            None => self.command.spawn().map(|child| {
                self.running = Some(child);
                true
            }),
        };
        !under_way.unwrap_or_else(|error| {
            tracing::warn!("page walks cannot be measured: {error}; typical costs are used");
            false
        })
    }
}

impl Drop for WalkCostMeasuringProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            // This fails only if it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures the costs and keeps them for this manager and the next, in a process of its own. It
/// ends with its parent, it is the first to end where memory is short, and programs have most of a
/// CPU that they need.
pub fn measure_at_lowest_priority(state_dir: &Path) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).map_err(LinuxError::wrap_errno("following the parent's end"))?;
    let score = Path::new("/proc/self/oom_score_adj");
    std::fs::write(score, "1000").map_err(LinuxError::wrap_io_error("writing", score))?;
    // SAFETY: the call changes the scheduling of this thread alone. At idle priority it might never
    // end.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    measure_and_save_costs(&state_dir.join(FILE)).map(drop)
}

/// Costs that were measured since the machine started. If there are none, measures them, which
/// takes some seconds, and keeps them for the next manager.
pub fn load_or_measure_costs(state_dir: &Path) -> Result<WalkCosts> {
    let file = state_dir.join(FILE);
    if let Some(costs) = load_known_costs(&file)? {
        return Ok(costs);
    }
    tracing::warn!(
        "measuring the cost of page walks: this takes some seconds, once after each start of the machine"
    );
    measure_and_save_costs(&file)
}

/// The costs that a test gives, or those in the file. Processors do not change, and a restart of
/// the machine deletes the file.
fn load_known_costs(file: &Path) -> Result<Option<WalkCosts>> {
    if let Some(costs) = test_costs::configured_test_costs()?.and_then(|costs| costs.walks.clone())
    {
        return Ok(Some(costs));
    }
    let what = "the record of page-walk costs is";
    Ok(own_files::read_or_set_aside(what, file, LONGEST_FILE, parse_costs))
}

/// Where the costs cannot be measured now, typical costs are used, and the next manager measures.
fn measure_and_save_costs(file: &Path) -> Result<WalkCosts> {
    let costs = match measure_walk_costs() {
        Err(error @ LinuxError::NotMeasured(_)) => {
            tracing::warn!("{error}; typical costs are used until a manager starts again");
            return Ok(WalkCosts::typical());
        }
        measured => measured?,
    };
    // Costs that cannot be kept are measured again. A manager that waits has them; one that reads
    // the file goes on with typical ones.
    let kept = serde_json::to_vec(&costs).map_err(std::io::Error::other);
    if let Err(error) = kept.and_then(|text| own_files::replace_file_atomically(file, &text)) {
        tracing::debug!("{} cannot be written: {error}", file.display());
    }
    Ok(costs)
}

fn parse_costs(text: &[u8]) -> Result<WalkCosts, UnusableFileReason> {
    let costs: WalkCosts = serde_json::from_slice(text)?;
    let why = "a cost is not over 0, or the footprints are not in ascending order";
    if costs.is_sound() { Ok(costs) } else { Err(UnusableFileReason::Impossible(why.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn impossible_costs_are_refused() {
        let costs = serde_json::to_value(WalkCosts::typical()).expect("costs serialize");
        assert!(parse_costs(costs.to_string().as_bytes()).is_ok());
        for (place, value) in [
            ("/by_footprint/1/footprint_bytes", 1.into()),
            ("/by_distance/0/walk_ns", 1e300.into()),
            ("/streamed", Value::Null),
        ] {
            let mut costs = costs.clone();
            *costs.pointer_mut(place).expect("the JSON has this field") = value;
            assert!(parse_costs(costs.to_string().as_bytes()).is_err(), "{place}");
        }
        assert!(parse_costs(b"{").is_err());
        assert!(parse_costs("[".repeat(60_000).as_bytes()).is_err());
    }
}
