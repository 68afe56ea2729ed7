//! A fully associative TLB with entries of any page size, and the long format: a hash table of
//! translations, one for all processes.

use crate::error::{ItaniumError, Result};
use hawkeye_sim::rng::SimulationRng;

/// The rule by which a second-level TLB replaces an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbReplacement {
    /// The least recently used entry.
    Lru,
    /// The oldest entry.
    Fifo,
    /// A random entry.
    Random,
}

/// A translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbEntry {
    /// Region id of the address space.
    pub rid: u32,
    /// Number of the page in its region, in units of its own size.
    pub page: u64,
    /// log2 of the page's bytes.
    pub shift: u32,
    /// Number of the first frame, in base pages.
    pub frame: u32,
    /// Whether writes are allowed.
    pub writable: bool,
    /// The present parts of the page, one bit for each sub-block. All bits are set in entries
    /// without sub-blocks.
    pub parts: u32,
}

impl TlbEntry {
    /// An entry without sub-blocks.
    pub const fn new_without_sub_blocks(
        rid: u32,
        page: u64,
        shift: u32,
        frame: u32,
        writable: bool,
    ) -> Self {
        Self { rid, page, shift, frame, writable, parts: Self::WHOLE }
    }

    /// log2 of the largest number of sub-blocks.
    pub const MOST_SUB_BLOCKS: u8 = 4;
    /// The parts of an entry without sub-blocks: all present.
    pub const WHOLE: u32 = u32::MAX;

    fn overlaps_range(&self, rid: u32, start: u64, end: u64) -> bool {
        let first = self.page << self.shift;
        self.rid == rid && first < end && start < first + (1 << self.shift)
    }

    /// In a TLB with 2^order sub-blocks. The byte must be in the page.
    fn has_part_at_offset(&self, offset: u64, order: u8) -> bool {
        self.parts == Self::WHOLE || self.parts >> self.part_index_of_offset(offset, order) & 1 != 0
    }

    fn part_index_of_offset(&self, offset: u64, order: u8) -> u64 {
        offset >> (self.shift - u32::from(order)) & ((1 << order) - 1)
    }

    /// The entry with only the part that holds a byte.
    #[must_use]
    pub fn with_only_part_at(self, offset: u64, order: u8) -> Self {
        match self.parts {
            Self::WHOLE => self,
            parts => Self { parts: parts & 1 << self.part_index_of_offset(offset, order), ..self },
        }
    }

    /// The present parts, as entries without sub-blocks.
    pub fn present_parts_as_entries(&self, order: u8) -> Vec<Self> {
        if self.parts == Self::WHOLE {
            return vec![*self];
        }
        let there = (0..1u32 << order).filter(|part| self.parts >> part & 1 != 0);
        let page = |part: u32| Self {
            page: (self.page << order) + u64::from(part),
            shift: self.shift - u32::from(order),
            frame: self.frame + part,
            parts: Self::WHOLE,
            ..*self
        };
        there.map(page).collect()
    }
}

/// A translation lookaside buffer.
#[derive(Clone, Debug)]
pub struct Tlb {
    entries: Vec<Option<TlbEntry>>,
    /// Time of each entry's insertion or, with LRU, of its last use.
    stamps: Vec<u64>,
    free: Vec<u8>,
    index: TlbSlotIndex,
    sizes: [u16; u64::BITS as usize],
    /// Bitmap of the sizes with at least one entry.
    present: u64,
    replacement: TlbReplacement,
    clock: u64,
    rng: SimulationRng,
    /// Number of pinned entries, which are in the first places.
    pinned: usize,
    sub_block_order: u8,
}

impl Tlb {
    /// An empty TLB with 1 to 255 entries. The seed is for random replacement.
    pub fn new(entries: u32, replacement: TlbReplacement, seed: u64) -> Self {
        let count = entries as usize;
        Self {
            entries: vec![None; count],
            stamps: vec![0; count],
            free: (0..count).rev().map(|place| place as u8).collect(),
            index: TlbSlotIndex::new(),
            sizes: [0; u64::BITS as usize],
            present: 0,
            replacement,
            clock: 0,
            rng: SimulationRng::new(seed, 0x71b),
            pinned: 0,
            sub_block_order: 0,
        }
    }

