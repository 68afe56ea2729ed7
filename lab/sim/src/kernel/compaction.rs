//! Compaction: moves pages together, so that a huge page becomes free.

use super::SimulatedKernel;
use super::kernel_costs::time_of_operations;
use super::page_moves::PagesToMoveTogether;
use crate::memory::{AscendingRun, PhysicalMemory, ScanCount};
use std::time::Duration;

/// Deferral of compaction for a while after failures (`defer_compaction`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompactionDeferral {
    /// Attempts that are still to be skipped.
    skip: u32,
    /// log2 of the attempts that are skipped after the next failure.
    shift: u32,
}

/// `COMPACT_MAX_DEFER_SHIFT`.
const MOST_SHIFT: u32 = 6;

impl SimulatedKernel {
    /// Tries to make a free huge page; adds the time that it took to `time`.
    pub(crate) fn compact_for_huge_page(&mut self, time: &mut Duration) -> bool {
        if self.huge_frames.deferral.skip > 0 {
            self.huge_frames.deferral.skip -= 1;
            return false;
        }
        let mut scanned = ScanCount::default();
        let mut moved = 0;
        let mut made = false;
        // One full pass needs two scans: the scanners may be half-way when it starts.
        for _ in 0..2 {
            if let Some(evacuation) = self.memory.next_evacuation(&mut scanned) {
                for run in evacuation.pages {
                    moved += self.evacuate_run(evacuation.block, run, &mut scanned);
                }
                made = true;
                break;
            }
        }
        *time += time_of_operations(scanned.blocks, self.costs.scan_block_ns);
        *time += time_of_operations(moved, self.costs.migrate_base_ns + self.costs.copy_base_ns);
        if made {
            self.huge_frames.deferral = CompactionDeferral::default();
        } else {
            self.huge_frames.deferral.skip = 1 << self.huge_frames.deferral.shift;
            self.huge_frames.deferral.shift = (self.huge_frames.deferral.shift + 1).min(MOST_SHIFT);
        }
        made && self.memory.has_free_huge_frame()
    }

    /// Moves a run of pages out of a pageblock; returns the number of pages. Moves as many at a
    /// time as find room side by side, and whole folios where there is room for one.
    fn evacuate_run(&mut self, block: u32, run: AscendingRun, scanned: &mut ScanCount) -> u64 {
        let allocate = |memory: &mut PhysicalMemory, (count, order): PagesToMoveTogether, owner| {
            let room = order.and_then(|order| memory.highest_free_target_block(order));
            let room = room.map(|frame| (frame, count));
            let (target, room) = room.or_else(|| memory.next_target_frame_run(scanned))?;
            memory.allocate_at(target, room.min(count), owner)
        };
        let moved = self.move_page_run(block, run, allocate, PhysicalMemory::free);
        moved.into()
    }
}
