//! Promotion: pages become a larger one in place, or by copying.

use super::policies::WhenFull;
use super::{Backing, Machine};
use crate::error::Result;
use crate::mmu::Pte;

/// Parts of a page that could be made.
struct Parts {
    /// Number of base pages with memory.
    present: u64,
    writable: bool,
    /// Frame of the first one, if all parts lie in memory as the large page would.
    joined: Option<u32>,
}

impl Machine {
    /// Makes the next larger page around one, if the policy wants it and all of it has memory.
    /// Returns whether it did.
    pub(super) fn enlarge(&mut self, process: u32, page: u64) -> Result<bool> {
        let when_full = self.rules().when_full();
        if when_full == WhenFull::Stay {
            return Ok(false);
        }
        let order = self.space(process)?.table.entry(page).order;
        let larger = (order + 1..u32::BITS as u8).find(|o| self.orders().contains(*o));
        let Some(larger) = larger else {
            return Ok(false);
        };
        let first = page & !((1 << larger) - 1);
        if !self.is_in_one_mapping(process, first, larger) {
            return Ok(false);
        }
        let reserved = self.reservations.order(process, page);
        match when_full {
            WhenFull::Copy => self.promote(process, first, larger, false),
            WhenFull::Join if reserved.is_some_and(|reserved| reserved >= larger) => {
                self.join(process, first, larger)
            }
            WhenFull::Join | WhenFull::Stay => Ok(false),
        }
    }

    pub(super) fn is_in_one_mapping(&self, process: u32, first: u64, order: u8) -> bool {
        let space = self.space(process).ok();
        let mapping = space.and_then(|space| space.mapping_of(first));
        mapping.is_some_and(|(start, mapping)| {
            mapping.backing == Backing::Anonymous && first + (1 << order) <= start + mapping.pages
        })
    }

    /// Makes one page of smaller ones that already lie in place. Returns false if they don't, or if
    /// some have no memory.
    pub(super) fn join(&mut self, process: u32, first: u64, order: u8) -> Result<bool> {
        let parts = self.parts(process, first, order)?;
        let page = parts.and_then(|it| Some(Pte::present(it.joined?, order, it.writable)));
        page.map_or(Ok(false), |page| self.become_one(process, first, page))
    }

    /// Makes one page of smaller ones by copying them to neighbouring frames. Parts without memory
    /// are filled only if that is allowed. Returns false if the promotion is not possible.
    pub(super) fn promote(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        fill: bool,
    ) -> Result<bool> {
        let pages = 1 << order;
        let Some(parts) = self.parts(process, first, order)? else {
            return Ok(false);
        };
        if parts.present < pages && (!fill || self.add_leaves(process, first, pages).is_err()) {
            return Ok(false);
        }
        let Some(frame) = self.buddy.allocate(order) else {
            self.fail(order);
            return Ok(false);
        };
        self.release_pages(process, first, pages)?;
        let base = self.base().bytes();
        self.counters.copied_bytes += parts.present * base;
        self.counters.zeroed_bytes += (pages - parts.present) * base;
        self.become_one(process, first, Pte::present(frame, order, parts.writable))
    }

    /// Enters a promoted page.
    fn become_one(&mut self, process: u32, first: u64, page: Pte) -> Result<bool> {
        self.enter(process, first, page)?;
        self.statistics.promoted.add(page.order);
        self.counters.remaps += 1;
        self.counters.sized_entries += 1 << page.order;
        let purge = self.purge_of(process, first, 1 << page.order, false)?;
        self.purge(purge)?;
        Ok(true)
    }

    /// The parts of a page that could be made. `None` in these cases: nothing is present, something
    /// is already as large, a frame is shared, or some parts are writable and others are not.
    fn parts(&self, process: u32, first: u64, order: u8) -> Result<Option<Parts>> {
        let table = &self.space(process)?.table;
        let mut known: Option<Pte> = None;
        let mut present = 0;
        let mut joined = None;
        let mut page = first;
        while page < first + (1 << order) {
            let Some(entry) = table.get(page).filter(|entry| entry.present) else {
                joined = None;
                page += 1;
                continue;
            };
            let size = 1 << entry.order;
            let shared = (entry.frame..)
                .take(size)
                .any(|f| self.shared.contains_key(&f));
            let alike = known.is_none_or(|known| known.writable == entry.writable);
            if entry.order >= order || shared || !alike || self.in_pool(entry.frame) {
                return Ok(None);
            }
            if page == first {
                joined = Some(entry.frame).filter(|frame| frame % (1 << order) == 0);
            }
            joined = joined
                .filter(|frame| u64::from(entry.frame - entry.frame.min(*frame)) == page - first);
            known = Some(entry);
            present += size as u64;
            page += size as u64;
        }
        Ok(known.map(|known| Parts {
            present,
            writable: known.writable,
            joined: joined.filter(|_| present == 1 << order),
        }))
    }
}