    /// The same TLB with 2^order sub-blocks in entries that are made for them.
    #[must_use]
    pub fn with_sub_blocks(self, order: u8) -> Self {
        Self { sub_block_order: order, ..self }
    }

    /// Looks up the entry of an address; this counts as a use of the entry.
    #[inline]
    pub fn lookup(&mut self, rid: u32, offset: u64) -> Option<TlbEntry> {
        let mut sizes = self.present;
        while sizes != 0 {
            let shift = sizes.trailing_zeros();
            sizes &= sizes - 1;
            let page = offset >> shift;
            let order = self.sub_block_order;
            if let Some(place) =
                self.find_entry_slot(rid, page, shift, |it| it.has_part_at_offset(offset, order))
            {
                self.mark_entry_used(place);
                return self.entries[place];
            }
        }
        None
    }

    /// Inserts an entry, which replaces another one if there is no room. No entry may overlap it:
    /// real processors stop with a machine check.
    pub fn insert(&mut self, entry: TlbEntry) {
        debug_assert!(!self.overlaps_other_entry(&entry), "{entry:?} overlaps");
        let place = match self.free.pop() {
            Some(place) => usize::from(place),
            None => {
                let victim = self.choose_victim();
                self.remove_at(victim);
                victim
            }
        };
        self.insert_at(place, entry);
    }

    /// Inserts the result of a miss on a byte in it. Parts of a block join those that are present,
    /// if they match in memory layout and permission to write. Otherwise the missed part gets an
    /// entry of its own.
    pub fn fill_after_miss(&mut self, mut entry: TlbEntry, offset: u64) {
        if entry.parts == TlbEntry::WHOLE {
            return self.insert(entry);
        }
        let order = self.sub_block_order;
        for page in entry.present_parts_as_entries(order) {
            let start = page.page << page.shift;
            if self.find_entry_slot(page.rid, page.page, page.shift, |_| true).is_some() {
                entry.parts &= !(1 << entry.part_index_of_offset(start, order));
            }
        }
        let place = self.find_entry_slot(entry.rid, entry.page, entry.shift, |_| true);
        let block = place.and_then(|place| self.entries.get_mut(place)?.as_mut());
        let Some((place, block)) = place.zip(block) else {
            return self.insert(entry);
        };
        if (block.frame, block.writable) == (entry.frame, entry.writable) {
            block.parts |= entry.parts;
            self.mark_entry_used(place);
        } else if let Some(part) =
            entry.with_only_part_at(offset, order).present_parts_as_entries(order).first()
        {
            self.insert(*part);
        }
    }

    /// The place of the entry of a page of this size for which `fits` is true.
    #[inline]
    fn find_entry_slot(
        &self,
        rid: u32,
        page: u64,
        shift: u32,
        fits: impl Fn(&TlbEntry) -> bool,
    ) -> Option<usize> {
        let same = |place: u8| {
            let entry = self.entries.get(usize::from(place));
            let entry = entry.and_then(Option::as_ref);
            entry.is_some_and(|e| e.page == page && e.shift == shift && e.rid == rid && fits(e))
        };
        self.index.find(rid, page, shift, same).map(usize::from)
    }

    fn mark_entry_used(&mut self, place: usize) {
        if self.replacement == TlbReplacement::Lru {
            self.clock += 1;
            self.stamps[place] = self.clock;
        }
    }

    /// Whether another entry covers some of its bytes.
    fn overlaps_other_entry(&self, entry: &TlbEntry) -> bool {
        let order = self.sub_block_order;
        let start = entry.page << entry.shift;
        let around = self.entries_with_pinned_flag();
        let mut around = around.filter(|(other, _)| {
            other.overlaps_range(entry.rid, start, start + (1 << entry.shift))
        });
        around.any(|(other, _)| {
            let (own, others) =
                (entry.present_parts_as_entries(order), other.present_parts_as_entries(order));
            own.iter().any(|own| {
                let start = own.page << own.shift;
                let end = start + (1 << own.shift);
                others.iter().any(|other| other.overlaps_range(own.rid, start, end))
            })
        })
    }

