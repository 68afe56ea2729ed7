//! Machines, programs and managers for the tests.

use hawkeye_manager::{Event, Machine, Manager, Settings, Wake};
use hawkeye_policy::policies::{self, PolicySettings};
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, RegionAddr};
use hawkeye_sim::{Backing, MachineSpec, Part, ProcessSpec, SimError, SimMachine};
use std::time::Duration;

pub type Outcome = Result<(), SimError>;

pub const GIB: u64 = 1 << 30;
pub const MIB: u64 = 1 << 20;

pub fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

pub fn region(index: u32) -> RegionAddr {
    RegionAddr::containing(GIB + u64::from(index) * HUGE_PAGE_BYTES)
}

pub fn machine(total_bytes: u64) -> Result<SimMachine, SimError> {
    SimMachine::new(MachineSpec {
        total_bytes,
        ..MachineSpec::default()
    })
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

pub fn program(parts: &[Part]) -> ProcessSpec {
    ProcessSpec {
        parts: parts.to_vec(),
        ..ProcessSpec::default()
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

pub fn manage(
    machine: SimMachine,
    policy: &str,
    settings: Settings,
) -> Result<Manager<SimMachine>, SimError> {
    let told = PolicySettings {
        average: settings.average,
        linux: settings.linux(),
        ..PolicySettings::default()
    };
    let policy = policies::by_name(policy, &told)?;
    Ok(Manager::new(machine, policy, settings)?)
}

/// Steps until `end` or until all processes have ended; a loop that makes no headway fails.
pub fn run(manager: &mut Manager<SimMachine>, end: Duration) -> Wake {
    run_watching(manager, end, |_| {})
}

/// As [`run`], with a look at the manager after each step.
pub fn run_watching(
    manager: &mut Manager<SimMachine>,
    end: Duration,
    mut look: impl FnMut(&Manager<SimMachine>),
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
pub fn promoted(manager: &Manager<SimMachine>) -> Vec<(Duration, ProcessId, RegionAddr)> {
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

pub fn promoted_regions(manager: &Manager<SimMachine>) -> Vec<RegionAddr> {
    promoted(manager)
        .iter()
        .map(|(_, _, region)| *region)
        .collect()
}

/// When what was refused.
pub fn refused(manager: &Manager<SimMachine>) -> Vec<(Duration, RegionAddr)> {
    let entries = manager.journal().entries();
    entries
        .filter_map(|entry| match entry.event {
            Event::Refused { region, .. } => Some((entry.at, region)),
            _ => None,
        })
        .collect()
}

/// When what was recovered.
pub fn recovered(manager: &Manager<SimMachine>) -> Vec<(Duration, ProcessId, RegionAddr)> {
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

pub fn rss(manager: &Manager<SimMachine>, process: ProcessId) -> u64 {
    manager
        .machine()
        .process(process)
        .map_or(0, |p| p.rss_bytes())
}

pub fn huge(manager: &Manager<SimMachine>, process: ProcessId) -> u64 {
    manager
        .machine()
        .process(process)
        .map_or(0, |p| p.huge_bytes())
}
