//! Promotion of several regions to one page larger than a huge page.

use super::Collapsed;
use crate::kernel::reclaim::regions_around;
use crate::kernel::region::Region;
use crate::kernel::space::RegionId;
use crate::kernel::{Kernel, Result};
use crate::memory::FrameRun;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};
use std::time::Duration;

impl Kernel {
    /// Makes the regions around this one a page of this size. Huge pages that already lie as needed
    /// are not copied.
    pub(super) fn join(&mut self, at: RegionId, order: PageOrder) -> Result<Collapsed> {
        let around = regions_around(at.region, order);
        let regions = around.map(|region| RegionId { region, ..at });
        let regions: Vec<RegionId> = regions.collect();
        for part in &regions {
            let smaller = |of: PageOrder| of < order;
            let fits = |found: &Region| found.can_be_copied() && found.joined.is_none_or(smaller);
            if !self.holds(*part, fits)? {
                return Err(at.is_no_candidate());
            }
        }
        let mut time = Duration::ZERO;
        let (copied, added) = if self.lie_in_row(&regions) {
            (0, 0)
        } else {
            let block = self.contiguous_blocks(order.regions() as u32, &mut time);
            let block = block.ok_or(at.has_no_frames(order))?;
            self.move_to(&regions, block)?
        };
        for part in regions {
            self.end_joined(part);
            self.space_mut(at.space)?.many_sizes = true;
            self.touch_region(part)?.joined = Some(order);
        }
        let each = order.regions();
        Ok(self.collapsed(time, (copied, added, added), (each, each)))
    }

    /// Whether these regions are huge pages in neighbouring frames, aligned as one page must be.
    fn lie_in_row(&self, regions: &[RegionId]) -> bool {
        let block = |at: &RegionId| self.region(*at)?.huge;
        let first = regions.first().and_then(block);
        first.is_some_and(|first| {
            let mut all = regions.iter().zip(first..);
            first % regions.len() as u32 == 0 && all.all(|(at, there)| block(at) == Some(there))
        })
    }

    /// Copies regions into the pageblocks from `block` on, which must have no other owner. Returns
    /// the number of base pages that were copied, and of those that were not present.
    fn move_to(&mut self, regions: &[RegionId], block: u32) -> Result<(u64, u64)> {
        let (mut copied, mut added) = (0, 0);
        for (at, block) in regions.iter().zip(block..) {
            let owner = self.owner(*at, 0)?;
            self.memory.hand_over(FrameRun::of_block(block), owner);
            self.end_joined(*at);
            let (old, more) = self.become_huge(*at, block, false)?;
            copied += u64::from(PAGES_PER_REGION - more);
            added += u64::from(more);
            for run in old {
                self.release(run);
            }
            self.break_reservation(*at);
        }
        Ok((copied, added))
    }
}
