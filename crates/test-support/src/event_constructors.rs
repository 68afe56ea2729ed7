//! Short constructors of processes and events.

use hawkeye_policy::{Event, PageOrder, ProcessId, PromotionEffect, Reason, RegionAddr};
use std::time::Duration;

/// A process with this pid.
pub fn process_with_pid(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 1 }
}

/// The `index`th region of an address space.
pub fn region_at_index(index: u64) -> RegionAddr {
    RegionAddr::containing(index << 21)
}

/// A region that became huge, which added `added_pages` base pages.
pub fn promoted_event(process: ProcessId, region: RegionAddr, added_pages: u16) -> Event {
    Event::Promoted {
        process,
        region,
        order: PageOrder::HUGE,
        reason: Reason::new("a test"),
        file: None,
        took: Duration::ZERO,
        effect: PromotionEffect { added_pages, ..PromotionEffect::default() },
    }
}

/// A huge page that was split and gave back `bytes`.
pub fn recovered_event(process: ProcessId, region: RegionAddr, bytes: u64) -> Event {
    Event::Recovered {
        process,
        region,
        reason: Reason::new("a test"),
        bytes,
        took: Duration::ZERO,
        searched_for: Duration::ZERO,
    }
}
