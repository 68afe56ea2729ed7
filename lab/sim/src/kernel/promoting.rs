//! Regions get larger pages, by somebody's decision.

mod blocks;
mod joined;

use super::costs::times;
use super::payer::{Paid, Payer};
use super::region::Region;
use super::space::first_page;
use super::{HugeAdvice, Kernel, KernelError, SpaceId};
use crate::bits::PageBits;
use crate::memory::{Content, block_of};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};
use std::time::Duration;

/// Memory that is mapped by larger pages now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// Time, compaction included.
    pub paid: Paid,
    /// How long the program can't fault meanwhile (the kernel holds `mmap_lock` for writing): copying and zeroing.
    pub locked: Duration,
    /// Base pages that were copied.
    pub copied: u64,
    /// Base pages that are there now and were not.
    pub added: u64,
}

pub(crate) fn number(region: RegionAddr) -> u64 {
    region.start() / HUGE_PAGE_BYTES
}

impl Kernel {
    /// Maps memory by pages of this size, and copies what is there into them.
    ///
    /// - A huge page maps all of the region (khugepaged's `collapse_huge_page`, `MADV_COLLAPSE`). Compaction makes a huge frame if
    ///   none is free.
    /// - Smaller pages each map a block of it in which something is (khugepaged since it collapses to folios of many
    ///   sizes).
    /// - A larger one maps the regions around this one, in all of which something is. No kernel does so by itself; its frames
    ///   are had as `alloc_contig_range` has them.
    ///
    /// # Errors
    /// Memory that is no candidate, or for which there are no frames.
    pub fn promote(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        order: PageOrder,
        payer: Payer,
    ) -> Result<Collapsed, KernelError> {
        match order {
            PageOrder::BASE => Err(KernelError::NotCandidate(space, region)),
            PageOrder::HUGE => self.collapse(space, region, payer),
            small if small < PageOrder::HUGE => self.collapse_blocks(space, region, small, payer),
            large => self.join(space, region, large, payer),
        }
    }

    fn collapse(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        payer: Payer,
    ) -> Result<Collapsed, KernelError> {
        let at = number(region);
        let found = self.space(space)?.table.get(at);
        let fit = found.is_some_and(|found| {
            found.huge.is_none() && !found.present.is_empty() && found.swapped.is_empty()
        });
        if !fit || !self.allows_huge(space, at) {
            return Err(KernelError::NotCandidate(space, region));
        }
        let mut time = Duration::ZERO;
        let owner = self.owner(space, first_page(at))?;
        // Most of it is overwritten, and overwriting needs no zeros.
        let got = self.huge_frame(Content::Dirty, owner, true, &mut time);
        let got = got.ok_or(KernelError::NoFrames(space, region, PageOrder::HUGE))?;
        let owned = self.space_mut(space)?;
        let found = owned.table.touch(at);
        let copied = found.present.count();
        let added = PAGES_PER_REGION - copied;
        let old: Vec<_> = found.frames.iter().collect();
        found.become_huge(block_of(got.frames.first));
        found.cold = false;
        owned.resident += u64::from(added);
        owned.huge += 1;
        for run in old {
            self.release(space, first_page(at) + u64::from(run.first), run);
        }
        self.break_reservation(space, at);
        let zeroed = if got.dirty == 0 { 0 } else { added };
        let locked = times(copied.into(), self.costs.copy_base_ns)
            + times(zeroed.into(), self.costs.zero_base_ns)
            + times(1, self.costs.shoot_down_ns);
        time += locked + times(1, self.costs.collapse_ns);
        let paid = self.pay(payer, time);
        self.debug_check();
        Ok(Collapsed {
            paid,
            locked,
            copied: copied.into(),
            added: added.into(),
        })
    }

    /// A program has had to wait for a collapse.
    pub fn waited_for_lock(&mut self, space: SpaceId) -> Paid {
        let time = times(1, self.costs.lock_wait_ns);
        self.pay(Payer::Program(space), time)
    }

    /// Fills a region with nothing in it with a zeroed huge page, before its program touches it.
    ///
    /// # Errors
    /// A region that isn't empty or can't be huge, or for which no huge frame is free.
    pub fn fill_ahead(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        payer: Payer,
    ) -> Result<Paid, KernelError> {
        let at = number(region);
        let empty = self
            .space(space)?
            .table
            .get(at)
            .is_none_or(Region::is_empty);
        if !empty || !self.allows_huge(space, at) {
            return Err(KernelError::NotCandidate(space, region));
        }
        let mut time = Duration::ZERO;
        let owner = self.owner(space, first_page(at))?;
        let got = self.huge_frame(Content::Zeroed, owner, false, &mut time);
        let got = got.ok_or(KernelError::NoFrames(space, region, PageOrder::HUGE))?;
        time += times(1, self.costs.huge_fault_ns) + self.zeroing_time(got.dirty, true);
        let owned = self.space_mut(space)?;
        owned.resident += u64::from(PAGES_PER_REGION);
        owned.huge += 1;
        let found = owned.table.touch(at);
        found.become_huge(block_of(got.frames.first));
        // Another core zeroed it.
        found.cold = true;
        let paid = self.pay(payer, time);
        self.debug_check();
        Ok(paid)
    }

    /// Maps a huge page by base pages, in the same frames. Where it is part of a larger page, the rest of that becomes huge
    /// pages.
    ///
    /// # Errors
    /// A region that is no huge page.
    pub fn split(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        payer: Payer,
    ) -> Result<Paid, KernelError> {
        let splits = self.split_huge(space, number(region))?;
        if splits == 0 {
            return Err(KernelError::NotHuge(space, region));
        }
        let time = times(splits, self.costs.split_ns + self.costs.shoot_down_ns);
        let paid = self.pay(payer, time);
        self.debug_check();
        Ok(paid)
    }

    /// Whether a mapping that doesn't refuse huge pages holds all of a region.
    fn allows_huge(&self, space: SpaceId, region: u64) -> bool {
        let advice = self.spaces.get(space).and_then(|s| s.region_advice(region));
        advice.is_some_and(|advice| advice != HugeAdvice::NoHuge)
    }

    /// Base pages of a region that the program accessed, as the processor's access bits say: reclaim goes by them.
    pub fn note_accessed(&mut self, space: SpaceId, region: RegionAddr, pages: PageBits) {
        let found = self.spaces.get_mut(space);
        if let Some(found) = found.and_then(|space| space.table.get_mut(number(region))) {
            found.accessed = found.accessed.or(pages.and(found.present));
        }
    }
}
