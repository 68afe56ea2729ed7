//! Promotion: pages become a larger one in place, or by copying.

use super::policies::WhenFull;
use super::{Backing, Kernel, Purge};
use crate::ItaniumError;
use crate::mmu::{Counters, Pte};

/// Parts of a page that could be made.
struct Parts {
    /// Number of base pages with memory.
    present: u64,
    writable: bool,
    /// Frame of the first one, if all parts lie in memory as the large page would.
    joined: Option<u32>,
}

impl Kernel {
    /// Applies the policy after a page got memory.
    pub(super) fn after_first_touch(
        &mut self,
        process: u32,
        page: u64,
        work: &mut Counters,
    ) -> Result<Vec<Purge>, ItaniumError> {
        let mut purges = Vec::new();
        while let Some(purge) = self.enlarge(process, page, work)? {
            purges.push(purge);
        }
        self.coalesce(&mut purges, work)?;
        Ok(purges)
    }

    /// Makes the next larger page around one, if the policy wants it and all of it has memory.
    fn enlarge(
        &mut self,
        process: u32,
        page: u64,
        work: &mut Counters,
    ) -> Result<Option<Purge>, ItaniumError> {
        let when_full = self.settings.policy.rules().when_full();
        if when_full == WhenFull::Stay {
            return Ok(None);
        }
        match self.next_larger(process, page)? {
            Some((first, order)) if when_full == WhenFull::Copy => {
                self.promote(process, first, order, false, work)
            }
            Some((first, order)) if self.reserved(process, page, order) => {
                self.join(process, first, order, work)
            }
            _ => Ok(None),
        }
    }

    /// Whether a page of this order around `page` was reserved.
    fn reserved(&self, process: u32, page: u64, order: u8) -> bool {
        let reserved = self.reservations.order(process, page);
        reserved.is_some_and(|reserved| reserved >= order)
    }

    /// The next larger page around `page` that its mapping could have.
    fn next_larger(&self, process: u32, page: u64) -> Result<Option<(u64, u8)>, ItaniumError> {
        let space = self.space(process)?;
        let order = space.table.get(page).map_or(0, |entry| entry.order);
        let larger = (order + 1..u32::BITS as u8).find(|o| self.settings.orders.contains(*o));
        Ok(larger
            .map(|larger| (page & !((1 << larger) - 1), larger))
            .filter(|(first, larger)| self.is_in_one_mapping(process, *first, *larger)))
    }

    pub(super) fn is_in_one_mapping(&self, process: u32, first: u64, order: u8) -> bool {
        let space = self.space(process).ok();
        let mapping = space.and_then(|space| space.mapping_of(first));
        mapping.is_some_and(|(start, mapping)| {
            mapping.backing == Backing::Anonymous && first + (1 << order) <= start + mapping.pages
        })
    }

    /// Makes one page of smaller ones that already lie in place. `None` if they don't, or if some
    /// have no memory.
    pub(super) fn join(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        work: &mut Counters,
    ) -> Result<Option<Purge>, ItaniumError> {
        let parts = self.parts(process, first, order)?;
        let Some((parts, frame)) = parts.and_then(|parts| {
            let frame = parts.joined?;
            Some((parts, frame))
        }) else {
            return Ok(None);
        };
        self.enter(process, first, order, frame, parts.writable)?;
        self.promoted(process, first, order, work)
    }

    /// Makes one page of smaller ones by copying them to neighbouring frames. Parts without memory
    /// are filled only if that is allowed. `None` if the promotion is not possible.
    pub(super) fn promote(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        fill: bool,
        work: &mut Counters,
    ) -> Result<Option<Purge>, ItaniumError> {
        let pages = 1 << order;
        let Some(parts) = self.parts(process, first, order)? else {
            return Ok(None);
        };
        if parts.present < pages && (!fill || self.add_leaves(process, first, pages).is_err()) {
            return Ok(None);
        }
        let Some(frame) = self.buddy.allocate(order) else {
            self.fail(order);
            return Ok(None);
        };
        for page in first..first + pages {
            if let Some(before) = self.space(process)?.table.get(page) {
                self.release(before.frame);
            }
        }
        self.enter(process, first, order, frame, parts.writable)?;
        let base = self.settings.base.bytes();
        work.copied_bytes += parts.present * base;
        work.zeroed_bytes += (pages - parts.present) * base;
        self.promoted(process, first, order, work)
    }

    fn promoted(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        work: &mut Counters,
    ) -> Result<Option<Purge>, ItaniumError> {
        self.statistics.promoted.add(order);
        work.remaps += 1;
        work.sized_entries += 1 << order;
        self.purge(process, first, 1 << order, false).map(Some)
    }

    /// The parts of a page that could be made. `None` in these cases: nothing is present, something
    /// is already as large, a frame is shared, or some parts are writable and others are not.
    fn parts(&self, process: u32, first: u64, order: u8) -> Result<Option<Parts>, ItaniumError> {
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
