//! Mappings of the plain machine: their contents, and the processes that share them.

use super::{REGION, ReferenceMachine, ReferencePage, ReferenceResult};
use hawkeye_itanium::mmu::WalkerMode;

impl ReferenceMachine {
    pub(super) fn add(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
        mapping: u64,
        may_write: bool,
    ) {
        let pieces = self.cover(first, pages, |_, _| true);
        if self.orders.len() > 1 {
            self.counters.sized_entries += pages;
        }
        for (start, order) in pieces {
            for page in start..start + (1 << order) {
                let new =
                    ReferencePage { mapping, may_write, order, memory: None, writable: false };
                self.pages(process).insert(page, new);
            }
        }
    }

    pub(super) fn place(&self, process: u32, pages: u64) -> u64 {
        let align_bytes = self.setup.kernel.vm_align_bytes;
        let align = align_bytes.div_ceil(self.page_bytes()).max(1);
        let first = (REGION + 0x25_0000) / self.page_bytes();
        let mapped = &self.process(process).unwrap().pages;
        let mut at = first.next_multiple_of(align);
        while mapped.range(at..at + pages).next().is_some() {
            at += align;
        }
        at
    }

    pub(super) fn mmap(
        &mut self,
        process: u32,
        pages: u64,
        at: Option<u64>,
    ) -> ReferenceResult<u64> {
        self.process(process)?;
        let first = at.unwrap_or_else(|| self.place(process, pages));
        let mapped = &self.process(process)?.pages;
        if mapped.range(first..first + pages).next().is_some() {
            return Err(());
        }
        let mapping = self.number();
        self.add(process, first, pages, mapping, true);
        Ok(first)
    }

    pub(super) fn cut(&mut self, process: u32, at: u64) {
        let whole = self.whole(process, at);
        if whole.start < at {
            let parts = [
                self.cover(whole.start, at - whole.start, |_, _| true),
                self.cover(at, whole.end - at, |_, _| true),
            ];
            for (start, order) in parts.concat() {
                for page in start..start + (1 << order) {
                    self.pages(process).get_mut(&page).unwrap().order = order;
                }
            }
        }
        let pages = &self.process(process).unwrap().pages;
        let of = |page: u64| pages.get(&page).map(|page| page.mapping);
        if let Some(mapping) = of(at).filter(|_| at > 0 && of(at) == of(at - 1)) {
            let new = self.number();
            for (_, page) in self.pages(process).range_mut(at..) {
                if page.mapping == mapping {
                    page.mapping = new;
                }
            }
        }
    }

    pub(super) fn purge(&mut self, process: u32, pages: std::ops::Range<u64>, tables: bool) {
        let rid = self.rid(process, pages.start);
        let bytes = self.page_bytes();
        let (start, end) = (pages.start * bytes % REGION, (pages.end - 1) * bytes % REGION + bytes);
        self.tlb.retain(|entry| {
            entry.table || entry.rid != rid || entry.end <= start || end <= entry.start
        });
        self.l1.retain(|(r, page)| *r != rid || page * 4096 < start || end <= page * 4096);
        if let WalkerMode::LongFormat { entries, .. } = self.setup.walker {
            for page in start / bytes..end / bytes {
                self.hash.remove(&((page ^ u64::from(rid)) % u64::from(entries)));
                self.counters.hash_entries += 1;
            }
        } else if tables {
            self.tlb.retain(|entry| {
                !entry.table || entry.rid != rid || entry.end <= start || end <= entry.start
            });
        }
    }

    pub(super) fn hull(&self, process: u32, first: u64, pages: u64) -> std::ops::Range<u64> {
        self.whole(process, first).start..self.whole(process, first + pages - 1).end
    }

    pub(super) fn munmap(&mut self, process: u32, first: u64, pages: u64) -> ReferenceResult<()> {
        self.process(process)?;
        let hull = self.hull(process, first, pages);
        self.cut(process, first);
        self.cut(process, first + pages);
        self.pages(process).retain(|page, _| !(first..first + pages).contains(page));
        self.purge(process, hull, true);
        Ok(())
    }

    pub(super) fn shared(&self, process: u32, page: u64) -> bool {
        let memory = self.process(process).unwrap().pages[&page].memory;
        let all = self.processes.iter().flatten().flat_map(|p| p.pages.values());
        memory.is_some() && all.filter(|page| page.memory == memory).count() > 1
    }

    pub(super) fn mprotect(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
        allow: bool,
    ) -> ReferenceResult<()> {
        self.must_be_mapped(process, first, pages)?;
        let hull = self.hull(process, first, pages);
        self.cut(process, first);
        self.cut(process, first + pages);
        for page in first..first + pages {
            let mut whole = self.whole(process, page);
            let shared = whole.any(|page| self.shared(process, page));
            let page = self.pages(process).get_mut(&page).unwrap();
            page.may_write = allow;
            page.writable = allow && !shared && page.memory.is_some();
        }
        self.purge(process, hull, false);
        Ok(())
    }

    pub(super) fn mremap(
        &mut self,
        process: u32,
        first: u64,
        old: u64,
        new: u64,
    ) -> ReferenceResult<u64> {
        let pages = &self.process(process)?.pages;
        let of = |page: u64| pages.get(&page).map(|page| (page.mapping, page.may_write));
        let Some((mapping, may_write)) = of(first) else {
            return Err(());
        };
        if (first..first + old).any(|page| of(page).is_none_or(|of| of.0 != mapping)) {
            return Err(());
        }
        if new <= old {
            if new < old {
                self.munmap(process, first + new, old - new)?;
            }
            return Ok(first);
        }
        let end = first + old;
        if (end..first + new).all(|page| of(page).is_none()) {
            self.add(process, end, new - old, mapping, may_write);
            return Ok(first);
        }
        let to = self.place(process, new);
        let hull = self.hull(process, first, old);
        self.cut(process, first);
        self.cut(process, end);
        let number = self.number();
        let mut at = first;
        while at < end {
            let whole = self.whole(process, at);
            let start = to + whole.start - first;
            let backed = self.pages(process)[&whole.start].memory.is_some();
            let parts = self.cover(start, whole.end - whole.start, |page, size| {
                // Memory is aligned as the page was.
                !backed || (page - start) % size == 0
            });
            for (part, order) in parts {
                for page in part..part + (1 << order) {
                    let from = page - to + first;
                    let before = self.pages(process).remove(&from).unwrap();
                    let moved = ReferencePage { mapping: number, order, ..before };
                    self.pages(process).insert(page, moved);
                }
            }
            at = whole.end;
        }
        self.add(process, to + old, new - old, number, may_write);
        self.purge(process, hull, true);
        Ok(to)
    }

    pub(super) fn fork(&mut self, process: u32) -> ReferenceResult<u32> {
        let mut parent = self.process(process)?.clone();
        for page in parent.pages.values_mut() {
            page.writable = false;
        }
        let mut child = parent.clone();
        parent.context = self.context();
        child.context = self.context();
        self.processes[process as usize] = Some(parent);
        self.processes.push(Some(child));
        Ok(self.processes.len() as u32 - 1)
    }

    pub(super) fn exit(&mut self, process: u32) -> ReferenceResult<()> {
        self.process(process)?;
        self.processes[process as usize] = None;
        Ok(())
    }
}
