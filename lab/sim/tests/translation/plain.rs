//! The rules of fast translation again, as plainly as possible: lists in order of use, maps, one
//! access after the other. It uses only data of the fast model, no code.

mod lists;
mod walks;

use hawkeye_sim::mmu::translation::{
    EntrySize, LeafSize, ProgramWork, TranslationCounters as Counters, TranslatorSpec,
};
use hawkeye_sim::mmu::{CoalescedPageGroup, GiantPages, L1TlbSpec, TlbGroupCondition};
use lists::{PlainEntry, PlainLru, PlainTlb};
use std::collections::{BTreeMap, BTreeSet};

/// A page: size, number among the pages of its size.
type PlainPage = (LeafSize, u64);

#[derive(Clone, Debug)]
pub struct PlainRegion {
    pub size: Option<LeafSize>,
    pub host: EntrySize,
    pub in_huge_group: bool,
    pub groups: BTreeSet<u64>,
    pub present: BTreeSet<u64>,
    pub protected: BTreeSet<u64>,
}

impl Default for PlainRegion {
    fn default() -> Self {
        Self {
            size: None,
            host: EntrySize::Giant,
            in_huge_group: false,
            groups: BTreeSet::new(),
            present: BTreeSet::new(),
            protected: BTreeSet::new(),
        }
    }
}

/// A line of a table: its kind (5 levels each of the address space, of the host for memory, of the
/// host for tables) and its number.
type PlainLine = (u32, u32);

pub struct PlainTranslator {
    spec: TranslatorSpec,
    pub regions: BTreeMap<u64, PlainRegion>,
    pub accessed: BTreeSet<PlainPage>,
    pub base_group: Option<CoalescedPageGroup>,
    pub huge_group: Option<CoalescedPageGroup>,
    /// Numbers of pieces of 1 GiB, of 512 GiB, of 256 TiB, in order of their first mapping.
    numbers: [BTreeMap<u64, u32>; 3],
    l1: [PlainTlb; 3],
    l1_is_shared: bool,
    l2: PlainTlb,
    l2_giant: Option<PlainTlb>,
    l2_large: Option<PlainTlb>,
    upper: [PlainLru<u32>; 3],
    host_upper: [PlainLru<(bool, u32)>; 3],
    nested_tlb: PlainLru<u32>,
    caches: [BTreeMap<u64, PlainLru<PlainLine>>; 2],
    missed_last: Option<u64>,
    pub counters: Counters,
}

impl PlainTranslator {
    pub fn new(spec: &TranslatorSpec) -> Self {
        let processor = &spec.processor;
        let (l1, l1_is_shared) = match processor.l1_tlb {
            L1TlbSpec::Split { base, huge, giant } => {
                ([base, huge, giant].map(PlainTlb::new), false)
            }
            L1TlbSpec::Shared(shape) => ([shape; 3].map(PlainTlb::new), true),
        };
        let upper = |c: hawkeye_sim::mmu::WalkCacheSizes| [c.pde, c.pdpte, c.pml4e];
        let nested = processor.nested;
        Self {
            spec: *spec,
            regions: BTreeMap::new(),
            accessed: BTreeSet::new(),
            base_group: processor.groups.base,
            huge_group: processor.groups.huge,
            numbers: Default::default(),
            l1,
            l1_is_shared,
            l2: PlainTlb::new(processor.l2_tlb.shape),
            l2_giant: match processor.l2_tlb.giant {
                GiantPages::Own(shape) => Some(PlainTlb::new(shape)),
                _ => None,
            },
            l2_large: processor.l2_tlb.large.map(PlainTlb::new),
            upper: upper(processor.walk_caches).map(|n| PlainLru::new(n as usize)),
            host_upper: upper(nested.walk_caches).map(|n| PlainLru::new(n as usize)),
            nested_tlb: PlainLru::new(nested.tlb as usize),
            caches: Default::default(),
            missed_last: None,
            counters: Counters::default(),
        }
    }

    /// Records that something was mapped here, in the same order as in the fast model.
    pub fn number(&mut self, address: u64) {
        // Number 0 of the first two is empty.
        for (level, (shift, first)) in [(30, 1), (39, 1), (48, 0)].into_iter().enumerate() {
            let next = self.numbers[level].len() as u32 + first;
            self.numbers[level].entry(address >> shift).or_insert(next);
        }
    }

    fn number_of(&self, level: usize, address: u64) -> u32 {
        self.numbers[level][&(address >> [30, 39, 48][level])]
    }

    fn entries(&self, address: u64) -> [u32; 5] {
        let [chunk, block, top] = [0, 1, 2].map(|level| self.number_of(level, address));
        let index = |shift: u32, bits: u32| (address >> shift) as u32 & ((1 << bits) - 1);
        [
            chunk << 18 | index(12, 18),
            chunk << 9 | index(21, 9),
            block << 9 | index(30, 9),
            top << 9 | index(39, 9),
            index(48, 9),
        ]
    }

