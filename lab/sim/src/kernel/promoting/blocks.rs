//! Promotion of parts of a region to pages smaller than a huge page.

use super::{Collapsed, number};
use crate::bits::PageBits;
use crate::kernel::payer::Payer;
use crate::kernel::sized_faults::block_around;
use crate::kernel::space::first_page;
use crate::kernel::{Kernel, KernelError, Result, SpaceId};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    copied: u16,
    added: u16,
    zeroed: u16,
}

impl Kernel {
    /// Maps each suitable block of a region by one page. A block is suitable if it is naturally
    /// aligned, has something present and lies in one mapping. It must not be in a page of this
    /// size or a larger one. As in khugepaged, it must have nothing in swap.
    pub(super) fn collapse_blocks(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        order: PageOrder,
        payer: Payer,
    ) -> Result<Collapsed> {
        let at = number(region);
        let mut blocks = Vec::new();
        for first in (0..PAGES_PER_REGION).step_by(order.pages() as usize) {
            if self.is_candidate(space, at, first, order)? {
                blocks.push(first);
            }
        }
        let mut done = Vec::new();
        for first in &blocks {
            match self.collapse_block(space, at, *first, order)? {
                Some(block) => done.push(block),
                None => break,
            }
        }
        if done.is_empty() {
            return Err(match blocks.len() {
                0 => KernelError::NotCandidate(space, region),
                _ => KernelError::NoFrames(space, region, order),
            });
        }
        let sum = |of: fn(&Block) -> u16| done.iter().map(|b| u64::from(of(b))).sum::<u64>();
        let pages = (sum(|b| b.copied), sum(|b| b.added), sum(|b| b.zeroed));
        // Each block is locked, emptied and flushed by itself; the region is scanned once.
        let times = (done.len() as u64, 1);
        Ok(self.collapsed(payer, Duration::ZERO, pages, times))
    }

    fn is_candidate(
        &self,
        space: SpaceId,
        region: u64,
        first: u16,
        order: PageOrder,
    ) -> Result<bool> {
        let owned = self.space(space)?;
        let Some(found) = owned.table.get(region).filter(|r| r.huge.is_none()) else {
            return Ok(false);
        };
        let pages = block_around(first, order);
        let has = |set: PageBits| !pages.and(set).is_empty();
        let page = first_page(region) + u64::from(first);
        Ok(has(found.present)
            && !has(found.swapped)
            && !has(found.folios.at_least(order))
            && self.fits(space, page, order)?)
    }

    /// `None`: there is no memory for it.
    fn collapse_block(
        &mut self,
        space: SpaceId,
        region: u64,
        first: u16,
        order: PageOrder,
    ) -> Result<Option<Block>> {
        let page = first_page(region) + u64::from(first);
        let Some(got) = self.sized_frames(space, page, order)? else {
            return Ok(None);
        };
        let pages = order.pages() as u16;
        let owned = self.space_mut(space)?;
        owned.many_sizes = true;
        let found = owned.table.touch(region);
        let block = block_around(first, order);
        let old: Vec<_> = found.frames.within(first, pages).collect();
        let (there, written) = (found.present.and(block), found.written.and(block));
        let accessed = found.accessed.and(block);
        for (first, count) in there.each_run() {
            found.unmap(first, count);
        }
        found.map_folio(order, first, got.frames);
        found.written = found.written.or(written);
        found.accessed = found.accessed.or(accessed);
        found.cold = false;
        let added = pages - there.count();
        owned.resident += u64::from(added);
        for run in old {
            self.release(run);
        }
        self.break_reservation(space, region);
        Ok(Some(Block {
            copied: there.count(),
            added,
            zeroed: if got.dirty == 0 { 0 } else { added },
        }))
    }
}
