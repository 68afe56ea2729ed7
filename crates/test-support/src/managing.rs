//! Scripted machines, programs and managers, in few words.

use crate::machine::{Backing, Part, ProgramSpec, ScriptedMachine};
use hawkeye_manager::{Event, Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, RegionAddr};
use std::time::Duration;

/// What a test returns.
pub type Outcome = Result<(), Failed>;
/// A setting or a name that is none.
pub type Failed = Box<dyn std::error::Error>;

/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Seconds.
pub fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The `index`th region of the programs.
pub fn region(index: u32) -> RegionAddr {
    RegionAddr::containing(GIB + u64::from(index) * HUGE_PAGE_BYTES)
}

/// A machine with so much memory, in bytes.
pub fn machine(total_bytes: u64) -> ScriptedMachine {
    ScriptedMachine::new(total_bytes)
}

/// Fully used regions under base pages.
pub fn base(first: u32, regions: u32, weight: f64) -> Part {
    Part {
        start: region(first),
        regions,
        weight,
        ..Part::default()
    }
}

/// Huge pages of which 100 of 512 base pages are used.
pub fn bloated(first: u32, regions: u32, weight: f64) -> Part {
    Part {
        used_pages: 100,
        backing: Backing::Huge,
        ..base(first, regions, weight)
    }
}

/// A program with these parts that is there from the start.
pub fn program(parts: &[Part]) -> ProgramSpec {
    ProgramSpec {
        parts: parts.to_vec(),
        ..ProgramSpec::default()
    }
}

/// A window of 0.1 s every 5 s.
pub fn often() -> Settings {
    Settings {
        period: s(5.0),
        window: s(0.1),
        ..Settings::default()
    }
}

/// A manager of this machine by this policy.
///
/// # Errors
/// No such policy, or a setting out of range.
pub fn manage(
    machine: ScriptedMachine,
    policy: &str,
    settings: Settings,
) -> Result<Manager<ScriptedMachine>, Failed> {
    let told = PolicySettings {
        average: settings.average,
        linux: settings.linux(),
        ..PolicySettings::default()
    };
    let policy = policies::by_name(policy, &told)?;
    Ok(Manager::new(machine, policy, settings)?)
}

/// Steps until `end` or until all processes have ended; a loop that makes no headway fails.
pub fn run(manager: &mut Manager<ScriptedMachine>, end: Duration) -> Wake {
    run_watching(manager, end, |_| {})
}

/// As [`run`], with a look at the manager after each step.
pub fn run_watching(
    manager: &mut Manager<ScriptedMachine>,
    end: Duration,
    mut look: impl FnMut(&Manager<ScriptedMachine>),
) -> Wake {
    let most = 1000.0 + 100.0 * end.as_secs_f64();
    let mut steps = 0.0;
    while manager.machine().now() < end {
        let wake = manager.step();
        look(manager);
        if wake == Wake::Stop {
            return wake;
        }
        steps += 1.0;
        assert!(
            steps < most,
            "{steps} steps by {:?}",
            manager.machine().now()
        );
    }
    Wake::Deadline
}

/// When what was promoted.
pub fn promoted(manager: &Manager<ScriptedMachine>) -> Vec<(Duration, ProcessId, RegionAddr)> {
    let entries = manager.journal().entries();
    entries
        .filter_map(|entry| match entry.event {
            Event::Promoted {
                process, region, ..
            } => Some((entry.at, process, region)),
            _ => None,
        })
        .collect()
}

/// What was promoted, in order.
pub fn promoted_regions(manager: &Manager<ScriptedMachine>) -> Vec<RegionAddr> {
    promoted(manager)
        .iter()
        .map(|(_, _, region)| *region)
        .collect()
}

/// When what was refused.
pub fn refused(manager: &Manager<ScriptedMachine>) -> Vec<(Duration, RegionAddr)> {
    let entries = manager.journal().entries();
    entries
        .filter_map(|entry| match entry.event {
            Event::Refused { region, .. } => Some((entry.at, region)),
            _ => None,
        })
        .collect()
}

/// When what was recovered.
pub fn recovered(manager: &Manager<ScriptedMachine>) -> Vec<(Duration, ProcessId, RegionAddr)> {
    let entries = manager.journal().entries();
    entries
        .filter_map(|entry| match entry.event {
            Event::Recovered {
                process, region, ..
            } => Some((entry.at, process, region)),
            _ => None,
        })
        .collect()
}

/// Resident memory of a process, in bytes.
pub fn rss(manager: &Manager<ScriptedMachine>, process: ProcessId) -> u64 {
    manager
        .machine()
        .process(process)
        .map_or(0, |p| p.rss_bytes())
}

/// Memory of a process under huge pages, in bytes.
pub fn huge(manager: &Manager<ScriptedMachine>, process: ProcessId) -> u64 {
    manager
        .machine()
        .process(process)
        .map_or(0, |p| p.huge_bytes())
}
