//! Private memory for measurements.

use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::process::own_huge_bytes;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Instant;

pub(super) const PAGE: usize = BASE_PAGE_BYTES as usize;
pub(super) const REGION: usize = HUGE_PAGE_BYTES as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageAdvice {
    /// Base pages, even if huge pages are enabled for all programs.
    Base,
    Huge,
}

/// Private memory that starts at a multiple of 2 MiB; unmapped at the end.
pub(super) struct ScratchMemory {
    mapping: NonNull<c_void>,
    mapped: usize,
    start: NonNull<u8>,
    bytes: usize,
}

impl ScratchMemory {
    /// Maps memory that was never touched. `bytes` must be whole regions.
    pub(super) fn map(bytes: usize, pages: PageAdvice) -> Result<Self, LinuxError> {
        let mapped = bytes + REGION;
        let length = NonZeroUsize::new(mapped).unwrap_or(NonZeroUsize::MIN);
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing one.
        let mapping = unsafe { mmap_anonymous(None, length, protection, flags) };
        let mapping = mapping.map_err(LinuxError::wrap_errno("mapping memory to measure on"))?;
        let head = mapping.cast::<u8>().align_offset(REGION);
        // SAFETY: the mapping is longer by a region, and the head is shorter than that.
        let start = unsafe { mapping.cast::<u8>().add(head) };
        let memory = Self { mapping, mapped, start, bytes };
        let advice = match pages {
            PageAdvice::Base => libc::MADV_NOHUGEPAGE,
            PageAdvice::Huge => libc::MADV_HUGEPAGE,
        };
        memory.madvise_range(0, bytes, advice)?;
        Ok(memory)
    }

    /// Maps memory and writes to each page; an error if huge pages are not available.
    pub(super) fn map_and_write(bytes: usize, pages: PageAdvice) -> Result<Self, LinuxError> {
        let before = own_huge_bytes()?;
        let memory = Self::map(bytes, pages)?;
        memory.time_strided_writes(PAGE, 1);
        if pages == PageAdvice::Huge && own_huge_bytes()? < before + bytes as u64 / 10 * 9 {
            return Err(super::not_measured_error(
                "page faults give no huge pages: transparent_hugepage/enabled is never, or memory is fragmented",
            ));
        }
        Ok(memory)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn region_count(&self) -> usize {
        self.bytes / REGION
    }

    pub(super) fn start_address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(super) fn pointer_at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "{offset} in {} bytes", self.bytes);
        // SAFETY: the offset lies within the mapping.
        unsafe { self.start.add(offset) }
    }

    /// Reads the word at an offset, a multiple of 8.
    pub(super) fn read_word(&self, offset: usize) -> u64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.bytes);
        // SAFETY: the word lies within the mapping, and nothing else writes to that.
        unsafe { self.start.add(offset).cast::<u64>().read_volatile() }
    }

    pub(super) fn write_word(&self, offset: usize, word: u64) {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.bytes);
        // SAFETY: the word lies within the mapping, and nothing else reads or writes that.
        unsafe { self.start.add(offset).cast::<u64>().write_volatile(word) }
    }

    /// Writes a word every `step` bytes; returns the duration in nanoseconds.
    pub(super) fn time_strided_writes(&self, step: usize, word: u64) -> f64 {
        let begun = Instant::now();
        for offset in (0..self.bytes).step_by(step) {
            self.write_word(offset, word);
        }
        nanoseconds_since(begun)
    }

    pub(super) fn madvise_range(
        &self,
        offset: usize,
        bytes: usize,
        advice: libc::c_int,
    ) -> Result<(), LinuxError> {
        let bytes = bytes.min(self.bytes - offset);
        let start = self.pointer_at(offset).as_ptr().cast();
        // SAFETY: the part lies within the mapping, which holds only data written for the
        // measurement.
        let advised = unsafe { libc::madvise(start, bytes, advice) };
        let advised = Errno::result(advised).map(drop);
        advised.map_err(LinuxError::wrap_errno("advising on memory of our own"))
    }

    /// Allows or forbids writes to its first page.
    pub(super) fn set_first_page_writable(&self, writable: bool) -> Result<(), LinuxError> {
        let write = if writable { ProtFlags::PROT_WRITE } else { ProtFlags::empty() };
        // SAFETY: the page is ours, and is only read while it is protected.
        let done = unsafe { mprotect(self.start.cast(), PAGE, ProtFlags::PROT_READ | write) };
        done.map_err(LinuxError::wrap_errno("protecting memory of our own"))
    }

    /// Unmaps the memory; returns the duration in nanoseconds.
    pub(super) fn time_unmap(self) -> f64 {
        let begun = Instant::now();
        drop(self);
        nanoseconds_since(begun)
    }
}

impl Drop for ScratchMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing keeps a pointer into it.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}

pub(super) fn nanoseconds_since(begun: Instant) -> f64 {
    begun.elapsed().as_nanos() as f64
}
