//! The reserve of huge pages: when it is filled and emptied, and what the next huge page costs.

use super::Manager;
use super::memory_watch::MemoryWatch;
use crate::machine::Machine;
use hawkeye_policy::{HugePageReadiness, ReserveInput};
use std::time::Duration;

impl MemoryWatch {
    /// How the kernel gets a huge page, if the reserve holds this many.
    pub(super) fn readiness_if_reserve_holds(&self, held: u32) -> HugePageReadiness {
        let fmfi = self.state.as_ref().and_then(|memory| memory.fmfi);
        let free_blocks = fmfi.is_none_or(|fmfi| fmfi < 1.0);
        self.reserve.next_huge_page_readiness(held, free_blocks)
    }
}

impl<M: Machine> Manager<M> {
    /// Sets how many huge pages the reserve holds from now on.
    pub(super) fn update_reserve_target(&mut self, now: Duration) {
        if self.settings.reserve.is_off() || self.settings.measure_only {
            return;
        }
        let memory = &mut self.memory;
        let total_bytes = memory.state.as_ref().map_or(0, |state| state.machine.total_bytes);
        let target = memory.reserve.decide_target(&ReserveInput {
            now,
            state: self.machine.reserve_state(),
            total_bytes,
            room_bytes: memory.guard.machine_room_bytes(),
            blocked: self.paused || memory.held.is_some(),
        });
        let most = self.settings.reserve.max_huge_pages(total_bytes);
        if let Err(error) = self.machine.set_reserve_target(target, most) {
            self.memory.reserve.keep_empty(now);
            self.record_error(now, &error);
        }
    }

    /// How the kernel will get the huge page of the next promotion.
    pub(super) fn next_huge_page_readiness(&mut self, now: Duration) -> HugePageReadiness {
        // The page that was to show what a fill costs is there: fill all, or stop.
        let unproven = self.memory.reserve.is_worthwhile() != Some(true);
        if unproven && self.machine.reserve_state().held > 0 {
            self.update_reserve_target(now);
        }
        self.memory.readiness_if_reserve_holds(self.machine.reserve_state().held)
    }
}
