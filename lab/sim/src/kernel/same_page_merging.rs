//! Same-page merging of zeros at a host (KSM with `use_zero_pages`, in outline).
//!
//! KSM merges pages of equal content. The only content that this model knows is zeros. Free memory
//! of a guest that zeroes in advance holds zeros (paper, section 4). Here a page is merged when the
//! scan first reaches it; KSM waits until it has not changed from one scan to the next.

use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use super::{Result, SimulatedKernel, SpaceId};
use crate::memory::FrameContentChange;
use std::time::Duration;

impl SimulatedKernel {
    /// For a guest: starts to record which of its frames are handed out and zeroed.
    pub fn start_recording_frame_content_changes(&mut self) {
        self.memory.start_recording_content_changes();
    }

    /// For a guest: what happened to its frames since the last call. Its host treats that as
    /// accesses to the address space that holds the guest's memory, frame by page.
    pub fn take_frame_content_changes(&mut self) -> Vec<FrameContentChange> {
        self.memory.take_content_changes()
    }

    /// Enables or disables same-page merging for an address space (`MADV_MERGEABLE` on all of it).
    ///
    /// # Errors
    /// No such address space.
    pub fn set_mergeable(&mut self, space: SpaceId, mergeable: bool) -> Result<()> {
        self.space_mut(space)?.mergeable = mergeable;
        Ok(())
    }

    /// Scans at least `pages` present pages, by whole regions; returns pages scanned and merged.
    pub(crate) fn merge_zero_pages(&mut self, pages: u64, time: &mut Duration) -> (u64, u64) {
        let (mut scanned, mut merged) = (0, 0);
        let mut wrapped = false;
        while scanned < pages {
            let Some((space, region)) = self.find_next_mergeable_region() else {
                self.threads.merging_at = RegionId::default();
                if wrapped {
                    break;
                }
                wrapped = true;
                continue;
            };
            self.threads.merging_at = RegionId { space, region: region + 1 };
            let at = RegionId { space, region };
            let Some(found) = self.region(at) else {
                continue;
            };
            let present = u64::from(found.present.count());
            let zeros = !found.present.minus(found.nonzero).is_empty();
            scanned += present;
            if !zeros {
                *time += time_of_operations(present, self.costs.scan_used_ns);
                continue;
            }
            // KSM splits a huge page to merge a part of it.
            let splits = self.split_huge(at).unwrap_or(0);
            *time += time_of_operations(splits, self.costs.split_ns + self.costs.shoot_down_ns);
            self.reports.remapped.record(at);
            merged += u64::from(self.remap_to_shared_zero_page(at, time).unwrap_or(0));
        }
        (scanned, merged)
    }

    fn find_next_mergeable_region(&self) -> Option<(SpaceId, u64)> {
        let at = self.threads.merging_at;
        self.spaces.range(at.space..).find_map(|(_, space)| {
            let from = if space.id == at.space { at.region } else { 0 };
            let region = space.table.next_region(from).filter(|_| space.mergeable)?;
            Some((space.id, region))
        })
    }
}
