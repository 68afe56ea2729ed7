//! Promotion: maps regions by larger pages, by a decision from outside.

use super::costs::times;
use super::fault_mapping::block_around;
use super::reclaim::regions_around;
use super::region::{RegionMapping, huge_run};
use super::space::RegionId;
use super::{KernelError, Result, SimulatedKernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{FrameContent, FrameRun, ValueRun, block_of};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr};
use std::time::Duration;

/// The result of a promotion: memory that is mapped by larger pages now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedPromotion {
    /// Its time, compaction included.
    pub time: Duration,
    /// Time for which the program can't fault (the kernel holds `mmap_lock` for writing): copying
    /// and zeroing.
    pub locked: Duration,
    /// Base pages that were copied.
    pub copied: u64,
    /// Base pages that are present now and were not before.
    pub added: u64,
}

/// What a promotion does: counts of base pages, TLB flushes and scans of page tables.
#[derive(Clone, Copy, Debug, Default)]
struct PromotionWork {
    copied: u64,
    added: u64,
    /// The added ones that are zeroed.
    zeroed: u64,
    flushed: u64,
    looked: u64,
}

impl PromotionWork {
    fn add(&mut self, copied: u16, added: u16, dirty: bool) {
        self.copied += u64::from(copied);
        self.added += u64::from(added);
        self.zeroed += if dirty { added.into() } else { 0 };
    }
}

impl SimulatedKernel {
    /// Maps memory by pages of this size, and copies what is present into them.
    ///
    /// - A huge page maps all of the region (khugepaged's `collapse_huge_page`, `MADV_COLLAPSE`).
    ///   Compaction makes a huge frame if none is free.
    /// - Smaller pages each map a block of the region in which something is present. khugepaged
    ///   does so since it collapses to folios of many sizes.
    /// - A larger page maps the regions around this one, if something is in each of them. No kernel
    ///   does so by itself. Its frames are allocated as `alloc_contig_range` does.
    ///
    /// # Errors
    /// The memory is no candidate, or there are no frames for it.
    pub fn promote(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        order: PageOrder,
    ) -> Result<CompletedPromotion> {
        match order {
            PageOrder::BASE => Err(KernelError::NotCandidate(space, region)),
            PageOrder::HUGE => self.collapse(RegionId::new(space, region)),
            small if small < PageOrder::HUGE => {
                self.collapse_blocks(RegionId::new(space, region), small)
            }
            large => self.join_regions(RegionId::new(space, region), large),
        }
    }

    fn collapse(&mut self, at: RegionId) -> Result<CompletedPromotion> {
        let fits = |found: &RegionMapping| found.huge.is_none() && found.can_be_copied();
        if !self.one_mapping_holds_region(at, fits)? {
            return Err(at.not_candidate_error());
        }
        let mut time = Duration::ZERO;
        let owner = self.owner(at, 0)?;
        // The copy overwrites most of it, so it needs no zeroed frame.
        let got = self.allocate_huge_frame(FrameContent::Dirty, owner, true, &mut time);
        let got = got.ok_or(at.no_frames_error(PageOrder::HUGE))?;
        let mut work = PromotionWork {
            flushed: 1,
            looked: 1,
            ..PromotionWork::default()
        };
        let block = block_of(got.frames.first);
        self.copy_region_to(at, block, got.dirty > 0, &mut work)?;
        Ok(self.completed_promotion(time, &work))
    }

    /// Copies a region into a pageblock. What was not present there is zeroed if it is `dirty`.
    fn copy_region_to(
        &mut self,
        at: RegionId,
        block: u32,
        dirty: bool,
        work: &mut PromotionWork,
    ) -> Result<()> {
        let (old, added) = self.map_region_huge(at, block, false)?;
        work.add(PAGES_PER_REGION - added, added, dirty);
        for run in old {
            self.release_unmapped_frames(run);
        }
        self.break_reservation(at);
        Ok(())
    }

