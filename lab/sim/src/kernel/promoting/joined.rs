//! Several regions become one page larger than a huge one.

use super::{Collapsed, number};
use crate::kernel::costs::times;
use crate::kernel::payer::Payer;
use crate::kernel::reclaim::regions_around;
use crate::kernel::space::first_page;
use crate::kernel::{Kernel, KernelError, SpaceId};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr};
use std::ops::Range;
use std::time::Duration;

impl Kernel {
    /// Makes the regions around this one a page of this size. Huge pages that happen to lie as they should are not copied.
    pub(super) fn join(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        order: PageOrder,
        payer: Payer,
    ) -> Result<Collapsed, KernelError> {
        let regions = regions_around(number(region), order);
        for at in regions.clone() {
            let found = self.space(space)?.table.get(at);
            let fit = found.is_some_and(|found| {
                !found.present.is_empty()
                    && found.swapped.is_empty()
                    && found.joined.is_none_or(|of| of < order)
            });
            if !fit || !self.allows_huge(space, at) {
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
                // It was looked for all the same.
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
        let locked = times(copied, self.costs.copy_base_ns)
            + times(added, self.costs.zero_base_ns)
            + times(each, self.costs.shoot_down_ns);
        time += locked + times(each, self.costs.collapse_ns);
        let paid = self.pay(payer, time);
        self.debug_check();
        Ok(Collapsed {
            paid,
            locked,
            copied,
            added,
        })
    }

    /// Whether these regions are huge pages in neighbouring frames, aligned as one page must be, and nobody else's.
    fn lie_in_row(&self, space: SpaceId, regions: &Range<u64>) -> bool {
        let Some(space) = self.spaces.get(space) else {
            return false;
        };
        let block = |region| {
            let found = space.table.get(region)?;
            found.huge.filter(|_| found.shared.is_empty())
        };
        let first = block(regions.start).map(u64::from);
        first.is_some_and(|first| {
            let aligned = first % (regions.end - regions.start) == 0;
            let mut all = regions.clone().zip(first..);
            aligned && all.all(|(region, there)| block(region).map(u64::from) == Some(there))
        })
    }

    /// Copies regions into pageblocks from `block` on, which nobody else has; returns how many base pages were copied, and how many
    /// were not there.
    fn move_to(
        &mut self,
        space: SpaceId,
        regions: &Range<u64>,
        block: u32,
    ) -> Result<(u64, u64), KernelError> {
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
                Some(old) => vec![Self::huge_run(old, at).1],
                None => found.frames.iter().collect(),
            };
            owned.huge += u64::from(found.huge.is_none());
            found.become_huge(block);
            found.cold = false;
            owned.resident += u64::from(PAGES_PER_REGION - there);
            copied += u64::from(there);
            added += u64::from(PAGES_PER_REGION - there);
            for run in old {
                self.release(space, first_page(at) + u64::from(run.first), run);
            }
            self.break_reservation(space, at);
        }
        Ok((copied, added))
    }
}
