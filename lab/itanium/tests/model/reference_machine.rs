//! The same machine, written as lists and maps and without any regard to speed. A TLB is a list in
//! order of use. A page is shared if another process has its memory. Memory has no addresses.

mod mapping;

use super::calls::{Call, Step};
use hawkeye_itanium::MachineSettings;
use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::kernel::LargePageCopyOnWrite;
use hawkeye_itanium::mmu::{ItaniumCounters, LargePageHashFill, TlbReplacement, WalkerMode};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct ReferencePage {
    mapping: u64,
    may_write: bool,
    order: u8,
    /// Identity of the memory, once there is any.
    memory: Option<u64>,
    writable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ReferenceEntry {
    rid: u32,
    /// First byte of the page. For entries of tables, first byte of the range of their entries.
    start: u64,
    end: u64,
    table: bool,
    writable: bool,
}

#[derive(Clone, Debug)]
struct ReferenceProcess {
    context: u32,
    /// By number, all regions in one.
    pages: BTreeMap<u64, ReferencePage>,
}

#[derive(Clone, Debug, Default)]
pub struct ReferenceMachine {
    setup: MachineSettings,
    orders: Vec<u8>,
    processes: Vec<Option<ReferenceProcess>>,
    contexts: u32,
    numbers: u64,
    /// In the order of replacement.
    tlb: Vec<ReferenceEntry>,
    l1: Vec<(u32, u64)>,
    /// By place: the base page under which it is entered, and the entry.
    hash: BTreeMap<u64, ((u32, u64), ReferenceEntry)>,
    pub counters: ItaniumCounters,
}

type ReferenceResult<T> = Result<T, ()>;

const REGION: u64 = 1 << 61;

impl ReferenceMachine {
    pub fn new(setup: MachineSettings) -> Self {
        let base = setup.kernel.base;
        let orders = (0..32).filter(|order| setup.kernel.orders.contains(*order));
        assert!(base == BasePageSize::Kib4 || base == BasePageSize::Kib16);
        Self { orders: orders.collect(), setup, ..Self::default() }
    }

    fn page_bytes(&self) -> u64 {
        self.setup.kernel.base.bytes()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn context(&mut self) -> u32 {
        self.contexts += 1;
        self.contexts
    }

    fn process(&self, process: u32) -> ReferenceResult<&ReferenceProcess> {
        self.processes.get(process as usize).and_then(Option::as_ref).ok_or(())
    }

    fn pages(&mut self, process: u32) -> &mut BTreeMap<u64, ReferencePage> {
        &mut self.processes[process as usize].as_mut().unwrap().pages
    }

    fn rid(&self, process: u32, page: u64) -> u32 {
        let region = (page * self.page_bytes() / REGION) as u32;
        let id = self.process(process).unwrap().context * 8 + region;
        let low = (0..16).filter(|bit| id >> bit & 1 == 1);
        (id >> 16 << 16) + low.map(|bit| 1 << (15 - bit)).sum::<u32>()
    }

    fn cover(&self, first: u64, pages: u64, fits: impl Fn(u64, u64) -> bool) -> Vec<(u64, u8)> {
        let mut pieces = Vec::new();
        let mut at = first;
        while at < first + pages {
            let good = |order: &&u8| {
                let size = 1u64 << **order;
                at % size == 0 && at + size <= first + pages && fits(at, size)
            };
            let order = *self.orders.iter().rfind(good).unwrap();
            pieces.push((at, order));
            at += 1 << order;
        }
        pieces
    }

    fn whole(&self, process: u32, page: u64) -> std::ops::Range<u64> {
        let known = self.process(process).unwrap().pages.get(&page);
        let size = known.map_or(1, |known| 1u64 << known.order);
        page / size * size..page / size * size + size
    }

    pub fn spawn(&mut self) -> u32 {
        let context = self.context();
        self.processes.push(Some(ReferenceProcess { context, pages: BTreeMap::new() }));
        self.processes.len() as u32 - 1
    }

    /// Makes a call, as [`super::calls::make`] does on the machine.
    pub fn make(&mut self, (process, call): &Step, page: impl Fn(u64) -> u64) -> Option<u64> {
        let process = *process;
        let zero = |()| 0;
        let done = match *call {
            Call::Spawn => Ok(self.spawn().into()),
            Call::Map(pages, at) => self.mmap(process, pages, at.map(page)),
            Call::Unmap(at, pages) => self.munmap(process, page(at), pages).map(zero),
            Call::Protect(at, pages, write) => {
                self.mprotect(process, page(at), pages, write).map(zero)
            }
            Call::Remap(at, old, new) => self.mremap(process, page(at), old, new),
            Call::Populate(at, pages) => self.populate(process, page(at), pages).map(zero),
            Call::Fork => self.fork(process).map(u64::from),
            Call::Exit => self.exit(process).map(zero),
            Call::Access(at, pages, write, times) => {
                let places = (0..times).flat_map(|_| at..at + pages);
                let one = |place| self.access(process, page(place), write);
                places.map(one).fold(Ok(()), Result::and).map(zero)
            }
        };
        done.ok()
    }

    fn must_be_mapped(&self, process: u32, first: u64, pages: u64) -> ReferenceResult<()> {
        let mapped = &self.process(process)?.pages;
        let count = mapped.range(first..first + pages).count() as u64;
        if count == pages { Ok(()) } else { Err(()) }
    }

    fn populate(&mut self, process: u32, first: u64, pages: u64) -> ReferenceResult<()> {
        self.must_be_mapped(process, first, pages)?;
        for page in first..first + pages {
            if self.process(process)?.pages[&page].memory.is_none() {
                self.fault(process, page, false)?;
            }
        }
        Ok(())
    }

    fn fault(&mut self, process: u32, page: u64, write: bool) -> ReferenceResult<()> {
        let known = *self.process(process)?.pages.get(&page).ok_or(())?;
        if write && !known.may_write {
            return Err(());
        }
        self.counters.page_faults += 1;
        let bytes = self.page_bytes();
        if known.memory.is_none() {
            let mut order = known.order;
            let fragmented = self.setup.fragmentation;
            while fragmented.is_some_and(|how| order >= how.order) {
                order = *self.orders.iter().rfind(|lower| **lower < order).unwrap();
                // All of the larger page becomes as small.
                for page in self.whole(process, page) {
                    self.pages(process).get_mut(&page).unwrap().order = order;
                }
            }
            for page in self.whole(process, page) {
                let memory = self.number();
                let page = self.pages(process).get_mut(&page).unwrap();
                page.memory = Some(memory);
                page.writable = page.may_write;
            }
            self.counters.zeroed_bytes += bytes << order;
            return Ok(());
        }
        let whole = self.whole(process, page);
        let any_shared = whole.clone().any(|page| self.shared(process, page));
        let large = self.setup.kernel.copy_on_write == LargePageCopyOnWrite::CopyLarge;
        let fragmented = self.setup.fragmentation;
        let can = fragmented.is_none_or(|how| known.order < how.order);
        let copied = if !any_shared || large && can {
            whole.clone()
        } else {
            for page in whole.clone() {
                self.pages(process).get_mut(&page).unwrap().order = 0;
            }
            page..page + 1
        };
        if copied.clone().any(|page| self.shared(process, page)) {
            for page in copied.clone() {
                let memory = self.number();
                self.pages(process).get_mut(&page).unwrap().memory = Some(memory);
                self.counters.copied_bytes += bytes;
            }
        }
        for page in copied {
            self.pages(process).get_mut(&page).unwrap().writable = true;
        }
        self.purge(process, whole, false);
        Ok(())
    }

    fn find(&mut self, is: impl Fn(&ReferenceEntry) -> bool) -> Option<ReferenceEntry> {
        let place = self.tlb.iter().position(is)?;
        let entry = self.tlb[place];
        if self.setup.processor.replacement == TlbReplacement::Lru {
            self.tlb.remove(place);
            self.tlb.push(entry);
        }
        Some(entry)
    }

    fn insert(&mut self, entry: ReferenceEntry) {
        let pinned = self.setup.walker.pinned_entry_count() + self.setup.fake_pinned;
        let room = self.setup.processor.l2_entries - pinned;
        if self.tlb.len() == room as usize {
            self.tlb.remove(0);
        }
        self.tlb.push(entry);
    }

    fn access(&mut self, process: u32, page: u64, write: bool) -> ReferenceResult<()> {
        self.process(process)?;
        self.counters.references += 1;
        let bytes = self.page_bytes();
        let offset = page * bytes % REGION;
        let entries_of_a_table = bytes / 8;
        let reach = entries_of_a_table * bytes;
        let mut missed = false;
        loop {
            let rid = self.rid(process, page);
            let here = |e: &ReferenceEntry| e.rid == rid && e.start <= offset && offset < e.end;
            if let Some(entry) = self.find(|e| !e.table && here(e)) {
                if write && !entry.writable {
                    self.fault(process, page, true)?;
                    continue;
                }
                break;
            }
            missed = true;
            self.counters.misses += 1;
            let known = self.process(process)?.pages.get(&page).copied();
            let present = known.filter(|known| known.memory.is_some());
            let entry = present.map(|present| {
                let size = bytes << present.order;
                let start = offset / size * size;
                ReferenceEntry {
                    rid,
                    start,
                    end: start + size,
                    table: false,
                    writable: present.writable,
                }
            });
            let slot = |page: u64, entries: u32| (page ^ u64::from(rid)) % u64::from(entries);
            let mut table = true;
            match self.setup.walker {
                WalkerMode::None => {}
                WalkerMode::ShortFormat => {
                    table = self.find(|e| e.table && here(e)).is_some();
                    if let Some(entry) = entry.filter(|it| table && it.end - it.start == bytes) {
                        self.counters.walker += 1;
                        self.insert(entry);
                        continue;
                    }
                }
                WalkerMode::LongFormat { entries, .. } => {
                    let number = offset / bytes;
                    let there = self.hash.get(&slot(number, entries));
                    let found = there.filter(|there| there.0 == (rid, number));
                    if let Some((_, entry)) = found.copied() {
                        self.counters.walker += 1;
                        self.insert(entry);
                        continue;
                    }
                }
            }
            if table {
                self.counters.software += 1;
            } else {
                self.counters.nested += 1;
            }
            let Some(entry) = entry else {
                self.fault(process, page, write)?;
                continue;
            };
            if !table {
                self.insert(ReferenceEntry {
                    start: offset / reach * reach,
                    end: offset / reach * reach + reach,
                    table: true,
                    ..entry
                });
            }
            if let WalkerMode::LongFormat { entries, fill } = self.setup.walker {
                let (first, missed) = (entry.start / bytes, offset / bytes);
                let pages = entry.end / bytes - first;
                let slots = match fill {
                    LargePageHashFill::First => first..first + 1,
                    LargePageHashFill::Missed => missed..missed + 1,
                    LargePageHashFill::All => first..first + pages,
                    LargePageHashFill::BaseOnly => first..first + u64::from(pages == 1),
                };
                for (place, page) in slots.enumerate() {
                    self.counters.hash_entries += u64::from(place > 0);
                    let before = self.hash.insert(slot(page, entries), ((rid, page), entry));
                    let other = before.is_some_and(|before| before.0 != (rid, page));
                    self.counters.hash_collisions += u64::from(other);
                }
            }
            self.insert(entry);
        }
        let key = (self.rid(process, page), offset / 4096);
        let here = self.l1.contains(&key);
        self.l1.retain(|other| *other != key);
        self.l1.push(key);
        if self.l1.len() > self.setup.processor.l1_entries as usize {
            self.l1.remove(0);
        }
        self.counters.l1_refills += u64::from(missed || !here);
        Ok(())
    }
}
