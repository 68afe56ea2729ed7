//! A fully associative TLB whose entries are of any page size.

mod index;

use super::Replacement;
use crate::itanium::ItaniumError;
use crate::rng::Rng;
use index::SlotIndex;

/// A translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbEntry {
    /// Region id: which address space's.
    pub rid: u32,
    /// Number of the page in its region, in pages of its own size.
    pub page: u64,
    /// log2 of the page's bytes.
    pub shift: u32,
    /// Number of the first frame, in base pages.
    pub frame: u32,
    /// May be written to.
    pub writable: bool,
}

impl TlbEntry {
    /// Whether it shares an address with `start` to `end` of a region.
    fn overlaps(&self, rid: u32, start: u64, end: u64) -> bool {
        let first = self.page << self.shift;
        self.rid == rid && first < end && start < first + (1 << self.shift)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    entry: TlbEntry,
    /// When it was inserted, or with LRU, last used.
    stamp: u64,
    /// Used since all were.
    referenced: bool,
    pinned: bool,
}

/// The entries.
#[derive(Clone, Debug)]
pub struct Tlb {
    slots: Vec<Option<Slot>>,
    index: SlotIndex,
    /// How many entries there are of each size.
    sizes: [u16; u64::BITS as usize],
    /// Sizes of which there are any.
    present: u64,
    replacement: Replacement,
    clock: u64,
    rng: Rng,
    pinned: u32,
    /// Where free slots are looked for.
    free: u32,
}

impl Tlb {
    /// Empty, with 1 to 255 entries. The seed is for random replacement.
    pub fn new(entries: u32, replacement: Replacement, seed: u64) -> Self {
        Self {
            slots: vec![None; entries as usize],
            index: SlotIndex::new(),
            sizes: [0; u64::BITS as usize],
            present: 0,
            replacement,
            clock: 0,
            rng: Rng::new(seed, 0x71b),
            pinned: 0,
            free: entries,
        }
    }

    /// The entry of an address, which is used by that.
    pub fn lookup(&mut self, rid: u32, offset: u64) -> Option<TlbEntry> {
        let mut sizes = self.present;
        while sizes != 0 {
            let shift = sizes.trailing_zeros();
            sizes &= sizes - 1;
            let page = offset >> shift;
            let slots = &self.slots;
            let same = |slot: u8| {
                let entry = slots.get(usize::from(slot)).and_then(Option::as_ref);
                entry.is_some_and(|slot| {
                    let entry = &slot.entry;
                    entry.page == page && entry.shift == shift && entry.rid == rid
                })
            };
            if let Some(found) = self.index.find(rid, page, shift, same) {
                let slot = self.slots.get_mut(usize::from(found))?.as_mut()?;
                slot.referenced = true;
                if self.replacement == Replacement::Lru {
                    self.clock += 1;
                    slot.stamp = self.clock;
                }
                return Some(slot.entry);
            }
        }
        None
    }

    /// Puts an entry in; if there is no room, another one goes. No entry may overlap it: real processors stop with a
    /// machine check.
    pub fn insert(&mut self, entry: TlbEntry) {
        debug_assert!(
            self.entries().all(|(other, _)| {
                let start = entry.page << entry.shift;
                !other.overlaps(entry.rid, start, start + (1 << entry.shift))
            }),
            "{entry:?} overlaps"
        );
        let place = match self.free_slot() {
            Some(place) => place,
            None => match self.victim() {
                Some(place) => place,
                None => return,
            },
        };
        self.remove(place);
        self.put(place, entry, false);
    }

    /// Puts in an entry that never goes.
    ///
    /// # Errors
    /// There would be none left that can be replaced.
    pub fn pin(&mut self, entry: TlbEntry) -> Result<(), ItaniumError> {
        let place = self.free_slot();
        match place.filter(|_| (self.pinned as usize) + 4 < self.slots.len()) {
            Some(place) => {
                self.put(place, entry, true);
                self.pinned += 1;
                Ok(())
            }
            None => Err(ItaniumError::Setup {
                what: "the number of pinned TLB entries",
                allowed: "at least 4 under that of all, and set before others are used",
            }),
        }
    }

    /// Drops the entries of a range of a region.
    pub fn purge(&mut self, rid: u32, start: u64, end: u64) {
        for place in 0..self.slots.len() {
            let slot = self.slots.get(place).and_then(Option::as_ref);
            if slot.is_some_and(|slot| !slot.pinned && slot.entry.overlaps(rid, start, end)) {
                self.remove(place);
                self.free += 1;
            }
        }
    }

    /// What is in it, and whether it is pinned.
    pub fn entries(&self) -> impl Iterator<Item = (TlbEntry, bool)> {
        let used = self.slots.iter().flatten();
        used.map(|slot| (slot.entry, slot.pinned))
    }

    fn free_slot(&mut self) -> Option<usize> {
        if self.free == 0 {
            return None;
        }
        self.free -= 1;
        self.slots.iter().position(Option::is_none)
    }

    /// The slot that makes room.
    fn victim(&mut self) -> Option<usize> {
        let replaceable = |(place, slot): (usize, &Option<Slot>)| {
            let slot = slot.as_ref().filter(|slot| !slot.pinned)?;
            Some((place, *slot))
        };
        let mut all = self.slots.iter().enumerate().filter_map(replaceable);
        match self.replacement {
            Replacement::Lru | Replacement::Fifo => {
                all.min_by_key(|(_, slot)| slot.stamp).map(|(p, _)| p)
            }
            Replacement::Random => {
                let count = self.slots.len() as u64 - u64::from(self.pinned);
                let chosen = self.rng.below(count) as usize;
                all.nth(chosen).map(|(place, _)| place)
            }
            Replacement::NotRecentlyUsed => {
                if let Some((place, _)) = all.find(|(_, slot)| !slot.referenced) {
                    return Some(place);
                }
                for slot in self.slots.iter_mut().flatten() {
                    slot.referenced = false;
                }
                self.slots
                    .iter()
                    .enumerate()
                    .find_map(replaceable)
                    .map(|(p, _)| p)
            }
        }
    }

    fn put(&mut self, place: usize, entry: TlbEntry, pinned: bool) {
        self.clock += 1;
        self.index
            .add(entry.rid, entry.page, entry.shift, place as u8);
        self.count(entry.shift, true);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some(Slot {
                entry,
                stamp: self.clock,
                referenced: true,
                pinned,
            });
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::take) {
            let entry = slot.entry;
            self.index
                .remove(entry.rid, entry.page, entry.shift, place as u8);
            self.count(entry.shift, false);
        }
    }

    fn count(&mut self, shift: u32, more: bool) {
        if let Some(size) = self.sizes.get_mut(shift as usize) {
            *size = if more {
                *size + 1
            } else {
                size.saturating_sub(1)
            };
            if *size == 0 {
                self.present &= !(1 << shift);
            } else {
                self.present |= 1 << shift;
            }
        }
    }
}
