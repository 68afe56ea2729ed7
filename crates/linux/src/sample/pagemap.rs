//! Population without BPF: `/proc/PID/pagemap` and `/proc/PID/smaps`.

use crate::anonymous_mapping::AnonymousMapping;
use crate::error::{LinuxError, Result};
use crate::memory::ksm::KsmState;
use crate::processes::mappings::{self, EligibleRanges, Mapping};
use crate::processes::memory_maps;
use crate::ring_buffer::decode_u64s;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr, RegionSample,
};
use procfs::process::MemoryMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

pub(crate) const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const WRITE_PROTECTED: u64 = 1 << 57;
/// Only this process maps the page; never set for the zero page.
pub(crate) const EXCLUSIVE: u64 = 1 << 56;
const SOFT_DIRTY: u64 = 1 << 55;
pub(crate) const FRAME: u64 = (1 << 55) - 1;
/// `/proc/kpageflags` (include/uapi/linux/kernel-page-flags.h): any but a block's first page.
pub(crate) const KPF_COMPOUND_TAIL: u64 = 1 << 16;
const KPF_THP: u64 = 1 << 22;
/// The zero page, or (part of) the huge zero page.
pub(crate) const KPF_ZERO_PAGE: u64 = 1 << 24;

/// Regions without memory that one reading covers: about half a second of CPU time.
const MAX_EMPTY_REGIONS: u32 = 1 << 18;

/// `/proc/PID/pagemap` of a process (Documentation/admin-guide/mm/pagemap.rst).
pub(crate) struct Pagemap {
    pid: u32,
    file: File,
}

impl Pagemap {
    pub(crate) fn open(pid: u32) -> Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"));
        let file = file.map_err(|_| LinuxError::NoSuchProcess(pid))?;
        Ok(Self { pid, file })
    }

    /// Reads the entries of the pages from `address` on.
    pub(crate) fn read_entries(&self, address: u64, entries: &mut [u8]) -> Result<()> {
        let offset = address / BASE_PAGE_BYTES * 8;
        let read = self.file.read_exact_at(entries, offset);
        read.map_err(|error| match error.kind() {
            // The process has ended.
            ErrorKind::UnexpectedEof => LinuxError::NoSuchProcess(self.pid),
            _ => self.wrap_read_error(error),
        })
    }

    pub(crate) fn wrap_read_error(&self, error: io::Error) -> LinuxError {
        LinuxError::wrap_io_error("reading", format!("/proc/{}/pagemap", self.pid))(error)
    }
}

/// All mappings of a process, from `smaps`. It walks the page tables: milliseconds per GiB.
pub fn read_mappings_from_smaps(pid: u32) -> Result<Vec<Mapping>> {
    let ksm = KsmState::default();
    memory_maps::read_smaps(pid, |map| Some(mapping_from_smaps(&map, &ksm)))
}

fn mapping_from_smaps(map: &MemoryMap, ksm: &KsmState) -> Mapping {
    let mut mapping = Mapping::from_smaps(map);
    mapping.flags = ksm.effective_vma_flags(mapping.flags);
    mapping
}

/// Base pages of every populated region, without access bits: `accessed` repeats `present`. Pages
/// that only this process maps count as written. The regions are ascending.
///
/// After 512 GiB without memory, the rest is not read: a process can map far more than it uses.
pub fn read_population(pid: u32, ranges: &[Range<u64>]) -> Result<Vec<RegionSample>> {
    read_population_until(pid, ranges, MAX_EMPTY_REGIONS)
}

fn read_population_until(
    pid: u32,
    ranges: &[Range<u64>],
    max_empty: u32,
) -> Result<Vec<RegionSample>> {
    let pagemap = Pagemap::open(pid)?;
    // Mappings that are mostly empty are long, so the others are read first.
    let mut ranges = ranges.to_vec();
    ranges.sort_by_key(|range| range.end - range.start);
    let region_bytes = usize_from_u64(HUGE_PAGE_BYTES);
    let mut found = Vec::new();
    let mut empty = 0;
    let mut bytes = [0u8; PAGES_PER_REGION as usize * 8];
    for start in ranges.into_iter().flat_map(|range| range.step_by(region_bytes)) {
        pagemap.read_entries(start, &mut bytes)?;
        match region_sample_from_entries(RegionAddr::containing(start), &bytes) {
            Some(sample) => found.push(sample),
            None => empty += 1,
        }
        if empty == max_empty {
            tracing::debug!("the rest of a sparse process is not read pid={pid} from={start:#x}");
            break;
        }
    }
    found.sort_by_key(|sample| sample.region);
    Ok(found)
}