    /// Makes one access; false if it faults.
    pub fn access(&mut self, address: u64, store: bool, work: ProgramWork) -> bool {
        let Some(region) = self.regions.get(&(address >> 21)).cloned() else {
            return false;
        };
        let Some(leaf) = region.size else {
            return false;
        };
        let base_page = address >> 12;
        if leaf == LeafSize::Base && !region.present.contains(&base_page)
            || store && region.protected.contains(&base_page)
        {
            return false;
        }
        let mut counters = self.counters;
        counters.accesses += 1;
        counters.millicycles += u64::from(work.millicycles_per_access);
        // Sizes to look up, in order; the first hit counts.
        let looked_for: Vec<EntrySize> = match leaf {
            LeafSize::Giant => vec![EntrySize::Giant],
            LeafSize::Huge if region.in_huge_group => vec![EntrySize::HugeGroup],
            LeafSize::Huge => vec![EntrySize::Huge],
            LeafSize::Base if !self.in_group(&region, base_page) => vec![EntrySize::Base],
            LeafSize::Base if self.is_seen(base_page) => vec![EntrySize::BaseGroup],
            LeafSize::Base => vec![EntrySize::BaseGroup, EntrySize::Base],
        };
        let mut looked_for: Vec<EntrySize> =
            looked_for.into_iter().map(|size| size.min(region.host)).collect();
        looked_for.dedup();
        let waited = match looked_for[..] {
            [entry] => self.translate(address, (leaf, entry), store, &mut counters),
            _ => self.translate_seeming(address, store, &mut counters),
        };
        counters.millicycles += waited * u64::from(work.waited_permille);
        self.counters = counters;
        true
    }

    fn translate(
        &mut self,
        address: u64,
        (leaf, entry): (LeafSize, EntrySize),
        store: bool,
        counters: &mut Counters,
    ) -> u64 {
        if self.first_level(entry, address, PlainLru::access) {
            return 0;
        }
        counters.l1_misses += 1;
        let mut cycles = u64::from(self.spec.processor.l2_tlb.hit_cycles);
        if !self.second_level(entry, address) {
            cycles = self.walk_counted(address, leaf, store, counters);
            counters.walks_by_size[entry as usize] += 1;
        }
        if self.spec.next_page_prefetch && entry == EntrySize::Base {
            self.prefetch(address, counters);
        }
        cycles
    }

    /// The same for a page of a group that is not seen as one: as the group, and as itself.
    fn translate_seeming(&mut self, address: u64, store: bool, counters: &mut Counters) -> u64 {
        let both = [EntrySize::BaseGroup, EntrySize::Base];
        for size in both {
            if self.first_level(size, address, PlainLru::access_if_present) {
                return 0;
            }
        }
        counters.l1_misses += 1;
        for size in both {
            let entry = self.entry(size, address);
            let level = match &mut self.l2_large {
                Some(large) if size == EntrySize::BaseGroup => large,
                _ => &mut self.l2,
            };
            if level.set(entry).access_if_present(entry) {
                self.first_level(size, address, PlainLru::access);
                return u64::from(self.spec.processor.l2_tlb.hit_cycles);
            }
        }
        let cycles = self.walk_counted(address, LeafSize::Base, store, counters);
        let size = match self.is_seen(address >> 12) {
            true => EntrySize::BaseGroup,
            false => EntrySize::Base,
        };
        counters.walks_by_size[size as usize] += 1;
        self.second_level(size, address);
        self.first_level(size, address, PlainLru::access);
        cycles
    }

    fn walk_counted(
        &mut self,
        address: u64,
        leaf: LeafSize,
        store: bool,
        counters: &mut Counters,
    ) -> u64 {
        let cycles = self.walk(address, leaf, counters);
        if store {
            counters.store_walk_cycles += cycles;
        } else {
            counters.load_walk_cycles += cycles;
        }
        let marked = self.bit_of(leaf, address);
        counters.first_touches += u64::from(self.accessed.insert(marked));
        cycles
    }

    /// Position of an access bit. In a marked group the first page's stands for all.
    pub fn bit_of(&self, leaf: LeafSize, address: u64) -> PlainPage {
        let region = &self.regions[&(address >> 21)];
        let number = address / leaf.bytes();
        let group = match leaf {
            LeafSize::Base if self.in_group(region, number) => self.base_group,
            LeafSize::Huge if region.in_huge_group => self.huge_group,
            _ => None,
        };
        match group {
            Some(group) if group.condition == TlbGroupCondition::Marked => {
                (leaf, number >> group.order << group.order)
            }
            _ => (leaf, number),
        }
    }

    fn in_group(&self, region: &PlainRegion, page: u64) -> bool {
        let group = self.base_group;
        group.is_some_and(|group| region.groups.contains(&(page >> group.order)))
    }

    fn is_seen(&self, page: u64) -> bool {
        let Some(group) = self.base_group else {
            return false;
        };
        let first = page >> group.order << group.order;
        let mut pages = first..first + (1 << group.order);
        group.condition == TlbGroupCondition::Marked
            || pages.all(|page| self.accessed.contains(&(LeafSize::Base, page)))
    }

