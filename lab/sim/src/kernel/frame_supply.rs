//! Allocation of frames: from free memory, or else from reclaim and compaction.

use super::kernel_costs::time_of_operations;
use super::{KernelError, Result, SimulatedKernel, SpaceId};
use crate::memory::{AllocatedFrames, FrameContent, FrameOwner, HUGE_ORDER};
use hawkeye_policy::PAGES_PER_REGION;
use std::time::Duration;

/// Frames that are reclaimed at a time (`SWAP_CLUSTER_MAX`).
pub(crate) const RECLAIM_BATCH: u64 = 32;

impl SimulatedKernel {
    /// Single frames, as many as single allocations would find side by side, at most `most` (1 or
    /// more). Reclaims when fewer frames than the lowest watermark are free, and adds the time for
    /// that to `time`.
    pub(crate) fn allocate_base_frames(
        &mut self,
        space: SpaceId,
        most: u16,
        prefer: FrameContent,
        owner: FrameOwner,
        time: &mut Duration,
    ) -> Result<AllocatedFrames> {
        loop {
            let spare =
                self.memory.count_free_frames().saturating_sub(self.reclaim_state.watermarks.min);
            let most = u64::from(most).min(spare) as u16;
            if most > 0 {
                let got = self.memory.allocate_frame_run(most, prefer, owner);
                return got.ok_or(KernelError::OutOfMemory(space));
            }
            if self.reclaim(RECLAIM_BATCH, time) == 0 {
                return Err(KernelError::OutOfMemory(space));
            }
        }
    }

    /// A huge frame, if more than the low watermark then remains free; `compact` may make one.
    pub(crate) fn allocate_huge_frame(
        &mut self,
        prefer: FrameContent,
        owner: FrameOwner,
        compact: bool,
        time: &mut Duration,
    ) -> Option<AllocatedFrames> {
        let needed = u64::from(PAGES_PER_REGION) + self.reclaim_state.watermarks.low;
        if self.memory.count_free_frames() < needed {
            return None;
        }
        let there =
            self.memory.has_free_huge_frame() || compact && self.compact_for_huge_page(time);
        if !there {
            return None;
        }
        self.memory.allocate(HUGE_ORDER, prefer, owner)
    }

    /// Time to zero frames in a fault, of which `dirty` are dirty.
    pub(crate) fn zeroing_time(&self, dirty: u32, huge: bool) -> Duration {
        let dirty = u64::from(dirty);
        if huge {
            // A part of a huge page is zeroed at a huge page's speed.
            time_of_operations(dirty, self.costs.zero_huge_ns) / u32::from(PAGES_PER_REGION)
        } else {
            time_of_operations(dirty, self.costs.zero_base_ns)
        }
    }
}