/// A region with these entries of `/proc/PID/pagemap`; `None` if nothing is populated.
pub(crate) fn region_sample_from_entries(
    region: RegionAddr,
    entries: &[u8],
) -> Option<RegionSample> {
    let mut sample = count_entries(region, decode_u64s(entries), find_zero_page_frame());
    if sample.is_huge() {
        let first = decode_u64s(entries).next().unwrap_or(0) & FRAME;
        let kind = read_huge_aligned_run_kind(first).unwrap_or(HugeAlignedRunKind::BasePages);
        sample.order = PageOrder::base_or_huge(kind != HugeAlignedRunKind::BasePages);
        if kind == HugeAlignedRunKind::HugeZeroPage {
            sample.zero_mapped = std::mem::take(&mut sample.present);
            sample.maybe_shared = 0;
            (sample.accessed, sample.runs) = (0, 0);
        }
    }
    (sample.present > 0 || sample.swapped > 0 || sample.zero_mapped > 0).then_some(sample)
}

/// Whether an entry is a page with memory of its own: present, and not the zero page.
pub(crate) fn is_page_with_memory(entry: u64) -> bool {
    entry & PRESENT != 0 && Some(entry & FRAME) != find_zero_page_frame()
}

/// Whether an entry is a page that another process maps too. The zero page, which every process
/// maps, does not count.
pub(crate) fn is_mapped_by_others(entry: u64) -> bool {
    entry & EXCLUSIVE == 0 && is_page_with_memory(entry)
}

/// Kind of an aligned run of 512 frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HugeAlignedRunKind {
    HugePage,
    /// Unlike that of the small zero page, its frame is not always the same.
    HugeZeroPage,
    /// Base pages that are neighbours by chance, as is common on a machine that was just started.
    BasePages,
}

/// The kind according to `/proc/kpageflags`. A huge page that is not mapped as one (for example
/// after `mprotect` of a part) cannot be distinguished from one that is.
pub(crate) fn read_huge_aligned_run_kind(first: u64) -> io::Result<HugeAlignedRunKind> {
    let file = File::open("/proc/kpageflags")?;
    let half = first + u64::from(PAGES_PER_REGION / 2);
    let flags = (read_frame_flags(&file, first, 1)?[0], read_frame_flags(&file, half, 1)?[0]);
    Ok(match flags {
        (first, _) if first & KPF_ZERO_PAGE != 0 => HugeAlignedRunKind::HugeZeroPage,
        // Blocks are aligned to their size: one that continues at the region's middle fills it.
        (first, half) if first & KPF_THP != 0 && half & KPF_COMPOUND_TAIL != 0 => {
            HugeAlignedRunKind::HugePage
        }
        _ => HugeAlignedRunKind::BasePages,
    })
}

/// Flags of up to `frames` frames from `first` on, of the file `/proc/kpageflags`; 0 for frames
/// after the last one.
pub(crate) fn read_frame_flags(file: &File, first: u64, frames: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0u8; frames * 8];
    file.read_at(&mut bytes, first * 8)?;
    Ok(decode_u64s(&bytes).collect())
}

/// The frame of the shared zero page, found by a read of an unwritten page of our own. `None` where
/// the kernel hides frames.
fn find_zero_page_frame() -> Option<u64> {
    static FRAME_OF_ZEROS: OnceLock<Option<u64>> = OnceLock::new();
    *FRAME_OF_ZEROS.get_or_init(|| {
        let page = AnonymousMapping::map(usize_from_u64(BASE_PAGE_BYTES)).ok()?;
        // SAFETY: the page was just mapped, and its memory is all zeros.
        let value = unsafe { page.start().cast::<u8>().read_volatile() };
        let PagemapEntry(entry) = read_entry(std::process::id(), page.address()).ok()?;
        let zero = entry & PRESENT != 0 && entry & EXCLUSIVE == 0 && entry & FRAME != 0;
        (value == 0 && zero).then_some(entry & FRAME)
    })
}

fn count_entries(
    region: RegionAddr,
    entries: impl Iterator<Item = u64>,
    zero_frame: Option<u64>,
) -> RegionSample {
    let (mut present, mut zero_mapped, mut written, mut swapped) = (0, 0, 0, 0);
    let (mut first_frame, mut contiguous) = (None, 0);
    for (index, entry) in entries.enumerate() {
        let frame = entry & FRAME;
        if entry & PRESENT != 0 && Some(frame) == zero_frame {
            zero_mapped += 1;
        } else if entry & PRESENT != 0 {
            present += 1;
            written += u16::from(entry & EXCLUSIVE != 0);
            let first = *first_frame.get_or_insert(frame);
            contiguous += u16::from(frame == first + index as u64);
        } else if entry & SWAPPED != 0 {
            swapped += 1;
        }
    }
    // One aligned run of frames: a huge page, or base pages that look like one. Frames read as 0
    // without privilege.
    let aligned = first_frame.is_some_and(|f| f != 0 && f % u64::from(PAGES_PER_REGION) == 0);
    RegionSample {
        region,
        present,
        accessed: present,
        runs: u16::from(present > 0),
        written,
        zero_mapped,
        maybe_shared: present - written,
        swapped,
        order: PageOrder::base_or_huge(aligned && contiguous == PAGES_PER_REGION),
        walks_per_s: 0,
        touches_per_s: None,
        freed: 0,
        file: None,
    }
}

