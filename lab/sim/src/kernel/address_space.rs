//! Address spaces: mappings, and the page table under them.

use super::file_region::FileRegionId;
use super::region_table::RegionTable;
use super::{KernelError, Result, SharedFileId, SpaceId};
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrderSet, RegionAddr,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Orders of pages that a fault can map.
const SIZES: usize = PageOrder::HUGE.log2_pages() as usize + 1;

/// Faults by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Base pages mapped at their first touch.
    pub base: u64,
    /// Huge pages mapped at their first touch.
    pub huge: u64,
    /// Pages of sizes between these, mapped at their first touch, by order (`anon_fault_alloc` of
    /// `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/stats`).
    pub sized: [u64; SIZES],
    /// First touches that should have mapped a page of an order, found no free memory for it and
    /// mapped a smaller one (`anon_fault_fallback`). They are not faults of their own.
    pub fallbacks: [u64; SIZES],
    /// Reads that mapped a shared zero page, base or huge.
    pub zero_page: u64,
    /// Writes to a shared zero page, which map a page of the program's own instead.
    pub zero_page_writes: u64,
    /// Pages read back from swap.
    pub swapped_in: u64,
    /// Pages of shared files that were in memory already, base or huge.
    pub shared: u64,
}

impl FaultCounts {
    /// First touches that mapped a page of this order.
    pub fn count_first_touches_of_order(&self, order: PageOrder) -> u64 {
        match order {
            PageOrder::BASE => self.base,
            PageOrder::HUGE => self.huge,
            _ => self.sized.get(order.log2_pages() as usize).copied().unwrap_or(0),
        }
    }

    /// First touches that should have mapped a page of this order, but didn't.
    pub fn fallbacks_of_order(&self, order: PageOrder) -> u64 {
        let found = self.fallbacks.get(order.log2_pages() as usize);
        found.copied().unwrap_or(0)
    }

    pub(crate) fn record_size_fallback(&mut self, order: PageOrder) {
        if let Some(count) = self.fallbacks.get_mut(order.log2_pages() as usize) {
            *count += 1;
        }
    }

    /// All faults.
    pub fn total(&self) -> u64 {
        self.base
            + self.huge
            + self.sized.iter().sum::<u64>()
            + self.zero_page
            + self.zero_page_writes
            + self.swapped_in
            + self.shared
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.base += more.base;
        self.huge += more.huge;
        let arrays = [(&mut self.sized, more.sized), (&mut self.fallbacks, more.fallbacks)];
        for (sums, more) in arrays {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        }
        self.zero_page += more.zero_page;
        self.zero_page_writes += more.zero_page_writes;
        self.swapped_in += more.swapped_in;
        self.shared += more.shared;
    }
}

/// An address space; see the module's documentation. Pages are counted from address 0.
#[derive(Clone, Debug)]
pub(crate) struct AddressSpace {
    pub(crate) id: SpaceId,
    /// Writable mappings: the first page of each, and the first after it. Neighbours are joined.
    /// They are private and anonymous, except for `file_mappings`.
    pub(crate) mappings: BTreeMap<u64, u64>,
    pub(crate) file_mappings: Vec<FileMapping>,
    pub(crate) table: RegionTable,
    /// Present base pages, those of huge pages included.
    pub(crate) resident: u64,
    pub(crate) huge: u64,
    pub(crate) swapped: u64,
    pub(crate) faults: FaultCounts,
    /// Sizes below a huge page that its first touches map, if it has sizes of its own.
    pub(crate) fault_sizes: Option<PageOrderSet>,
    pub(crate) many_sizes: bool,
    pub(crate) charged: Duration,
    pub(crate) mergeable: bool,
}

/// A mapping of a whole file, by its regions in the address space.
#[derive(Clone, Debug)]
pub(crate) struct FileMapping {
    pub(super) regions: Range<u64>,
    pub(super) file: SharedFileId,
}

impl FileMapping {
    fn pages(&self) -> Range<u64> {
        first_page(self.regions.start)..first_page(self.regions.end)
    }

    pub(super) fn is_within(&self, pages: &Range<u64>) -> bool {
        let own = self.pages();
        pages.start <= own.start && own.end <= pages.end
    }
}

/// Addresses have 48 bits.
const END: u64 = 1 << 36;

pub(crate) fn page_range_of_aligned_bytes(bytes: &Range<u64>) -> Result<Range<u64>> {
    let aligned = bytes.start % BASE_PAGE_BYTES == 0 && bytes.end % BASE_PAGE_BYTES == 0;
    let pages = bytes.start / BASE_PAGE_BYTES..bytes.end / BASE_PAGE_BYTES;
    if aligned && !pages.is_empty() && pages.end <= END {
        Ok(pages)
    } else {
        Err(KernelError::Range(bytes.clone()))
    }
}

/// Cuts a range of pages at region boundaries: region number, first page in it, page count.
pub(crate) fn split_at_region_boundaries(
    pages: Range<u64>,
) -> impl Iterator<Item = (u64, u16, u16)> {
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

/// A region of an address space, by its number: its address over 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RegionId {
    pub(crate) space: SpaceId,
    pub(crate) region: u64,
}

