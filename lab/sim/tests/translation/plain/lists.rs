//! Lists in order of use, and TLBs made of them.

use hawkeye_sim::mmu::SetShape;
use hawkeye_sim::mmu::translation::EntrySize;

/// The least recently used one is last.
#[derive(Clone, Debug, Default)]
pub struct PlainLru<T> {
    pub(super) entries: Vec<T>,
    pub(super) most: usize,
}

impl<T: PartialEq + Copy> PlainLru<T> {
    pub(super) fn new(most: usize) -> Self {
        let entries = Vec::new();
        Self { entries, most }
    }

    pub(super) fn access(&mut self, entry: T) -> bool {
        self.access_with_way_limit(entry, self.most, |_| true)
    }

    pub(super) fn access_if_present(&mut self, entry: T) -> bool {
        self.entries.contains(&entry) && self.access(entry)
    }

    pub(super) fn access_with_way_limit(
        &mut self,
        entry: T,
        most: usize,
        kind: impl Fn(&T) -> bool,
    ) -> bool {
        if let Some(at) = self.entries.iter().position(|other| *other == entry) {
            self.entries.remove(at);
            self.entries.insert(0, entry);
            return true;
        }
        if self.entries.iter().filter(|other| kind(other)).count() == most {
            if let Some(last) = self.entries.iter().rposition(&kind) {
                self.entries.remove(last);
            }
        }
        self.entries.insert(0, entry);
        self.entries.truncate(self.most);
        false
    }
}

/// A TLB entry: size, number among the entries of its size.
pub(super) type PlainEntry = (EntrySize, u64);

/// Sets of entries, by the lowest bits of their number.
#[derive(Clone, Debug)]
pub(super) struct PlainTlb(Vec<PlainLru<PlainEntry>>);

impl PlainTlb {
    pub(super) fn new(shape: SetShape) -> Self {
        let sets = shape.entries / shape.ways;
        Self((0..sets).map(|_| PlainLru::new(shape.ways as usize)).collect())
    }

    pub(super) fn set(&mut self, page: PlainEntry) -> &mut PlainLru<PlainEntry> {
        let sets = self.0.len();
        &mut self.0[page.1 as usize % sets]
    }

    pub(super) fn retain(&mut self, keep: &dyn Fn(&PlainEntry) -> bool) {
        self.0.iter_mut().for_each(|set| set.entries.retain(keep));
    }
}
