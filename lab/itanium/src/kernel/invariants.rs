//! Invariants of the kernel.

use super::{Backing, Kernel, Space};
use crate::error::Contradiction;
use std::collections::BTreeMap;

impl Kernel {
    /// Checks that the model doesn't contradict itself:
    ///
    /// - All entries of a large page agree.
    /// - Pages are aligned in virtual and physical memory.
    /// - Every frame has as many owners as are counted.
    /// - No frame is both free and owned.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), Contradiction> {
        self.check_free()?;
        let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
        for space in self.spaces.iter().flatten() {
            self.check_entries(space)?;
            let entries = space.table.entries().filter(|(_, entry)| entry.present);
            for frame in entries.map(|(_, entry)| entry.frame) {
                *owners.entry(frame).or_default() += 1;
            }
        }
        for (frame, count) in &owners {
            let counted = self.shared.get(frame).map_or(1, |more| more + 1);
            must(
                counted == *count,
                "owners of a frame are counted wrong",
                (*frame).into(),
            )?;
        }
        let owned = self.shared.keys().find(|frame| !owners.contains_key(frame));
        if let Some(frame) = owned {
            must(
                false,
                "a frame without owners is counted as shared",
                (*frame).into(),
            )?;
        }
        for space in self.spaces.iter().flatten() {
            for frame in space.table.frames() {
                let before = owners.insert(frame, 1);
                must(
                    before.is_none(),
                    "a page table is in a frame of somebody else",
                    frame.into(),
                )?;
            }
        }
        for frame in self.reservations.kept().chain(self.movable.iter().copied()) {
            let before = owners.insert(frame, 1);
            must(
                before.is_none(),
                "a frame that is kept for somebody, or somebody else's, is owned",
                frame.into(),
            )?;
        }
        for (block, order) in self.free_blocks() {
            let used = owners.range(block..block + (1 << order)).next();
            must(used.is_none(), "a frame is free and owned", block.into())?;
        }
        let all = owners.len() as u32 + self.held + self.free_frames();
        must(all == self.frames(), "a frame is lost", all.into())
    }

    fn check_entries(&self, space: &Space) -> Result<(), Contradiction> {
        for (page, entry) in space.table.entries() {
            must(
                space.mapping_of(page).is_some(),
                "a page has an entry without a mapping",
                page,
            )?;
            must(
                self.settings.orders.contains(entry.order),
                "a page is of no size",
                page,
            )?;
            let first = page & !((1 << entry.order) - 1);
            let head = space.table.get(first);
            let same = head.is_some_and(|head| {
                let place = (page - first) as u32;
                let frame = !entry.present
                    || head.frame + place == entry.frame && head.frame % (1 << entry.order) == 0;
                head.order == entry.order
                    && head.present == entry.present
                    && head.writable == entry.writable
                    && frame
            });
            must(same, "entries of a large page disagree", page)?;
            let last = space.table.get(first + (1 << entry.order) - 1);
            let whole = last.is_some_and(|last| last.order == entry.order);
            must(whole, "a large page is not whole", page)?;
            let shared = self.shared.contains_key(&entry.frame);
            must(
                !entry.present || !entry.writable || !shared,
                "a shared frame can be written to",
                page,
            )?;
        }
        let mut end = 0;
        for (first, mapping) in &space.mappings {
            must(*first >= end, "mappings overlap", *first)?;
            end = first + mapping.pages;
            let mut pages = *first..end;
            let unsized_page = pages.find(|page| space.table.get(*page).is_none());
            if let Some(page) = unsized_page
                .filter(|_| self.settings.orders.large() && mapping.backing == Backing::Anonymous)
                .filter(|_| self.settings.policy.rules().sizes_at_map())
            {
                must(false, "a page has no size", page)?;
            }
        }
        Ok(())
    }
}

fn must(right: bool, what: &'static str, page: u64) -> Result<(), Contradiction> {
    if right {
        Ok(())
    } else {
        Err(Contradiction { what, page })
    }
}