/// The entry of `/proc/PID/pagemap` for the page at an address.
pub fn read_entry(pid: u32, address: u64) -> Result<PagemapEntry> {
    let mut bytes = [0u8; 8];
    Pagemap::open(pid)?.read_entries(address, &mut bytes)?;
    Ok(PagemapEntry(u64::from_ne_bytes(bytes)))
}

/// One entry of `/proc/PID/pagemap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagemapEntry(pub(crate) u64);

impl PagemapEntry {
    /// Whether the page was written since the soft-dirty bits were last cleared.
    pub fn is_soft_dirty(self) -> bool {
        self.0 & SOFT_DIRTY != 0
    }

    /// The page's frame; 0 if the page is not present or frames are hidden.
    pub fn frame_or_zero(self) -> u64 {
        if self.0 & PRESENT == 0 { 0 } else { self.0 & FRAME }
    }

    /// Whether userfaultfd write-protects the page.
    pub fn is_write_protected(self) -> bool {
        self.0 & WRITE_PROTECTED != 0
    }
}

/// The mappings of a process, and what is in those that may become huge.
#[derive(Clone, Debug)]
pub struct PresentPages {
    /// All mappings.
    pub mappings: Vec<Mapping>,
    /// Those that may become huge.
    pub eligible: EligibleRanges,
    /// Their regions with something in them, ascending.
    pub regions: Vec<RegionSample>,
}

/// Reads the mappings of a process, and the pages of those with memory. A mapping with nothing but
/// zero pages has none.
pub fn read_eligible_present_pages(pid: u32) -> Result<PresentPages> {
    let ksm = KsmState::default();
    let mut with_memory = Vec::new();
    let mappings = memory_maps::read_smaps(pid, |map| {
        let mapping = mapping_from_smaps(&map, &ksm);
        if memory_maps::has_memory(&map) {
            with_memory.push(mapping.clone());
        }
        Some(mapping)
    })?;
    let eligible = mappings::collect_eligible_ranges(&mappings);
    let to_read = mappings::collect_eligible_ranges(&with_memory).ranges;
    Ok(PresentPages { mappings, eligible, regions: read_population(pid, &to_read)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionAddr {
        RegionAddr::containing(HUGE_PAGE_BYTES)
    }

    #[test]
    fn a_huge_page_looks_like_one_aligned_run_of_frames() {
        let run = |first: u64| (0..512).map(move |i| PRESENT | EXCLUSIVE | (first + i));
        let broken = run(1024).map(|e| if e & FRAME == 1030 { e + 4096 } else { e });
        assert!(count_entries(region(), run(1024), None).is_huge());
        let unaligned = count_entries(region(), run(1025), None);
        let broken = count_entries(region(), broken, None);
        assert!(!unaligned.is_huge() && !broken.is_huge());
    }

    #[test]
    fn a_mapping_that_is_mostly_empty_is_not_read_to_its_end() {
        let huge = usize_from_u64(HUGE_PAGE_BYTES);
        let memory = AnonymousMapping::map(41 * huge).expect("memory can be mapped");
        let first = RegionAddr::containing(memory.address() + HUGE_PAGE_BYTES).start();
        let at = |index: u64| first + index * HUGE_PAGE_BYTES;
        for index in [0, 29, 35] {
            let offset = usize_from_u64(at(index) - memory.address());
            // SAFETY: a byte of that mapping, to which no reference exists.
            unsafe { memory.start().byte_add(offset).cast::<u8>().write_volatile(1) };
        }
        let read = |max_empty| {
            // The short range is read first, although it comes second.
            let ranges = [at(0)..at(30), at(34)..at(36)];
            let found = read_population_until(std::process::id(), &ranges, max_empty);
            let found = found.expect("this process exists").into_iter();
            found.map(|sample| (sample.region.start() - first) / HUGE_PAGE_BYTES).collect()
        };
        let (all, some): (Vec<u64>, Vec<u64>) = (read(100), read(10));
        assert_eq!((all, some), (vec![0, 29, 35], vec![0, 35]));
    }

    #[test]
    fn pages_that_others_map_too_are_shared_exactly() {
        let entries = (0..512).map(|i| match i {
            0..100 => PRESENT | EXCLUSIVE | (1000 + i),
            100..107 => PRESENT | (1000 + i),
            107..200 => PRESENT | 7,
            200..210 => SWAPPED,
            _ => 0,
        });
        let sample = count_entries(region(), entries, Some(7));
        assert_eq!((sample.present, sample.maybe_shared), (107, 7));
        assert_eq!((sample.accessed, sample.swapped), (107, 10));
        assert_eq!(sample.zero_mapped, 93, "the zero page is no memory");
        assert!(!sample.is_huge());
    }

    #[test]
    fn frames_hidden_for_lack_of_privilege_are_no_huge_page() {
        assert!(!count_entries(region(), (0..512).map(|_| PRESENT | EXCLUSIVE), None).is_huge());
    }
}