    /// The order of the smallest aligned page around an address that would include part of another
    /// TLB entry's page. Orders are over base pages of 2^shift bytes. `None` if the TLB has no
    /// entry of this region.
    pub fn order_reaching_nearest_entry(&self, rid: u32, offset: u64, shift: u32) -> Option<u32> {
        let page = offset >> shift;
        let entries = self.entries.iter().flatten().filter(|e| e.rid == rid);
        let orders = entries.map(|entry| {
            let first = entry.page << entry.shift >> shift;
            u64::BITS - (page ^ first).leading_zeros()
        });
        orders.min()
    }

    /// Inserts an entry that is never replaced.
    ///
    /// # Errors
    /// Other entries have been used before, or too few places would be left.
    pub fn insert_pinned(&mut self, entry: TlbEntry) -> Result {
        let unused = self.free.len() + self.pinned == self.entries.len();
        let allowed = "at least 4 below the number of all entries, and set before others are used";
        let fits = unused && self.free.len() > 4;
        ItaniumError::require_setting(fits, "the number of pinned TLB entries", allowed)?;
        if let Some(place) = self.free.pop() {
            self.insert_at(place.into(), entry);
            self.pinned += 1;
        }
        Ok(())
    }

    /// Removes the entries of a range of a region.
    pub fn purge_range(&mut self, rid: u32, start: u64, end: u64) {
        for place in self.pinned..self.entries.len() {
            let entry = self.entries.get(place).and_then(Option::as_ref);
            if entry.is_some_and(|entry| entry.overlaps_range(rid, start, end)) {
                self.remove_at(place);
                self.free.push(place as u8);
            }
        }
    }

    /// All entries, and whether each is pinned.
    pub fn entries_with_pinned_flag(&self) -> impl Iterator<Item = (TlbEntry, bool)> {
        let places = self.entries.iter().enumerate();
        places.filter_map(|(place, entry)| Some(((*entry)?, place < self.pinned)))
    }

    fn choose_victim(&mut self) -> usize {
        let first = self.pinned;
        match self.replacement {
            TlbReplacement::Lru | TlbReplacement::Fifo => {
                let stamps = self.stamps[first..].iter().enumerate();
                let oldest = stamps.min_by_key(|(_, stamp)| **stamp);
                first + oldest.map_or(0, |(place, _)| place)
            }
            TlbReplacement::Random => {
                first + self.rng.draw_below((self.entries.len() - first) as u64) as usize
            }
        }
    }

    fn insert_at(&mut self, place: usize, entry: TlbEntry) {
        self.clock += 1;
        self.index.add(entry.rid, entry.page, entry.shift, place as u8);
        let size = &mut self.sizes[entry.shift as usize];
        *size += 1;
        self.present |= 1 << entry.shift;
        self.entries[place] = Some(entry);
        self.stamps[place] = self.clock;
    }

    fn remove_at(&mut self, place: usize) {
        let Some(entry) = self.entries[place].take() else {
            return;
        };
        self.index.remove(entry.rid, entry.page, entry.shift, place as u8);
        let size = &mut self.sizes[entry.shift as usize];
        *size -= 1;
        if *size == 0 {
            self.present &= !(1 << entry.shift);
        }
    }
}

const BUCKETS: usize = 512;
const SLOTS: usize = 256;
/// End of a chain: TLBs have at most 255 slots.
const END: u8 = u8::MAX;

/// The hardware compares with all entries at once; this index uses short hash chains.
#[derive(Clone, Debug)]
struct TlbSlotIndex {
    first: [u8; BUCKETS],
    next: [u8; SLOTS],
}

impl TlbSlotIndex {
    fn new() -> Self {
        Self { first: [END; BUCKETS], next: [END; SLOTS] }
    }

    #[inline]
    fn find(&self, rid: u32, page: u64, shift: u32, same: impl Fn(u8) -> bool) -> Option<u8> {
        let mut slot = self.first[slot_index_bucket(rid, page, shift)];
        while slot != END {
            if same(slot) {
                return Some(slot);
            }
            slot = self.next[usize::from(slot)];
        }
        None
    }

    fn add(&mut self, rid: u32, page: u64, shift: u32, slot: u8) {
        let first = &mut self.first[slot_index_bucket(rid, page, shift)];
        self.next[usize::from(slot)] = *first;
        *first = slot;
    }

