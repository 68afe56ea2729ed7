//! Memory mappings, and the only place that reads and writes them.
//!
//! Every access is volatile: the compiler can neither drop a read nor assume that memory still
//! holds what was written, because whether it does is what the workloads find out.

use crate::error::MemoryError;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};

/// Size of a base page, in bytes.
pub(crate) const PAGE: usize = hawkeye_policy::BASE_PAGE_BYTES as usize;
/// Size of a region (a huge page), in bytes.
pub(crate) const REGION: usize = hawkeye_policy::HUGE_PAGE_BYTES as usize;
/// Base pages in a region.
pub(crate) const REGION_PAGES: usize = REGION / PAGE;
/// Eight-byte words in a base page.
pub(crate) const PAGE_WORDS: usize = PAGE / 8;

/// What pages a workload asks the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pages {
    /// Base pages at the first touch, that may be promoted later.
    Base,
    /// Huge pages from the first touch (`MADV_HUGEPAGE`).
    Huge,
    /// Whatever the system's setting gives without advice.
    Default,
}

/// What a range of memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Nothing: the next access is fatal.
    Nothing,
    /// Reads.
    Read,
    /// Reads and writes.
    ReadWrite,
}

/// A range of memory that belongs to this value alone.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    /// Never zero, a multiple of the base page.
    bytes: usize,
}

