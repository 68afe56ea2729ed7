//! Shorthand for this crate's unit tests.

use crate::event::{Event, PromotionEffect};
use crate::machine_shape::MachineShape;
use crate::observation::{
    CoverageSource, Observation, OutsideRegions, ProcessId, ProcessSample, RegionSample,
};
use crate::page::{HUGE_PAGE_BYTES, PageOrder, RegionAddr};
use crate::reason::Reason;
use crate::terms::Terms;
use std::time::Duration;

/// The `index`th region of an address space.
pub fn region(index: u64) -> RegionAddr {
    RegionAddr::containing(index * HUGE_PAGE_BYTES)
}

/// A fully present region of base pages of which `accessed` were.
pub fn sample(index: u64, accessed: u16) -> RegionSample {
    RegionSample {
        accessed,
        runs: u16::from(accessed > 0),
        written: 512,
        ..RegionSample::untouched(region(index))
    }
}

/// A huge region, accessed or not.
pub fn huge(index: u64, accessed: bool) -> RegionSample {
    RegionSample {
        order: PageOrder::HUGE,
        ..sample(index, if accessed { 512 } else { 0 })
    }
}

/// A process by its pid.
pub fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: 1,
    }
}

/// One round of samples.
pub fn observation(processes: &[(u32, Vec<RegionSample>)]) -> Observation {
    Observation {
        at: Duration::ZERO,
        processes: processes
            .iter()
            .map(|(pid, regions)| ProcessSample {
                process: process(*pid),
                source: CoverageSource::AccessBits,
                regions: regions.clone(),
                first_touches: 0,
                overhead: None,
                walks_seen: 1.0,
                cpu_cores: 1.0,
                age: Duration::MAX,
                outside: OutsideRegions::default(),
                faults: None,
                terms: Terms::default(),
            })
            .collect(),
        machine: MachineShape::default(),
        unread: Vec::new(),
        fmfi: None,
    }
}

/// Seconds since the clock began.
pub fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A region that became huge.
pub fn promoted(process: ProcessId, region: RegionAddr) -> Event {
    Event::Promoted {
        process,
        region,
        order: PageOrder::HUGE,
        reason: Reason::new("a test"),
        took: Duration::ZERO,
        effect: PromotionEffect::default(),
    }
}

/// A huge page that was split, and gave nothing back.
pub fn split(process: ProcessId, region: RegionAddr) -> Event {
    Event::Recovered {
        process,
        region,
        reason: Reason::new("a test"),
        bytes: 0,
        took: Duration::ZERO,
        searched_for: Duration::ZERO,
    }
}
