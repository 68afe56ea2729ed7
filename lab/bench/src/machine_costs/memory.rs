//! Memory of our own to measure on.

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

/// What pages the first touches get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Base pages, also where everyone gets huge ones.
    Base,
    /// Huge pages, where the kernel has any to give.
    Huge,
}

/// Private memory, from a multiple of 2 MiB on; unmapped at the end.
pub(super) struct Memory {
    mapping: NonNull<c_void>,
    mapped: usize,
    start: NonNull<u8>,
    bytes: usize,
}

fn failed(call: &'static str) -> impl Fn(Errno) -> LinuxError {
    move |errno| LinuxError::Call { call, errno }
}

impl Memory {
    /// Memory that nobody has touched yet. `bytes` are whole regions.
    pub(super) fn map(bytes: usize, pages: Pages) -> Result<Self, LinuxError> {
        let mapped = bytes + REGION;
        let length = NonZeroUsize::new(mapped).unwrap_or(NonZeroUsize::MIN);
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping wherever the kernel likes touches nothing that exists.
        let mapping = unsafe { mmap_anonymous(None, length, protection, flags) };
        let mapping = mapping.map_err(failed("mapping memory to measure on"))?;
        let head = mapping.cast::<u8>().align_offset(REGION);
        // SAFETY: the head is shorter than a region, by which the mapping is longer.
        let start = unsafe { mapping.cast::<u8>().add(head) };
        let memory = Self {
            mapping,
            mapped,
            start,
            bytes,
        };
        let advice = match pages {
            Pages::Base => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        memory.advise(0, bytes, advice)?;
        Ok(memory)
    }

    /// The same, written to on every page; an error where huge pages can't be had.
    pub(super) fn written(bytes: usize, pages: Pages) -> Result<Self, LinuxError> {
        let before = own_huge_bytes()?;
        let memory = Self::map(bytes, pages)?;
        memory.touch(PAGE, 1);
        if pages == Pages::Huge && own_huge_bytes()? < before + bytes as u64 / 10 * 9 {
            return Err(super::not_here(
                "the kernel gives no huge pages at faults: transparent_hugepage/enabled is never, or memory is fragmented",
            ));
        }
        Ok(memory)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn regions(&self) -> usize {
        self.bytes / REGION
    }

    /// Its first address.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// A pointer to a byte of it.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "{offset} in {} bytes", self.bytes);
        // SAFETY: it lies within the mapping.
        unsafe { self.start.add(offset) }
    }

    /// Reads the word at an offset, a multiple of 8.
    pub(super) fn read(&self, offset: usize) -> u64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.bytes);
        // SAFETY: it lies within the mapping, which nobody else writes to.
        unsafe { self.start.add(offset).cast::<u64>().read_volatile() }
    }

    /// Writes the word at an offset, a multiple of 8.
    pub(super) fn write(&self, offset: usize, word: u64) {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.bytes);
        // SAFETY: it lies within the mapping, which nobody else reads or writes.
        unsafe { self.start.add(offset).cast::<u64>().write_volatile(word) }
    }

    /// Writes a word every so many bytes; how long that took, in nanoseconds.
    pub(super) fn touch(&self, step: usize, word: u64) -> f64 {
        let begun = Instant::now();
        for offset in (0..self.bytes).step_by(step) {
            self.write(offset, word);
        }
        nanoseconds(begun)
    }

    /// Advises on a part of it.
    pub(super) fn advise(
        &self,
        offset: usize,
        bytes: usize,
        advice: libc::c_int,
    ) -> Result<(), LinuxError> {
        let bytes = bytes.min(self.bytes - offset);
        let start = self.at(offset).as_ptr().cast();
        // SAFETY: the part lies within the mapping, which holds nothing but what was written to measure.
        let advised = unsafe { libc::madvise(start, bytes, advice) };
        let advised = Errno::result(advised).map(drop);
        advised.map_err(failed("advising on memory of our own"))
    }

    /// Forbids or allows to write to its first page.
    pub(super) fn protect_first_page(&self, writable: bool) -> Result<(), LinuxError> {
        let write = if writable {
            ProtFlags::PROT_WRITE
        } else {
            ProtFlags::empty()
        };
        // SAFETY: the page is ours, and is only read while it is protected.
        let done = unsafe { mprotect(self.start.cast(), PAGE, ProtFlags::PROT_READ | write) };
        done.map_err(failed("protecting memory of our own"))
    }

    /// Unmaps it; how long that took, in nanoseconds.
    pub(super) fn unmap(self) -> f64 {
        let begun = Instant::now();
        drop(self);
        nanoseconds(begun)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody keeps a pointer into it.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}

pub(super) fn nanoseconds(begun: Instant) -> f64 {
    begun.elapsed().as_nanos() as f64
}