// SAFETY: the mapping is owned by this value alone and is tied to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps private memory, aligned to 2 MiB, and lets `touch` write to it for the first time,
    /// which is when the kernel chooses the pages.
    pub(crate) fn private(
        bytes: usize,
        pages: Pages,
        touch: impl FnOnce(&mut Self),
    ) -> Result<Self, MemoryError> {
        let mut mapping = Self::aligned(bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        // Forbidding huge pages would forbid promotion, too. So it is done only where everyone
        // gets them, and taken back by the advice that means nothing where everyone gets them.
        let forbid = pages == Pages::Base && huge_pages_for_everyone();
        if forbid {
            mapping.advise(0, bytes, libc::MADV_NOHUGEPAGE)?;
        } else if pages == Pages::Huge {
            mapping.advise(0, bytes, libc::MADV_HUGEPAGE)?;
        }
        touch(&mut mapping);
        if forbid {
            mapping.advise(0, bytes, libc::MADV_HUGEPAGE)?;
        }
        Ok(mapping)
    }

    /// Maps private memory where the kernel puts it, as allocators do: beside the mapping before it, with which it becomes one.
    pub(crate) fn plain(bytes: usize) -> Result<Self, MemoryError> {
        map_anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)
    }

    /// Asks for huge pages for the first `bytes` of it.
    pub(crate) fn want_huge(&mut self, bytes: usize) -> Result<(), MemoryError> {
        self.advise(0, bytes, libc::MADV_HUGEPAGE)
    }

    /// Lets KSM merge its pages with equal ones.
    pub(crate) fn mergeable(&mut self) -> Result<(), MemoryError> {
        self.advise(0, self.bytes, libc::MADV_MERGEABLE)
    }

    /// Maps private memory that never becomes huge.
    pub(crate) fn of_base_pages(bytes: usize) -> Result<Self, MemoryError> {
        let mapping = map_anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)?;
        mapping.advise(0, bytes, libc::MADV_NOHUGEPAGE)?;
        Ok(mapping)
    }

    /// Maps memory that stays shared with forked children.
    pub(crate) fn shared(bytes: usize) -> Result<Self, MemoryError> {
        map_anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    /// Maps a file for reading, from its begin, shared with whoever else maps it; `populate` has the
    /// kernel fill the page tables at once. Reads beyond the end of the file are fatal.
    pub(crate) fn of_file(file: &File, bytes: usize, populate: bool) -> Result<Self, MemoryError> {
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | populate;
        map(bytes, libc::PROT_READ, flags, file.as_raw_fd())
    }

    /// Maps private memory at `shift` bytes after a 2 MiB boundary.
    fn aligned(bytes: usize, protection: i32, shift: usize) -> Result<Self, MemoryError> {
        let wide = map_anonymous(bytes + REGION + shift, protection, libc::MAP_PRIVATE)?;
        let head = wide.start.as_ptr().align_offset(REGION) + shift;
        let (_, rest) = wide.split(head);
        let Some(rest) = rest else {
            unreachable!("the mapping is longer than its head")
        };
        let (wanted, _) = rest.split(bytes);
        let Some(wanted) = wanted else {
            unreachable!("mappings are never empty")
        };
        Ok(wanted)
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Length in base pages.
    pub(crate) fn pages(&self) -> usize {
        self.bytes / PAGE
    }

    /// Reads the word at a byte offset, a multiple of eight.
    #[inline]
    pub(crate) fn read(&self, offset: usize) -> u64 {
        let word = self.word(offset);
        // SAFETY: `word` is an aligned word of the mapping, which we own and which lives as long
        // as `self`; any bit pattern is a u64.
        unsafe { word.read_volatile() }
    }

    /// Writes the word at a byte offset, a multiple of eight.
    #[inline]
    pub(crate) fn write(&mut self, offset: usize, value: u64) {
        let word = self.word(offset);
        // SAFETY: as in `read`, and `&mut self` excludes every other access.
        unsafe { word.write_volatile(value) }
    }

    #[inline]
    fn word(&self, offset: usize) -> *mut u64 {
        assert!(
            offset < self.bytes && offset % 8 == 0,
            "word outside the mapping"
        );
        // SAFETY: the offset is inside the mapping; as it is a multiple of eight and the mapping
        // one of pages, so is the whole word.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Has the kernel map all of a range, each page with memory of its own (since Linux 5.14).
    pub(crate) fn populate(&mut self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.advise(offset, bytes, libc::MADV_POPULATE_WRITE)
    }

    /// Gives a range back to the kernel: it reads as zeros afterwards.
    pub(crate) fn discard(&mut self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.advise(offset, bytes, libc::MADV_DONTNEED)
    }

    /// Has a pipe refer to a range of pages, which keeps them and keeps them where they are.
    pub(crate) fn reference(
        &self,
        offset: usize,
        bytes: usize,
        pipe: BorrowedFd<'_>,
    ) -> Result<(), MemoryError> {
        let range = libc::iovec {
            iov_base: self.range(offset, bytes),
            iov_len: bytes,
        };
        // SAFETY: the range is ours; the call only reads the page table, and the pages may change while they are in the
        // pipe: nobody reads it.
        let done = unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const range, 1, 0) };
        if usize::try_from(done) == Ok(bytes) {
            Ok(())
        } else {
            Err(MemoryError::last("vmsplice", bytes))
        }
    }

    fn advise(&self, offset: usize, bytes: usize, advice: i32) -> Result<(), MemoryError> {
        let at = self.range(offset, bytes);
        // SAFETY: the range is ours; the advice used here at most zeroes it, and no reference
        // into it exists.
        let result = unsafe { libc::madvise(at, bytes, advice) };
        if result == 0 {
            Ok(())
        } else {
            Err(MemoryError::last("madvise", bytes))
        }
    }

    /// Sets what a range allows. An access that it does not allow ends the process.
    pub(crate) fn protect(
        &mut self,
        offset: usize,
        bytes: usize,
        protection: Protection,
    ) -> Result<(), MemoryError> {
        let at = self.range(offset, bytes);
        let bits = match protection {
            Protection::Nothing => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: the range is ours and no reference into it exists.
        let result = unsafe { libc::mprotect(at, bytes, bits) };
        if result == 0 {
            Ok(())
        } else {
            Err(MemoryError::last("mprotect", bytes))
        }
    }

    /// Makes the mapping longer or shorter, where it is or somewhere else.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), MemoryError> {
        assert!(bytes > 0 && bytes % PAGE == 0, "a mapping is made of pages");
        let old = self.start.as_ptr().cast();
        // SAFETY: the old range is ours, no reference into it exists, and the kernel picks a
        // free place for the new one.
        let new = unsafe { libc::mremap(old, self.bytes, bytes, libc::MREMAP_MAYMOVE) };
        self.moved("mremap", new, bytes)
    }

    /// Moves the mapping to a new place, `shift` bytes (whole pages) after a 2 MiB boundary.
    pub(crate) fn relocate(&mut self, shift: usize) -> Result<(), MemoryError> {
        assert!(shift % PAGE == 0, "a mapping starts at a page");
        let place = Self::aligned(self.bytes, libc::PROT_NONE, shift)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (old, target) = (self.start.as_ptr().cast(), place.start.as_ptr());
        // SAFETY: both ranges are ours and no reference into either exists; the call replaces
        // `place` by what `self` maps.
        let new = unsafe { libc::mremap(old, self.bytes, self.bytes, flags, target) };
        self.moved("mremap", new, self.bytes)?;
        std::mem::forget(place); // `self` owns that range now
        Ok(())
    }

    fn moved(
        &mut self,
        call: &'static str,
        new: *mut libc::c_void,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        match NonNull::new(new.cast::<u8>()) {
            Some(start) if new != libc::MAP_FAILED => {
                (self.start, self.bytes) = (start, bytes);
                Ok(())
            }
            _ => Err(MemoryError::last(call, bytes)),
        }
    }

    /// Cuts the mapping in two at a byte offset (whole pages), without a system call.
    pub(crate) fn split(self, at: usize) -> (Option<Self>, Option<Self>) {
        assert!(
            at <= self.bytes && at % PAGE == 0,
            "a cut is at a page of the mapping"
        );
        let this = std::mem::ManuallyDrop::new(self);
        if at == 0 {
            return (
                None,
                Some(Self {
                    start: this.start,
                    bytes: this.bytes,
                }),
            );
        }
        let head = Self {
            start: this.start,
            bytes: at,
        };
        if at == this.bytes {
            return (Some(head), None);
        }
        // SAFETY: the offset is inside the mapping.
        let start = unsafe { this.start.add(at) };
        (
            Some(head),
            Some(Self {
                start,
                bytes: this.bytes - at,
            }),
        )
    }

    fn range(&self, offset: usize, bytes: usize) -> *mut libc::c_void {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        assert!(inside && offset % PAGE == 0, "range outside the mapping");
        // SAFETY: the offset is inside the mapping or just at its end.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nobody can refer to it any more. It fails only at the
        // limit of mappings, and then the memory is merely kept.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map_anonymous(bytes: usize, protection: i32, sharing: i32) -> Result<Mapping, MemoryError> {
    let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | sharing;
    map(bytes, protection, flags, -1)
}

fn map(bytes: usize, protection: i32, flags: i32, fd: RawFd) -> Result<Mapping, MemoryError> {
    assert!(bytes > 0 && bytes % PAGE == 0, "a mapping is made of pages");
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, 0) };
    match NonNull::new(start.cast()) {
        Some(at) if start != libc::MAP_FAILED => Ok(Mapping { start: at, bytes }),
        _ => Err(MemoryError::last("mmap", bytes)),
    }
}

fn huge_pages_for_everyone() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|setting| setting.contains("[always]"))
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