impl RegionId {
    pub(crate) fn new(space: SpaceId, region: RegionAddr) -> Self {
        let region = region.start() / HUGE_PAGE_BYTES;
        Self { space, region }
    }

    pub(crate) fn address(self) -> RegionAddr {
        RegionAddr::containing(self.region * HUGE_PAGE_BYTES)
    }

    pub(super) fn not_candidate_error(self) -> KernelError {
        KernelError::NotCandidate(self.space, self.address())
    }

    pub(super) fn no_frames_error(self, order: PageOrder) -> KernelError {
        KernelError::NoFrames(self.space, self.address(), order)
    }

    pub(crate) fn page_number(self, page: u16) -> u64 {
        first_page(self.region) + u64::from(page)
    }
}

pub(crate) fn first_page(region: u64) -> u64 {
    region * u64::from(PAGES_PER_REGION)
}

impl AddressSpace {
    pub(crate) fn new(id: SpaceId) -> Self {
        Self {
            id,
            mappings: BTreeMap::new(),
            file_mappings: Vec::new(),
            table: RegionTable::default(),
            resident: 0,
            huge: 0,
            swapped: 0,
            faults: FaultCounts::default(),
            fault_sizes: None,
            many_sizes: false,
            charged: Duration::ZERO,
            mergeable: false,
        }
    }

    pub(crate) fn mapping_of_page(&self, page: u64) -> Option<Range<u64>> {
        let (start, end) = self.mappings.range(..=page).next_back()?;
        (page < *end).then_some(*start..*end)
    }

    pub(crate) fn is_region_in_one_mapping(&self, region: u64) -> bool {
        let mapping = self.mapping_of_page(first_page(region));
        mapping.is_some_and(|mapping| mapping.end >= first_page(region + 1))
    }

    pub(crate) fn is_mapped(&self, pages: &Range<u64>) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            let Some(mapping) = self.mapping_of_page(at) else {
                return false;
            };
            at = mapping.end;
        }
        true
    }

    pub(crate) fn map(&mut self, pages: Range<u64>) -> bool {
        let (mut start, mut end) = (pages.start, pages.end);
        let before = self.mappings.range(..end).next_back();
        match before.map(|(first, end)| (*first, *end)) {
            Some((_, after)) if after > start => return false,
            Some((first, after)) if after == start => start = first,
            _ => {}
        }
        if let Some(after) = self.mappings.remove(&end) {
            end = after;
        }
        self.mappings.insert(start, end);
        true
    }

    pub(crate) fn remove_mappings_in_range(&mut self, pages: &Range<u64>) {
        let first = self.mapping_of_page(pages.start);
        let first = first.map_or(pages.start, |mapping| mapping.start);
        let hit = self.mappings.range(first..pages.end);
        let hit: Vec<(u64, u64)> = hit.map(|(start, end)| (*start, *end)).collect();
        for (start, end) in hit {
            self.mappings.remove(&start);
            let rest = [(start, end.min(pages.start)), (start.max(pages.end), end)];
            let rest = rest.into_iter().filter(|(from, end)| from < end);
            self.mappings.extend(rest);
        }
    }

    /// Whether a range has a part of a file's mapping, but not all of it.
    pub(super) fn cuts_file_mapping(&self, pages: &Range<u64>) -> bool {
        self.file_mappings.iter().any(|mapping| {
            let own = mapping.pages();
            own.start < pages.end && pages.start < own.end && !mapping.is_within(pages)
        })
    }

    /// Drops what is in the page table of a region of a file.
    pub(super) fn empty_page_table_of_region(&mut self, region: u64) {
        if let Some(found) = self.table.get(region) {
            self.resident -= u64::from(found.present.count());
            self.huge -= u64::from(found.huge.is_some());
            self.table.remove(region);
        }
    }

    /// The file region that is mapped at a region; `None` for private memory.
    pub(crate) fn file_region_at(&self, region: u64) -> Option<FileRegionId> {
        let found = self.file_mappings.iter().find(|mapping| mapping.regions.contains(&region))?;
        Some(FileRegionId { file: found.file, index: region - found.regions.start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_cut_and_joined() {
        let mut space = AddressSpace::new(SpaceId(0));
        assert!(space.map(0..2048) && space.map(2048..4096));
        assert_eq!(space.mappings.len(), 1);
        assert!(!space.map(4000..5000));
        assert!(space.is_mapped(&(0..4096)) && space.is_region_in_one_mapping(1));
        space.remove_mappings_in_range(&(100..600));
        assert_eq!(space.mappings.len(), 2);
        assert!(!space.is_mapped(&(0..4096)) && space.is_mapped(&(600..4096)));
        assert!(!space.is_region_in_one_mapping(1) && space.is_region_in_one_mapping(2));
        assert!(space.map(100..600));
        assert_eq!(space.mappings.len(), 1);
    }
}
