//! `mremap`.

use super::{ItaniumMachine, PageMapping};
use crate::address::{REGION_LIMIT, offset_of};
use crate::error::{ItaniumError, Result};
use crate::mmu::Pte;

impl ItaniumMachine {
    /// Makes a part of a mapping longer or shorter, in place if there is room and elsewhere if not.
    /// Returns its first byte.
    ///
    /// # Errors
    /// No such process; invalid ranges; not all of it in one mapping; no room, or no memory for
    /// page tables.
    pub fn mremap(
        &mut self,
        process: u32,
        address: u64,
        old_bytes: u64,
        new_bytes: u64,
    ) -> Result<u64> {
        let base = self.base();
        let (first, old_pages) = self.page_range(address, old_bytes)?;
        if self.is_unsplittable(first) {
            // As on Linux, which refuses this for hugetlb pages.
            let bytes = old_bytes;
            return Err(ItaniumError::Range { address, bytes });
        }
        let (_, new_pages) = self.page_range(0, new_bytes)?;
        let space = self.space(process)?;
        let found = space.mapping_of(first);
        let whole = found.filter(|(start, it)| first + old_pages <= start + it.pages);
        let (start, mapping) = whole.ok_or(ItaniumError::NotMapped { process, address })?;
        let of = |pages| PageMapping { pages, ..mapping };
        if new_pages <= old_pages {
            let tail = base.address_of(first + new_pages);
            if new_pages < old_pages {
                self.munmap(process, tail, base.address_of(old_pages - new_pages))?;
            }
            return Ok(address);
        }
        let end = first + old_pages;
        let more = new_pages - old_pages;
        let in_region = offset_of(base.address_of(end)) + base.address_of(more) <= REGION_LIMIT;
        if end == start + mapping.pages && in_region && space.is_free(end, more) {
            self.set_page_sizes_in_entries(process, end, more, mapping.backing)?;
            let longer = of(mapping.pages + more);
            self.space_mut(process)?.mappings.insert(start, longer);
            return Ok(address);
        }
        let align = base.pages(self.setup.kernel.vm_align_bytes);
        let to = space.find_free_range(base, new_pages, align);
        let to = to.ok_or(ItaniumError::NoRoom(process))?;
        // Memory first: without it, the call must change nothing.
        let entries = if self.has_sizes_at_map(mapping.backing) {
            new_pages
        } else {
            old_pages
        };
        self.add_leaves(process, to, entries)?;
        let purge = self.purge_of_pages(process, first, old_pages, true)?;
        self.release_reservations(process, first, old_pages);
        self.split_at_ends(process, first, old_pages)?;
        self.move_entries(process, first, to, old_pages)?;
        let space = self.space_mut(process)?;
        space.mappings.remove(&first);
        space.mappings.insert(to, of(new_pages));
        space.forget_heap_surplus(first, old_pages);
        self.set_page_sizes_in_entries(process, to + old_pages, more, mapping.backing)?;
        self.purge_translations(purge)?;
        Ok(base.address_of(to))
    }

    /// Memory stays, so a page keeps its size only if its new place is aligned as its memory is.
    fn move_entries(&mut self, process: u32, from: u64, to: u64, count: u64) -> Result {
        let orders = self.orders();
        let mut done = 0;
        while done < count {
            let Some(entry) = self.space(process)?.table.get(from + done) else {
                done += 1;
                continue;
            };
            let pages = 1 << entry.order;
            let mut at = 0;
            while at < pages {
                let place = to + done + at;
                let alignment = if entry.present {
                    place | (u64::from(entry.frame) + at)
                } else {
                    place
                };
                let order = orders.largest_order(alignment, pages - at, entry.order);
                for page in done + at..done + at + (1 << order) {
                    self.ensure_leaf(process, to + page)?;
                    let table = &mut self.space_mut(process)?.table;
                    let kept = table.get(from + page).map(|kept| Pte { order, ..kept });
                    table.set(to + page, kept);
                    table.set(from + page, None);
                }
                if order < entry.order && at == 0 {
                    self.statistics.demoted.add(entry.order);
                }
                at += 1 << order;
            }
            done += pages;
        }
        Ok(())
    }
}
