//! Promotion of several regions to one page larger than a huge page.

use super::{Collapsed, number};
use crate::kernel::payer::Payer;
use crate::kernel::reclaim::{huge_run, regions_around};
use crate::kernel::space::first_page;
use crate::kernel::{Kernel, KernelError, Result, SpaceId};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr};
use std::ops::Range;
use std::time::Duration;

impl Kernel {
    /// Makes the regions around this one a page of this size. Huge pages that already lie as needed
    /// are not copied.
    pub(super) fn join(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        order: PageOrder,
        payer: Payer,
    ) -> Result<Collapsed> {
        let regions = regions_around(number(region), order);
        for at in regions.clone() {
            let found = self.space(space)?.table.get(at);
            let fit = found.is_some_and(|found| {
                !found.present.is_empty()
                    && found.swapped.is_empty()
                    && found.joined.is_none_or(|of| of < order)
            });
            if !fit || !self.space(space)?.holds_region(at) {
                return Err(KernelError::NotCandidate(space, region));
            }
        }
        let mut time = Duration::ZERO;
        let (copied, added) = if self.lie_in_row(space, &regions) {
            (0, 0)
        } else {
            let block = self.contiguous_blocks(order.regions() as u32, &mut time);
            let block = block.ok_or(KernelError::NoFrames(space, region, order));
            if block.is_err() {
                // The search for a range took its time all the same.
                self.pay(payer, time);
            }
            self.move_to(space, &regions, block?)?
        };
        for at in regions.clone() {
            self.end_joined(space, at);
            let owned = self.space_mut(space)?;
            owned.many_sizes = true;
            owned.table.touch(at).joined = Some(order);
        }
        let each = order.regions();
        Ok(self.collapsed(payer, time, (copied, added, added), (each, each)))
    }

    /// Whether these regions are huge pages in neighbouring frames, aligned as one page must be.
    fn lie_in_row(&self, space: SpaceId, regions: &Range<u64>) -> bool {
        let Some(space) = self.spaces.get(space) else {
            return false;
        };
        let block = |region| {
            let huge = space.table.get(region)?.huge;
            huge.map(u64::from)
        };
        let first = block(regions.start);
        first.is_some_and(|first| {
            let aligned = first % (regions.end - regions.start) == 0;
            let mut all = regions.clone().zip(first..);
            aligned && all.all(|(region, there)| block(region) == Some(there))
        })
    }

    /// Copies regions into the pageblocks from `block` on, which must have no other owner. Returns
    /// the number of base pages that were copied, and of those that were not present.
    fn move_to(&mut self, space: SpaceId, regions: &Range<u64>, block: u32) -> Result<(u64, u64)> {
        let (mut copied, mut added) = (0, 0);
        for (at, block) in regions.clone().zip(block..) {
            let owner = self.owner(space, first_page(at))?;
            self.memory
                .hand_over(crate::memory::FrameRun::of_block(block), owner);
            self.end_joined(space, at);
            let owned = self.space_mut(space)?;
            let found = owned.table.touch(at);
            let there = found.present.count();
            let old: Vec<_> = match found.huge {
                Some(old) => vec![huge_run(old)],
                None => found.frames.iter().collect(),
            };
            owned.huge += u64::from(found.huge.is_none());
            found.become_huge(block);
            found.cold = false;
            owned.resident += u64::from(PAGES_PER_REGION - there);
            copied += u64::from(there);
            added += u64::from(PAGES_PER_REGION - there);
            for run in old {
                self.release(run);
            }
            self.break_reservation(space, at);
        }
        Ok((copied, added))
    }
}
