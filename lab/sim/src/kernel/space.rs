//! Address spaces: mappings, and the page table under them.

use super::KernelError;
use super::table::RegionTable;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrders};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// An address space of a [`Kernel`](super::Kernel), numbered in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub(crate) u32);

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the owner of a mapping said about huge pages (`madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugeAdvice {
    /// Nothing.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// Orders of pages that a fault can map.
const SIZES: usize = PageOrder::HUGE.number() as usize + 1;

/// Faults by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Base pages mapped at their first touch.
    pub base: u64,
    /// Huge pages mapped at their first touch.
    pub huge: u64,
    /// Pages of sizes between these mapped at their first touch, by order (`anon_fault_alloc` of
    /// `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/stats`).
    pub sized: [u64; SIZES],
    /// First touches that were to get a page of an order for which no memory was free, and got a smaller one
    /// (`anon_fault_fallback`). No faults of their own.
    pub fallbacks: [u64; SIZES],
    /// Reads that mapped a shared zero page, base or huge.
    pub zero_page: u64,
    /// Writes to a shared zero page: a page of its own is mapped instead.
    pub zero_page_writes: u64,
    /// Writes to a page that relatives have too: copied.
    pub copied: u64,
    /// Such writes when no relative had it any more.
    pub reused: u64,
    /// Pages read back from swap.
    pub swapped_in: u64,
}

impl Faults {
    /// First touches that mapped a page of this order.
    pub fn of(&self, order: PageOrder) -> u64 {
        match order {
            PageOrder::BASE => self.base,
            PageOrder::HUGE => self.huge,
            _ => self
                .sized
                .get(order.number() as usize)
                .copied()
                .unwrap_or(0),
        }
    }

    /// First touches that didn't get a page of this order.
    pub fn fell_back(&self, order: PageOrder) -> u64 {
        let found = self.fallbacks.get(order.number() as usize);
        found.copied().unwrap_or(0)
    }

    pub(crate) fn fall_back(&mut self, order: PageOrder) {
        if let Some(count) = self.fallbacks.get_mut(order.number() as usize) {
            *count += 1;
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.base
            + self.huge
            + self.sized.iter().sum::<u64>()
            + self.zero_page
            + self.zero_page_writes
            + self.copied
            + self.reused
            + self.swapped_in
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.base += more.base;
        self.huge += more.huge;
        let arrays = [
            (&mut self.sized, more.sized),
            (&mut self.fallbacks, more.fallbacks),
        ];
        for (sums, more) in arrays {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        }
        self.zero_page += more.zero_page;
        self.zero_page_writes += more.zero_page_writes;
        self.copied += more.copied;
        self.reused += more.reused;
        self.swapped_in += more.swapped_in;
    }
}

/// One mapping: private, anonymous, writable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First page after it.
    pub(crate) end: u64,
    pub(crate) advice: HugeAdvice,
}

/// See the module. Pages are counted from address 0.
#[derive(Clone, Debug)]
pub(crate) struct AddressSpace {
    pub(crate) id: SpaceId,
    pub(crate) family: u32,
    /// By first page.
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) table: RegionTable,
    /// Present base pages, those of huge pages included.
    pub(crate) resident: u64,
    /// Huge pages.
    pub(crate) huge: u64,
    /// Pages in swap.
    pub(crate) swapped: u64,
    pub(crate) faults: Faults,
    /// Sizes under that of a huge page that its memory is given at first touches, where that is its own affair.
    pub(crate) fault_sizes: Option<PageOrders>,
    /// Whether it ever had pages of another size than base and huge ones.
    pub(crate) many_sizes: bool,
    /// System time its program was charged.
    pub(crate) charged: Duration,
    /// Whether same-page merging looks at it.
    pub(crate) mergeable: bool,
}

/// Addresses have 48 bits.
const END: u64 = 1 << 36;

/// Whole pages of a range of addresses.
pub(crate) fn pages_of(bytes: &Range<u64>) -> Result<Range<u64>, KernelError> {
    let aligned = bytes.start % BASE_PAGE_BYTES == 0 && bytes.end % BASE_PAGE_BYTES == 0;
    let pages = bytes.start / BASE_PAGE_BYTES..bytes.end / BASE_PAGE_BYTES;
    if aligned && !pages.is_empty() && pages.end <= END {
        Ok(pages)
    } else {
        Err(KernelError::Range {
            start: bytes.start,
            end: bytes.end,
        })
    }
}

/// Pages cut at regions: for each its number, the first page in it, and how many.
pub(crate) fn by_region(pages: Range<u64>) -> impl Iterator<Item = (u64, u16, u16)> {
    let per_region = u64::from(PAGES_PER_REGION);
    let mut from = pages.start;
    std::iter::from_fn(move || {
        if from >= pages.end {
            return None;
        }
        let region = from / per_region;
        let to = pages.end.min((region + 1) * per_region);
        let piece = (region, (from % per_region) as u16, (to - from) as u16);
        from = to;
        Some(piece)
    })
}

/// First page of a region.
pub(crate) fn first_page(region: u64) -> u64 {
    region * u64::from(PAGES_PER_REGION)
}

impl AddressSpace {
    pub(crate) fn new(id: SpaceId, family: u32) -> Self {
        Self {
            id,
            family,
            mappings: BTreeMap::new(),
            table: RegionTable::default(),
            resident: 0,
            huge: 0,
            swapped: 0,
            faults: Faults::default(),
            fault_sizes: None,
            many_sizes: false,
            charged: Duration::ZERO,
            mergeable: false,
        }
    }

    /// The mapping that holds a page.
    pub(crate) fn mapping(&self, page: u64) -> Option<(u64, Mapping)> {
        let (start, mapping) = self.mappings.range(..=page).next_back()?;
        (page < mapping.end).then_some((*start, *mapping))
    }

    /// What is said about huge pages in a region that one mapping holds in full.
    pub(crate) fn region_advice(&self, region: u64) -> Option<HugeAdvice> {
        let first = first_page(region);
        let (_, mapping) = self.mapping(first)?;
        (mapping.end >= first_page(region + 1)).then_some(mapping.advice)
    }

    /// Whether all of these pages are mapped.
    pub(crate) fn is_mapped(&self, pages: &Range<u64>) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            let Some((_, mapping)) = self.mapping(at) else {
                return false;
            };
            at = mapping.end;
        }
        true
    }

    /// Adds a mapping where there is none; joins it with neighbours that are alike.
    pub(crate) fn map(&mut self, pages: Range<u64>, advice: HugeAdvice) -> bool {
        let clash = self.mappings.range(..pages.end).next_back();
        if clash.is_some_and(|(_, mapping)| mapping.end > pages.start) {
            return false;
        }
        self.insert(pages, advice);
        true
    }

    fn insert(&mut self, pages: Range<u64>, advice: HugeAdvice) {
        let (mut start, mut end) = (pages.start, pages.end);
        if let Some((before, mapping)) = self.mappings.range(..start).next_back() {
            if mapping.end == start && mapping.advice == advice {
                start = *before;
            }
        }
        if let Some(after) = self.mappings.get(&end).copied() {
            if after.advice == advice {
                self.mappings.remove(&end);
                end = after.end;
            }
        }
        self.mappings.insert(start, Mapping { end, advice });
    }

    /// Cuts these pages out of all mappings; returns what was cut out.
    pub(crate) fn unmap(&mut self, pages: &Range<u64>) -> Vec<(Range<u64>, HugeAdvice)> {
        let mut cut = Vec::new();
        let first = self
            .mapping(pages.start)
            .map_or(pages.start, |(start, _)| start);
        let hit: Vec<u64> = self
            .mappings
            .range(first..pages.end)
            .map(|(s, _)| *s)
            .collect();
        for start in hit {
            let Some(old) = self.mappings.remove(&start) else {
                continue;
            };
            let rest = [
                (start, old.end.min(pages.start)),
                (start.max(pages.end), old.end),
            ];
            for (from, end) in rest {
                if from < end {
                    let advice = old.advice;
                    self.mappings.insert(from, Mapping { end, advice });
                }
            }
            cut.push((start.max(pages.start)..old.end.min(pages.end), old.advice));
        }
        cut
    }

    /// Changes what is said about huge pages.
    pub(crate) fn advise(&mut self, pages: &Range<u64>, advice: HugeAdvice) {
        for (piece, _) in self.unmap(pages) {
            self.insert(piece, advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_cut_and_joined() {
        let mut space = AddressSpace::new(SpaceId(0), 0);
        assert!(space.map(0..2048, HugeAdvice::None));
        assert!(space.map(2048..4096, HugeAdvice::None));
        assert_eq!(space.mappings.len(), 1);
        assert!(!space.map(4000..5000, HugeAdvice::None));
        space.advise(&(512..1024), HugeAdvice::Huge);
        assert_eq!(space.region_advice(0), Some(HugeAdvice::None));
        assert_eq!(space.region_advice(1), Some(HugeAdvice::Huge));
        assert_eq!(space.mappings.len(), 3);
        assert!(space.is_mapped(&(0..4096)));
        space.advise(&(0..4096), HugeAdvice::None);
        assert_eq!(space.mappings.len(), 1);
        let cut = space.unmap(&(100..600));
        assert_eq!(cut, [(100..600, HugeAdvice::None)]);
        assert!(!space.is_mapped(&(0..4096)) && space.is_mapped(&(600..4096)));
        assert_eq!(space.region_advice(1), None);
    }
}