    fn remove(&mut self, rid: u32, page: u64, shift: u32, slot: u8) {
        let after = self.next[usize::from(slot)];
        let mut link = &mut self.first[slot_index_bucket(rid, page, shift)];
        while *link != slot && *link != END {
            link = &mut self.next[usize::from(*link)];
        }
        if *link == slot {
            *link = after;
        }
    }
}

#[inline]
fn slot_index_bucket(rid: u32, page: u64, shift: u32) -> usize {
    let key = page ^ u64::from(rid) << 40 ^ u64::from(shift) << 34;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2())) as usize
}

/// The table. Collisions are not chained: the kernel overwrites the entry (`VHPT_INSERT` of the
/// patches for the long format), and the walker reads one entry only.
#[derive(Clone, Debug)]
pub struct HashedPageTable {
    /// Each with the base page, in its region, under which it is entered.
    entries: Vec<Option<(u64, TlbEntry)>>,
}

impl HashedPageTable {
    /// An empty table. The number of entries is a power of two.
    pub fn new(entries: u32) -> Self {
        Self { entries: vec![None; entries as usize] }
    }

    /// Index of the entry for a base page of a region (thesis, section 3.4).
    fn entry_index(&self, rid: u32, page: u64) -> usize {
        (page ^ u64::from(rid)) as usize & (self.entries.len() - 1)
    }

    /// The translation that the walker finds for a base page.
    pub fn find_translation(&self, rid: u32, page: u64) -> Option<TlbEntry> {
        let (entered, translation) = self.entries[self.entry_index(rid, page)]?;
        (translation.rid == rid && entered == page).then_some(translation)
    }

    /// Enters a translation under a base page. Returns true if that removed another page's
    /// translation.
    pub fn enter_translation(&mut self, page: u64, translation: TlbEntry) -> bool {
        let index = self.entry_index(translation.rid, page);
        let before = self.entries[index].replace((page, translation));
        before.is_some_and(|(other, it)| (it.rid, other) != (translation.rid, page))
    }

    /// Makes the entry of a base page invalid, of whichever process it is: the kernel does not
    /// check that (`flush_vhpt_page`).
    pub fn invalidate_entry(&mut self, rid: u32, page: u64) {
        let index = self.entry_index(rid, page);
        self.entries[index] = None;
    }

    /// All translations in the table.
    pub fn translations(&self) -> impl Iterator<Item = TlbEntry> {
        self.entries.iter().flatten().map(|(_, translation)| *translation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(page: u64, shift: u32) -> TlbEntry {
        TlbEntry::new_without_sub_blocks(1, page, shift, 0, true)
    }

    /// The page replaced of four inserted in order; the first and the third are used then.
    fn replaced(replacement: TlbReplacement) -> u64 {
        let mut tlb = Tlb::new(4, replacement, 1);
        for page in 0..4 {
            tlb.insert(entry(page, 14));
        }
        for page in [0, 2] {
            assert!(tlb.lookup(1, page << 14).is_some());
        }
        tlb.insert(entry(4, 14));
        let here: Vec<u64> = tlb.entries_with_pinned_flag().map(|(entry, _)| entry.page).collect();
        (0..4).find(|page| !here.contains(page)).unwrap()
    }

    #[test]
    fn the_replacement_rule_selects_the_victim() {
        assert_eq!(replaced(TlbReplacement::Lru), 1);
        assert_eq!(replaced(TlbReplacement::Fifo), 0);
        assert!(replaced(TlbReplacement::Random) < 4);
    }

    #[test]
    fn pinned_entries_stay() {
        for replacement in [TlbReplacement::Lru, TlbReplacement::Fifo, TlbReplacement::Random] {
            let mut tlb = Tlb::new(8, replacement, 1);
            for page in 0..4 {
                tlb.insert_pinned(entry(page, 20)).unwrap();
            }
            assert!(tlb.insert_pinned(entry(4, 20)).is_err());
            for page in 0..100 {
                tlb.insert(entry(1000 + page, 14));
            }
            tlb.purge_range(1, 0, u64::MAX);
            let left: Vec<_> = tlb.entries_with_pinned_flag().collect();
            assert_eq!(left.len(), 4);
            assert!(left.iter().all(|(_, pinned)| *pinned));
            assert!(tlb.lookup(1, 3 << 20 | 0xfffff).is_some());
        }
    }
}