    /// Maps a region by a huge page. Returns its old frames and the number of added base pages.
    pub(super) fn map_region_huge(
        &mut self,
        at: RegionId,
        block: u32,
        cold: bool,
    ) -> Result<(Vec<ValueRun>, u16)> {
        let owned = self.space_mut(at.space)?;
        let found = owned.table.get_or_create(at.region);
        let added = PAGES_PER_REGION - found.present.count();
        let old = found
            .frames
            .iter()
            .chain(found.huge.map(huge_run))
            .collect();
        owned.huge += u64::from(found.huge.is_none());
        owned.resident += u64::from(added);
        found.become_huge(block);
        found.cold = cold;
        Ok((old, added))
    }

    /// Whether one mapping holds all of a region that fits.
    fn one_mapping_holds_region(
        &self,
        at: RegionId,
        fits: impl Fn(&RegionMapping) -> bool,
    ) -> Result<bool> {
        let space = self.space(at.space)?;
        Ok(space.table.get(at.region).is_some_and(fits) && space.holds_region(at.region))
    }

    fn completed_promotion(
        &mut self,
        search: Duration,
        work: &PromotionWork,
    ) -> CompletedPromotion {
        let locked = times(work.copied, self.costs.copy_base_ns)
            + times(work.zeroed, self.costs.zero_base_ns)
            + times(work.flushed, self.costs.shoot_down_ns);
        let time = search + locked + times(work.looked, self.costs.collapse_ns);
        self.debug_check();
        CompletedPromotion {
            time,
            locked,
            copied: work.copied,
            added: work.added,
        }
    }

    /// A program had to wait for a collapse.
    pub fn charge_lock_wait(&mut self, space: SpaceId) -> Duration {
        let time = times(1, self.costs.lock_wait_ns);
        self.charge_kernel_time(space, time);
        time
    }

    /// Maps a zeroed huge page in an empty region before its program touches it.
    ///
    /// # Errors
    /// The region isn't empty or can't be huge, or no huge frame is free.
    pub fn prefault_region(&mut self, space: SpaceId, region: RegionAddr) -> Result<Duration> {
        let at = RegionId::new(space, region);
        let empty = self.region(at).is_none_or(RegionMapping::is_empty);
        if !empty || !self.space(space)?.holds_region(at.region) {
            return Err(at.not_candidate_error());
        }
        let mut time = Duration::ZERO;
        let owner = self.owner(at, 0)?;
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, false, &mut time);
        let got = got.ok_or(at.no_frames_error(PageOrder::HUGE))?;
        time += times(1, self.costs.huge_fault_ns) + self.zeroing_time(got.dirty, true);
        // Another core zeroed it.
        self.map_region_huge(at, block_of(got.frames.first), true)?;
        self.debug_check();
        Ok(time)
    }

    /// Records base pages that the program accessed, by the processor's access bits, for reclaim.
    pub fn record_accessed(&mut self, space: SpaceId, region: RegionAddr, pages: PageBits) {
        if let Some(found) = self.region_mut(RegionId::new(space, region)) {
            found.accessed = found.accessed.or(pages.and(found.present));
        }
    }
}

impl SimulatedKernel {
    /// Makes one page of the regions around this; doesn't copy huge pages that lie as needed.
    fn join_regions(&mut self, at: RegionId, order: PageOrder) -> Result<CompletedPromotion> {
        let around = regions_around(at.region, order);
        let regions = around.map(|region| RegionId { region, ..at });
        let regions: Vec<RegionId> = regions.collect();
        for part in &regions {
            let smaller = |of: PageOrder| of < order;
            let fits = |found: &RegionMapping| {
                found.can_be_copied() && found.multi_region.is_none_or(smaller)
            };
            if !self.one_mapping_holds_region(*part, fits)? {
                return Err(at.not_candidate_error());
            }
        }
        let mut time = Duration::ZERO;
        let each = order.regions();
        let mut work = PromotionWork {
            flushed: each,
            looked: each,
            ..PromotionWork::default()
        };
        if !self.are_contiguous_huge_pages(&regions) {
            let block = self.contiguous_blocks(each as u32, &mut time);
            let block = block.ok_or(at.no_frames_error(order))?;
            for (at, block) in regions.iter().zip(block..) {
                let owner = self.owner(*at, 0)?;
                self.memory
                    .change_frame_owner(FrameRun::of_block(block), owner);
                self.split_multi_region_page(*at);
                self.copy_region_to(*at, block, true, &mut work)?;
            }
        }
        for part in regions {
            self.split_multi_region_page(part);
            self.space_mut(at.space)?.many_sizes = true;
            self.get_or_create_region(part)?.multi_region = Some(order);
        }
        Ok(self.completed_promotion(time, &work))
    }

