//! Promotion of parts of a region to pages smaller than a huge page.

use super::{CompletedPromotion, PromotionWork};
use crate::kernel::address_space::RegionId;
use crate::kernel::sized_faults::page_bits_of_block_around;
use crate::kernel::{Result, SimulatedKernel};
use crate::page_bits::PageBits;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};
use std::time::Duration;

impl SimulatedKernel {
    /// Maps each suitable block of a region by one page. A block is suitable if it is naturally
    /// aligned, has something present and lies in one mapping. It must not be in a page of this
    /// size or a larger one. As in khugepaged, it must have nothing in swap.
    pub(super) fn collapse_blocks_to_folios(
        &mut self,
        at: RegionId,
        order: PageOrder,
    ) -> Result<CompletedPromotion> {
        let mut blocks = Vec::new();
        for first in (0..PAGES_PER_REGION).step_by(order.pages() as usize) {
            if self.is_collapsible_block(at, first, order)? {
                blocks.push(first);
            }
        }
        let mut work = PromotionWork { looked: 1, ..PromotionWork::default() };
        for first in &blocks {
            if !self.collapse_block_to_folio(at, *first, order, &mut work)? {
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
        Ok(self.result_of_promotion_work(Duration::ZERO, &work))
    }

    fn is_collapsible_block(&self, at: RegionId, first: u16, order: PageOrder) -> Result<bool> {
        let found = self.space(at.space)?.table.get(at.region);
        let Some(found) = found.filter(|found| found.huge.is_none()) else {
            return Ok(false);
        };
        let pages = page_bits_of_block_around(first, order);
        let has = |set: PageBits| !pages.and(set).is_empty();
        Ok(has(found.present)
            && !has(found.swapped)
            && !has(found.folios.page_bits_of_order_or_larger(order))
            && self.mapping_holds_block(at, first, order)?)
    }

    /// Returns whether there was memory for it.
    fn collapse_block_to_folio(
        &mut self,
        at: RegionId,
        first: u16,
        order: PageOrder,
        work: &mut PromotionWork,
    ) -> Result<bool> {
        let Some(got) = self.allocate_folio_frames(at, first, order)? else {
            return Ok(false);
        };
        let pages = order.pages() as u16;
        let owned = self.space_mut(at.space)?;
        owned.many_sizes = true;
        let found = owned.table.get_or_create(at.region);
        let block = page_bits_of_block_around(first, order);
        let old: Vec<_> = found.frames.runs_within(first, pages).collect();
        let (there, written) = (found.present.and(block), found.written.and(block));
        let accessed = found.accessed.and(block);
        for (first, count) in there.runs() {
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
        work.add_pages(there.count(), added, got.dirty > 0);
        Ok(true)
    }
}
