//! `mremap`.

use super::{Kernel, Mapping, Purge};
use crate::ItaniumError;
use crate::address::{REGION_LIMIT, offset_of};
use crate::mmu::{Counters, Pte};

/// Pages from here to there.
struct Move {
    process: u32,
    from: u64,
    to: u64,
    pages: u64,
}

impl Kernel {
    /// Makes a part of a mapping longer or shorter, in place if there is room and elsewhere if not.
    /// Returns its first byte, and the translations to purge.
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
        work: &mut Counters,
    ) -> Result<(u64, Option<Purge>), ItaniumError> {
        let base = self.settings.base;
        let (first, old_pages) = self.range(address, old_bytes)?;
        if self.is_unsplittable(first) {
            // As on Linux, which refuses this for hugetlb pages.
            return Err(ItaniumError::Range {
                address,
                bytes: old_bytes,
            });
        }
        let (_, new_pages) = self.range(0, new_bytes)?;
        let space = self.space(process)?;
        let (start, mapping) = match space.mapping_of(first) {
            Some((start, mapping)) if first + old_pages <= start + mapping.pages => {
                (start, mapping)
            }
            _ => return Err(ItaniumError::NotMapped { process, address }),
        };
        if new_pages == old_pages {
            return Ok((address, None));
        }
        if new_pages < old_pages {
            let tail = base.address_of(first + new_pages);
            let bytes = base.address_of(old_pages - new_pages);
            return Ok((address, Some(self.munmap(process, tail, bytes)?)));
        }
        let end = first + old_pages;
        let more = new_pages - old_pages;
        let in_region = offset_of(base.address_of(end)) + base.address_of(more) <= REGION_LIMIT;
        if end == start + mapping.pages && in_region && space.is_free(end, more) {
            let longer = Mapping {
                pages: mapping.pages + more,
                ..mapping
            };
            self.size(process, end, more, mapping.backing, work)?;
            self.space_mut(process)?.mappings.insert(start, longer);
            return Ok((address, None));
        }
        let align = base.pages(self.settings.vm_align_bytes);
        let to = space.place(base, new_pages, align);
        let to = to.ok_or(ItaniumError::NoRoom(process))?;
        // Memory first: without it, the call must change nothing.
        let entries = if self.gives_sizes(mapping.backing) {
            new_pages
        } else {
            old_pages
        };
        self.add_leaves(process, to, entries)?;
        let purge = self.purge(process, first, old_pages, true)?;
        self.unreserve(process, first, old_pages);
        self.cut_out(process, first, old_pages)?;
        self.carry(&Move {
            process,
            from: first,
            to,
            pages: old_pages,
        })?;
        let mappings = &mut self.space_mut(process)?.mappings;
        mappings.remove(&first);
        let moved = Mapping {
            pages: new_pages,
            ..mapping
        };
        mappings.insert(to, moved);
        self.space_mut(process)?.cut_heap(first, old_pages);
        self.size(process, to + old_pages, more, mapping.backing, work)?;
        Ok((base.address_of(to), Some(purge)))
    }

    /// Moves entries. Memory stays where it is, so a page keeps its size only if its new place is
    /// aligned as its memory is.
    fn carry(&mut self, how: &Move) -> Result<(), ItaniumError> {
        let orders = self.settings.orders;
        let mut done = 0;
        while done < how.pages {
            let from = how.from + done;
            let Some(entry) = self.space(how.process)?.table.get(from) else {
                done += 1;
                continue;
            };
            let pages = 1 << entry.order;
            let mut at = 0;
            while at < pages {
                let to = how.to + done + at;
                let alignment = if entry.present {
                    to | (u64::from(entry.frame) + at)
                } else {
                    to
                };
                let order = orders.largest(alignment, pages - at, entry.order);
                for page in at..at + (1 << order) {
                    self.ensure_leaf(how.process, how.to + done + page)?;
                    let table = &mut self.space_mut(how.process)?.table;
                    let kept = table.get(from + page).map(|kept| Pte { order, ..kept });
                    table.set(how.to + done + page, kept);
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