    /// Whether these regions are huge pages in neighbouring frames, aligned as one page must be.
    fn are_contiguous_huge_pages(&self, regions: &[RegionId]) -> bool {
        let block = |at: &RegionId| self.region(*at)?.huge;
        let first = regions.first().and_then(block);
        first.is_some_and(|first| {
            let mut all = regions.iter().zip(first..);
            first % regions.len() as u32 == 0 && all.all(|(at, there)| block(at) == Some(there))
        })
    }
}

impl SimulatedKernel {
    /// Maps each suitable block of a region by one page. A block is suitable if it is naturally
    /// aligned, has something present and lies in one mapping. It must not be in a page of this
    /// size or a larger one. As in khugepaged, it must have nothing in swap.
    fn collapse_blocks(&mut self, at: RegionId, order: PageOrder) -> Result<CompletedPromotion> {
        let mut blocks = Vec::new();
        for first in (0..PAGES_PER_REGION).step_by(order.pages() as usize) {
            if self.is_candidate(at, first, order)? {
                blocks.push(first);
            }
        }
        let mut work = PromotionWork {
            looked: 1,
            ..PromotionWork::default()
        };
        for first in &blocks {
            if !self.collapse_block(at, *first, order, &mut work)? {
                break;
            }
            // Each block is locked, emptied and flushed by itself; the region is scanned once.
            work.flushed += 1;
        }
        if work.flushed == 0 {
            return Err(match blocks.len() {
                0 => at.not_candidate_error(),
                _ => at.no_frames_error(order),
            });
        }
        Ok(self.completed_promotion(Duration::ZERO, &work))
    }

    fn is_candidate(&self, at: RegionId, first: u16, order: PageOrder) -> Result<bool> {
        let found = self.space(at.space)?.table.get(at.region);
        let Some(found) = found.filter(|found| found.huge.is_none()) else {
            return Ok(false);
        };
        let pages = block_around(first, order);
        let has = |set: PageBits| !pages.and(set).is_empty();
        Ok(has(found.present)
            && !has(found.swapped)
            && !has(found.folios.at_least(order))
            && self.mapping_holds_block(at, first, order)?)
    }

    /// Returns whether there was memory for it.
    fn collapse_block(
        &mut self,
        at: RegionId,
        first: u16,
        order: PageOrder,
        work: &mut PromotionWork,
    ) -> Result<bool> {
        let Some(got) = self.sized_frames(at, first, order)? else {
            return Ok(false);
        };
        let pages = order.pages() as u16;
        let owned = self.space_mut(at.space)?;
        owned.many_sizes = true;
        let found = owned.table.get_or_create(at.region);
        let block = block_around(first, order);
        let old: Vec<_> = found.frames.runs_within(first, pages).collect();
        let (there, written) = (found.present.and(block), found.written.and(block));
        let accessed = found.accessed.and(block);
        for (first, count) in there.each_run() {
            found.unmap_run(first, count);
        }
        found.map_folio(order, first, got.frames);
        found.written = found.written.or(written);
        found.accessed = found.accessed.or(accessed);
        found.cold = false;
        let added = pages - there.count();
        owned.resident += u64::from(added);
        for run in old {
            self.release_unmapped_frames(run);
        }
        self.break_reservation(at);
        work.add(there.count(), added, got.dirty > 0);
        Ok(true)
    }
}
