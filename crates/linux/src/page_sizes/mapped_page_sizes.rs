//! Sizes of the pages that map a process's memory. `/proc/PID/pagemap` shows its frames, and
//! `/proc/kpageflags` shows which frames form one page.

use crate::error::{LinuxError, Result};
use crate::processes::memory_maps;
use crate::processes::process::calling_thread_cpu_time;
use crate::ring_buffer::decode_u64s;
use crate::sample::pagemap::{
    FRAME, KPF_COMPOUND_TAIL, KPF_ZERO_PAGE, PRESENT, Pagemap, PagemapEntry, read_frame_flags,
};
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};
use procfs::process::{MMPermissions, MMapPath};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// `/proc/kpageflags` (include/uapi/linux/kernel-page-flags.h).
const KPF_COMPOUND_HEAD: u64 = 1 << 15;
/// Base pages in the smallest page of anonymous memory above the base size.
const MIN_PAGES: usize = 4;
/// Most address space that one look covers: a tenth of a second's work.
const MAX_BYTES: u64 = 64 << 30;

/// Pages larger than base pages, by size, that are mapped in full. A page of 2 MiB counts whether
/// one entry maps it or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedPageSizes {
    /// Number of pages of each size.
    pub pages: BTreeMap<PageOrder, u64>,
    /// Regions of which such pages map most of the memory, with the size of these pages.
    pub regions: BTreeMap<RegionAddr, PageOrder>,
    /// Whether the look covered all memory.
    pub complete: bool,
}

impl MappedPageSizes {
    pub(super) fn empty() -> Self {
        Self { pages: BTreeMap::new(), regions: BTreeMap::new(), complete: true }
    }

    /// Adds the sizes of another process.
    pub fn add_page_counts(&mut self, other: &Self) {
        for (order, pages) in &other.pages {
            *self.pages.entry(*order).or_default() += pages;
        }
        self.complete &= other.complete;
    }
}

/// Most CPU time of one look. Scattered frames are looked up one by one.
const MAX_CPU_TIME: Duration = Duration::from_millis(100);

/// Reads the page sizes of a process's private anonymous memory. It takes about 5 ms per mapped
/// GiB, and covers up to 64 GiB, within a tenth of a second of CPU time. It needs CAP_SYS_ADMIN to
/// see frames.
pub fn read_mapped_page_sizes(pid: u32) -> Result<MappedPageSizes> {
    let pagemap = Pagemap::open(pid)?;
    let flags_path = "/proc/kpageflags";
    let flags = File::open(flags_path).map_err(LinuxError::wrap_io_error("opening", flags_path))?;
    let mut found = MappedPageSizes::empty();
    let begun = calling_thread_cpu_time();
    let mut left = MAX_BYTES;
    let mut bytes = [0u8; PAGES_PER_REGION as usize * 8];
    let ranges = match read_private_anonymous_ranges(pid) {
        // Not an error, so that the next look waits as long as this one's cost requires.
        Err(LinuxError::TooLong { .. }) => {
            found.complete = false;
            return Ok(found);
        }
        ranges => ranges?,
    };
    // A process that is ending has nothing mapped any more.
    if ranges.is_empty() {
        return Err(LinuxError::NoSuchProcess(pid));
    }
    for range in ranges {
        for part in split_range_at_regions(range) {
            left = left.saturating_sub(part.end - part.start);
            if left == 0 || calling_thread_cpu_time().saturating_sub(begun) > MAX_CPU_TIME {
                found.complete = false;
                return Ok(found);
            }
            let first_page = part.start / BASE_PAGE_BYTES;
            let length = usize_from_u64((part.end - part.start) / BASE_PAGE_BYTES * 8);
            let Some(bytes) = bytes.get_mut(..length) else {
                continue;
            };
            pagemap.read_entries(part.start, bytes)?;
            // Something is mapped, but its frame is hidden from us.
            if decode_u64s(bytes).any(|entry| entry & PRESENT != 0 && entry & FRAME == 0) {
                let why = "frame numbers are visible only with CAP_SYS_ADMIN";
                let hidden = io::Error::new(io::ErrorKind::PermissionDenied, why);
                return Err(pagemap.wrap_read_error(hidden));
            }
            let frame =
                |entry| Some(PagemapEntry(entry).frame_or_zero()).filter(|frame| *frame != 0);
            let frames: Vec<Option<u64>> = decode_u64s(bytes).map(frame).collect();
            let mut here = BTreeMap::new();
            let read_flags = |first, frames| read_frame_flags(&flags, first, frames);
            let counted = count_compound_pages(&frames, first_page, &mut here, read_flags);
            counted.map_err(LinuxError::wrap_io_error("reading", flags_path))?;
            if let Some(order) = dominant_size(&here, frames.iter().flatten().count() as u64) {
                let region = RegionAddr::containing(part.start);
                found.regions.insert(region, order);
            }
            for (order, pages) in here {
                *found.pages.entry(order).or_default() += pages;
            }
        }
    }
    Ok(found)
}

/// Private writable mappings without a file.
fn read_private_anonymous_ranges(pid: u32) -> Result<Vec<Range<u64>>> {
    let wanted = MMPermissions::WRITE | MMPermissions::PRIVATE;
    memory_maps::read_maps(pid, |map| {
        let has_file =
            map.inode != 0 || matches!(map.pathname, MMapPath::Path(_) | MMapPath::Vsys(_));
        (map.perms.contains(wanted) && !has_file).then_some(map.address.0..map.address.1)
    })
}

