//! Memory that is read to measure page walks: huge pages, base pages, and base pages that map the
//! same memory repeatedly.

use crate::anonymous_mapping::AnonymousMapping;
use crate::error::{LinuxError, Result};
use crate::processes::process::own_huge_bytes;
use crate::sample::random::{map_random_below, next_random};
use hawkeye_policy::saturating_cast::{i64_from_u64, usize_from_u64};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, mmap};
use nix::unistd::ftruncate;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;

/// Memory that is read to measure page walks.
pub(super) struct MeasuredMemory {
    pub(super) memory: AnonymousMapping,
    /// Memory behind the mapping, which may be mapped repeatedly.
    pub(super) distinct_bytes: u64,
    lines: CacheLinesRead,
}

/// The cache lines of a page that random reads choose from.
#[derive(Clone, Copy)]
pub(super) enum CacheLinesRead {
    /// Few enough lines to stay in the first-level cache.
    OneOfEachPage,
    All,
}

impl MeasuredMemory {
    /// Written memory, at least nearly all of it under huge pages. Under base pages its reads would
    /// walk page tables as well, and walks would seem to cost nothing.
    pub(super) fn map_huge_pages(bytes: u64) -> Result<Self> {
        let before = own_huge_bytes()?;
        let area = Self::map_and_write(bytes, MmapAdvise::MADV_HUGEPAGE)?;
        let enough = |huge: u64| huge.saturating_sub(before) >= bytes / 8 * 7;
        if !enough(own_huge_bytes()?) {
            let (start, bytes) = (usize_from_u64(area.memory.address()), area.memory.byte_len());
            let first = start.next_multiple_of(usize_from_u64(HUGE_PAGE_BYTES)) - start;
            let regions = (first..bytes).step_by(usize_from_u64(HUGE_PAGE_BYTES));
            for offset in regions.filter(|at| at + usize_from_u64(HUGE_PAGE_BYTES) <= bytes) {
                // SAFETY: the region lies within the mapping, and a collapse changes no contents.
                unsafe {
                    let region = area.memory.start().as_ptr().byte_add(offset);
                    libc::madvise(region, usize_from_u64(HUGE_PAGE_BYTES), libc::MADV_COLLAPSE);
                }
            }
        }
        if enough(own_huge_bytes()?) {
            return Ok(area);
        }
        Err(LinuxError::NotMeasured(
            "the cost of page walks cannot be measured: no huge pages are available to compare with",
        ))
    }

    /// Written memory, under huge pages or base pages as advised.
    pub(super) fn map_and_write(bytes: u64, advice: MmapAdvise) -> Result<Self> {
        let memory = AnonymousMapping::map(usize_from_u64(bytes)).map_err(mapping_error)?;
        let _ = memory.advise(advice);
        for offset in (0..memory.byte_len()).step_by(usize_from_u64(BASE_PAGE_BYTES)) {
            // SAFETY: `offset` lies within the mapping.
            unsafe { memory.start().cast::<u8>().add(offset).write_volatile(0) };
        }
        Ok(Self { memory, distinct_bytes: bytes, lines: CacheLinesRead::All })
    }

    /// Base pages that map the same `file_bytes` of memory side by side until `bytes` are full.
    pub(super) fn map_repeated_base_pages(
        bytes: u64,
        file_bytes: u64,
        lines: CacheLinesRead,
    ) -> Result<Self> {
        let file = memfd_create(c"hawkeye", MFdFlags::MFD_CLOEXEC).map_err(mapping_error)?;
        ftruncate(&file, i64_from_u64(file_bytes)).map_err(mapping_error)?;
        let memory =
            AnonymousMapping::map_with_protection(usize_from_u64(bytes), ProtFlags::PROT_NONE);
        let memory = memory.map_err(mapping_error)?;
        for offset in (0..memory.byte_len()).step_by(usize_from_u64(file_bytes)) {
            let at = NonZeroUsize::new(usize_from_u64(memory.address()) + offset);
            let length = usize_from_u64(file_bytes).min(memory.byte_len() - offset);
            let length = NonZeroUsize::new(length).unwrap_or(NonZeroUsize::MIN);
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED | MapFlags::MAP_POPULATE;
            // SAFETY: `at` lies within our reservation, a part of which the new mapping replaces.
            unsafe { mmap(at, length, ProtFlags::PROT_READ, flags, file.as_fd(), 0) }
                .map_err(mapping_error)?;
        }
        // A hypervisor that shadows our page tables must notice each page now, and not in the
        // measurement.
        for offset in (0..memory.byte_len()).step_by(usize_from_u64(BASE_PAGE_BYTES)) {
            // SAFETY: `offset` lies within the mapping.
            unsafe { memory.start().cast::<u8>().add(offset).read_volatile() };
        }
        Ok(Self { memory, distinct_bytes: file_bytes, lines })
    }

    /// Reads a word of a random page, on a line chosen by the page or by a random number; returns
    /// the generator's next state and the word.
    #[inline(always)]
    pub(super) fn read_random_word(&self, x: u64, pages: u64) -> (u64, u64) {
        let x = next_random(x);
        let page = map_random_below(x, pages);
        let line = match self.lines {
            CacheLinesRead::OneOfEachPage => page & 63,
            CacheLinesRead::All => x >> 20 & 63,
        };
        (x, self.read_word(page * BASE_PAGE_BYTES + line * 64))
    }

    #[inline(always)]
    pub(super) fn read_word(&self, offset: u64) -> u64 {
        debug_assert!(offset + 8 <= self.memory.byte_len() as u64);
        let word = self.memory.start().cast::<u64>();
        // SAFETY: callers stay within the mapping, on multiples of 8.
        unsafe { word.byte_add(usize_from_u64(offset)).read_volatile() }
    }
}

fn mapping_error(errno: nix::errno::Errno) -> LinuxError {
    LinuxError::wrap_errno("mapping memory to measure page walks")(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_mapping_ends_where_its_reservation_ends() {
        const PAGES: u64 = 5;
        let lines = CacheLinesRead::All;
        let repeated = MeasuredMemory::map_repeated_base_pages(
            PAGES * BASE_PAGE_BYTES,
            2 * BASE_PAGE_BYTES,
            lines,
        );
        let repeated = repeated.expect("the memory can be mapped");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
        let start = repeated.memory.address();
        let address = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let ends = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
        let ours = ends.filter(|(from, _)| {
            (start..start + (PAGES + 1) * BASE_PAGE_BYTES).contains(&address(from))
        });
        let memfd: Vec<u64> = ours.map(|(_, end)| address(end)).collect();
        assert_eq!(memfd.get(2), Some(&(start + PAGES * BASE_PAGE_BYTES)), "{maps}");
    }
}