    fn bytes(&self, size: EntrySize, in_l1: bool) -> u64 {
        let group = match size {
            EntrySize::BaseGroup => self.base_group,
            EntrySize::HugeGroup => self.huge_group,
            _ => None,
        };
        let pages = match group {
            Some(group) if group.in_l1 || !in_l1 => 1 << group.order,
            _ => 1,
        };
        size.leaf().bytes() * pages
    }

    /// Pieces of 1 GiB are numbered in order of their first mapping, and what is in them by
    /// address.
    fn numbered(&self, size: EntrySize, address: u64, in_l1: bool) -> PlainEntry {
        let piece = u64::from(self.number_of(0, address));
        let counted = piece << 30 | address & ((1 << 30) - 1);
        (size, counted / self.bytes(size, in_l1))
    }

    fn entry(&self, size: EntrySize, address: u64) -> PlainEntry {
        self.numbered(size, address, false)
    }

    fn first_level(
        &mut self,
        size: EntrySize,
        address: u64,
        access: fn(&mut PlainLru<PlainEntry>, PlainEntry) -> bool,
    ) -> bool {
        let entry = self.numbered(size, address, true);
        let own = size.leaf() as usize;
        let tlb = if self.l1_is_shared { 0 } else { own };
        access(self.l1[tlb].set(entry), entry)
    }

    fn second_level(&mut self, size: EntrySize, address: u64) -> bool {
        let spec = self.spec.processor.l2_tlb;
        let entry = self.entry(size, address);
        if let (Some(large), true) = (&mut self.l2_large, size != EntrySize::Base) {
            return large.set(entry).access(entry);
        }
        let (entry, ways) = match (size.leaf(), spec.giant) {
            (LeafSize::Base, _) => (entry, spec.shape.ways),
            (LeafSize::Huge, _) => (entry, spec.huge_ways),
            (LeafSize::Giant, GiantPages::Nowhere) => return false,
            (LeafSize::Giant, GiantPages::Among { ways }) => (entry, ways),
            (LeafSize::Giant, GiantPages::AsHuge) => {
                let piece = self.entry(EntrySize::Huge, address);
                (piece, spec.huge_ways)
            }
            (LeafSize::Giant, GiantPages::Own(_)) => {
                let own = self.l2_giant.as_mut();
                return own.is_some_and(|tlb| tlb.set(entry).access(entry));
            }
        };
        let set = self.l2.set(entry);
        set.access_with_way_limit(entry, ways as usize, |other| other.0.leaf() == entry.0.leaf())
    }

    fn prefetch(&mut self, address: u64, counters: &mut Counters) {
        let number = address >> 12;
        let before = number.wrapping_sub(1);
        let follows = self.missed_last == Some(before) && before >> 18 == number >> 18;
        self.missed_last = Some(number);
        let next = address + 4096;
        if !follows || next >> 30 != address >> 30 {
            return;
        }
        let Some(region) = self.regions.get(&(next >> 21)).cloned() else {
            return;
        };
        let Some(leaf) = region.size else { return };
        let there = leaf != LeafSize::Base || region.present.contains(&(next >> 12));
        let alone = leaf == LeafSize::Base && !self.in_group(&region, next >> 12);
        if !there || !alone && region.host != EntrySize::Base {
            return;
        }
        if !self.second_level(EntrySize::Base, next) {
            self.walk(next, leaf, counters);
            counters.prefetches += 1;
        }
    }

    pub fn invalidate(&mut self, begin: u64, end: u64) {
        let pieces: BTreeMap<u64, u64> =
            self.numbers[0].iter().map(|(gib, number)| (u64::from(*number), *gib)).collect();
        let [in_l2, in_l1] =
            [false, true].map(|in_l1| EntrySize::ALL.map(|size| self.bytes(size, in_l1)));
        let keep = |bytes: &[u64; 5], entry: &PlainEntry| {
            let bytes = bytes[entry.0 as usize];
            let counted = entry.1 * bytes;
            let first = pieces[&(counted >> 30)] << 30 | counted & ((1 << 30) - 1);
            end <= first || first + bytes <= begin
        };
        for tlb in &mut self.l1 {
            tlb.retain(&|entry| keep(&in_l1, entry));
        }
        let second = [&mut self.l2].into_iter().chain(&mut self.l2_giant);
        for tlb in second.chain(&mut self.l2_large) {
            tlb.retain(&|entry| keep(&in_l2, entry));
        }
        let upper = self.upper.iter_mut();
        upper.for_each(|cache| cache.entries.clear());
    }

    pub fn invalidate_all_and_host(&mut self) {
        self.invalidate(0, u64::MAX);
        let host = self.host_upper.iter_mut();
        host.for_each(|cache| cache.entries.clear());
        self.nested_tlb.entries.clear();
    }
}