/// Cuts a range where regions begin: no page lies in two regions.
fn split_range_at_regions(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = (start + 1).next_multiple_of(HUGE_PAGE_BYTES).min(range.end);
        let part = start..end;
        start = end;
        (!part.is_empty()).then_some(part)
    })
}

/// Counts the pages in a part of a region. Its base pages from `first_page` on lie in `frames`.
/// Also reads the frame after each run: a page that continues into it is mapped only in part.
fn count_compound_pages(
    frames: &[Option<u64>],
    first_page: u64,
    pages: &mut BTreeMap<PageOrder, u64>,
    read_flags: impl Fn(u64, usize) -> io::Result<Vec<u64>>,
) -> io::Result<()> {
    let mut at = 0;
    while let Some(rest) = frames.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(first) = rest[0] else {
            at += 1;
            continue;
        };
        let expected = (first..).map(Some);
        let same = rest.iter().zip(expected).take_while(|(frame, next)| *frame == next);
        let run = same.count();
        if run >= MIN_PAGES {
            let flags = read_flags(first, run + 1)?;
            for (begin, length) in find_compound_pages(&flags) {
                let page = first_page + (at + begin) as u64;
                // A page that moved to an address of another alignment is mapped as base pages.
                if page % length as u64 == 0 {
                    let bytes = length as u64 * BASE_PAGE_BYTES;
                    if let Some(order) = PageOrder::from_bytes(bytes) {
                        *pages.entry(order).or_default() += 1;
                    }
                }
            }
        }
        at += run;
    }
    Ok(())
}

/// The size that maps most of `present` base pages, if it maps more than half of them.
fn dominant_size(pages: &BTreeMap<PageOrder, u64>, present: u64) -> Option<PageOrder> {
    let base_pages = |(order, pages): (&PageOrder, &u64)| (pages * order.pages(), *order);
    let (base_pages, order) = pages.iter().map(base_pages).max()?;
    (base_pages * 2 > present).then_some(order)
}

/// Start and length, in frames, of each page of several frames that ends before the last frame.
fn find_compound_pages(flags: &[u64]) -> Vec<(usize, usize)> {
    let is_head = |n: usize| {
        let flags = flags.get(n).copied().unwrap_or(0);
        flags & KPF_COMPOUND_HEAD != 0 && flags & KPF_ZERO_PAGE == 0
    };
    let is_tail = |n: &usize| flags.get(*n).is_some_and(|f| f & KPF_COMPOUND_TAIL != 0);
    (0..flags.len())
        .filter(|n| is_head(*n))
        .map(|begin| (begin, 1 + (begin + 1..).take_while(is_tail).count()))
        .filter(|(begin, length)| begin + length < flags.len())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames from 1024 on are pages of 16 base pages; frames from 2048 on are base pages.
    fn flags(first: u64, frames: usize) -> io::Result<Vec<u64>> {
        let flag = |frame: u64| match (frame, frame % 16) {
            (2048.., _) => 0,
            (_, 0) => KPF_COMPOUND_HEAD,
            _ => KPF_COMPOUND_TAIL,
        };
        Ok((first..first + frames as u64).map(flag).collect())
    }

    fn counted(frames: &[Option<u64>], first_page: u64) -> u64 {
        let mut pages = BTreeMap::new();
        count_compound_pages(frames, first_page, &mut pages, flags).expect("each frame has flags");
        assert!(pages.keys().all(|order| *order == PageOrder::CONTIGUOUS));
        pages.values().sum()
    }

    fn run(first: u64, frames: u64) -> Vec<Option<u64>> {
        (first..first + frames).map(Some).collect()
    }

    #[test]
    fn pages_count_that_are_mapped_in_full() {
        // A page mapped in half, or without its first base page, does not count.
        for (first, frames, pages) in [(1024, 32, 2), (1024, 24, 1), (1025, 31, 1)] {
            assert_eq!(counted(&run(first, frames), first - 512), pages, "{first}");
        }
        let apart = [run(1024, 16), vec![None; 16], run(1072, 16)].concat();
        assert_eq!(counted(&apart, 512), 2);
    }

    #[test]
    fn chance_neighbours_and_moved_pages_are_base_pages() {
        assert_eq!(counted(&run(2048, 64), 512), 0);
        assert_eq!(counted(&run(1024, 32), 520), 0);
        assert_eq!(counted(&vec![None; 512], 512), 0);
    }

    #[test]
    fn a_region_is_mapped_by_what_maps_most_of_it() {
        let small = PageOrder::new(2).expect("16 KiB is a page size");
        let pages = BTreeMap::from([(small, 8), (PageOrder::CONTIGUOUS, 4)]);
        assert_eq!(dominant_size(&pages, 100), Some(PageOrder::CONTIGUOUS));
        assert_eq!(dominant_size(&pages, 128), None);
        assert_eq!(dominant_size(&BTreeMap::new(), 0), None);
    }

    #[test]
    fn ranges_are_cut_where_regions_begin() {
        let huge = HUGE_PAGE_BYTES;
        let parts: Vec<_> = split_range_at_regions(huge - 4096..2 * huge + 8192).collect();
        let expected = [huge - 4096..huge, huge..2 * huge, 2 * huge..2 * huge + 8192];
        assert_eq!(parts, expected);
        assert_eq!(split_range_at_regions(8192..8192).count(), 0);
    }
}
