//! Memory mappings, and the only place that reads and writes them.
//!
//! Every access is volatile: the compiler can neither drop a read nor assume that memory still
//! holds the written value. Whether it does is what the workloads find out.

use crate::error::MemoryCallError;
use crate::protocol::WrongWord;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};

/// Size of a base page, in bytes.
pub(crate) const PAGE: usize = hawkeye_policy::BASE_PAGE_BYTES as usize;
/// Size of a region (a huge page), in bytes.
pub(crate) const REGION: usize = hawkeye_policy::HUGE_PAGE_BYTES as usize;
pub(crate) const REGION_PAGES: usize = REGION / PAGE;
/// Eight-byte words in a base page.
pub(crate) const PAGE_WORDS: usize = PAGE / 8;

/// What pages a workload asks the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RequestedPageKind {
    /// Base pages at the first touch, that may be promoted later.
    Base,
    /// Huge pages from the first touch (`MADV_HUGEPAGE`).
    Huge,
    /// Whatever the system's setting gives without advice.
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryProtection {
    /// Nothing: the next access is fatal.
    Nothing,
    Read,
    ReadWrite,
}

pub(crate) struct WorkloadMemory {
    start: NonNull<u8>,
    /// Never zero; a multiple of the base page.
    bytes: usize,
    /// Huge pages are forbidden until the memory is touched.
    base_at_first_touch: bool,
}

// SAFETY: the mapping is owned by this value alone and is tied to no thread.
unsafe impl Send for WorkloadMemory {}

impl WorkloadMemory {
    /// Maps private memory for base pages as [`Self::map_private`] does; `None` for 0 MiB.
    pub(crate) fn map_private_if_any(mib: u64) -> Result<Option<Self>, MemoryCallError> {
        let map = || Self::map_private((mib << 20) as usize, RequestedPageKind::Base);
        (mib > 0).then(map).transpose()
    }

    /// Maps private memory as [`Self::map_private`] does. `touch` writes to it for the first time.
    pub(crate) fn map_private_and_touch(
        bytes: usize,
        pages: RequestedPageKind,
        touch: impl FnOnce(&mut Self),
    ) -> Result<Self, MemoryCallError> {
        let mut mapping = Self::map_private(bytes, pages)?;
        touch(&mut mapping);
        mapping.allow_promotion()?;
        Ok(mapping)
    }

    /// Maps private memory, aligned to 2 MiB, without touching it. The kernel chooses the pages at
    /// the first touch. [`Self::allow_promotion`] must follow that.
    pub(crate) fn map_private(
        bytes: usize,
        pages: RequestedPageKind,
    ) -> Result<Self, MemoryCallError> {
        Self::map_private_where(bytes, pages, is_thp_always())
    }

    fn map_private_where(
        bytes: usize,
        pages: RequestedPageKind,
        thp_always: bool,
    ) -> Result<Self, MemoryCallError> {
        let mut mapping = Self::map_private_aligned(bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        // Forbidding huge pages forbids promotion, too. It is therefore done only where every
        // program gets huge pages at faults.
        mapping.base_at_first_touch = pages == RequestedPageKind::Base && thp_always;
        mapping.expect_first_touch_of_range(0, bytes)?;
        if pages == RequestedPageKind::Huge {
            mapping.advise_huge(bytes)?;
        }
        Ok(mapping)
    }

    /// Lets memory be promoted that has been touched. A forked child calls this for what it has
    /// touched itself; the call is async-signal-safe.
    pub(crate) fn allow_promotion(&mut self) -> Result<(), MemoryCallError> {
        self.allow_promotion_of_range(0, self.bytes)
    }

    /// Lets a range be promoted that has been touched.
    pub(crate) fn allow_promotion_of_range(
        &mut self,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryCallError> {
        // It takes the other advice back, and has no other effect where huge pages are for all.
        self.advise_if_base_at_first_touch(offset, bytes, libc::MADV_HUGEPAGE)
    }

    /// The next touch of a range that was given back counts as the first again.
    pub(crate) fn expect_first_touch_of_range(
        &mut self,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryCallError> {
        self.advise_if_base_at_first_touch(offset, bytes, libc::MADV_NOHUGEPAGE)
    }

    fn advise_if_base_at_first_touch(
        &mut self,
        offset: usize,
        bytes: usize,
        advice: libc::c_int,
    ) -> Result<(), MemoryCallError> {
        if self.base_at_first_touch { self.advise_range(offset, bytes, advice) } else { Ok(()) }
    }

    /// Maps private memory as allocators do: the kernel merges it with the previous mapping.
    pub(crate) fn map_unaligned(bytes: usize) -> Result<Self, MemoryCallError> {
        map_anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)
    }

    /// Advises huge pages for the first `bytes` of it.
    pub(crate) fn advise_huge(&mut self, bytes: usize) -> Result<(), MemoryCallError> {
        self.advise_range(0, bytes, libc::MADV_HUGEPAGE)
    }

    /// Lets KSM merge its pages with equal ones.
    pub(crate) fn allow_same_page_merging(&mut self) -> Result<(), MemoryCallError> {
        self.advise_range(0, self.bytes, libc::MADV_MERGEABLE)
    }

    pub(crate) fn map_without_huge_pages(bytes: usize) -> Result<Self, MemoryCallError> {
        let mapping = Self::map_unaligned(bytes)?;
        mapping.advise_range(0, bytes, libc::MADV_NOHUGEPAGE)?;
        Ok(mapping)
    }

    pub(crate) fn map_shared(bytes: usize) -> Result<Self, MemoryCallError> {
        map_anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    /// Maps a file for reading, from its first byte, shared with other mappings of the file.
    /// `populate` makes the kernel fill the page tables at once. Reads beyond the end of the file
    /// are fatal.
    pub(crate) fn map_file(
        file: &File,
        bytes: usize,
        populate: bool,
    ) -> Result<Self, MemoryCallError> {
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | populate;
        map_anywhere(bytes, libc::PROT_READ, flags, file.as_raw_fd())
    }

    /// Maps a file for reading and writing, shared with other mappings of it, at `shift` bytes
    /// (whole pages) after a 2 MiB boundary.
    pub(crate) fn map_file_aligned(
        file: &File,
        bytes: usize,
        shift: usize,
    ) -> Result<Self, MemoryCallError> {
        assert!(shift % PAGE == 0, "a mapping starts at a page");
        let place = Self::map_private_aligned(bytes, libc::PROT_NONE, shift)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let (target, descriptor) = (place.start.as_ptr().cast(), file.as_raw_fd());
        // SAFETY: the range is that of `place`, which is ours and in which no reference points.
        let new = unsafe { libc::mmap(target, bytes, protection, flags, descriptor, 0) };
        mmap_result(new, "mmap", bytes)?;
        Ok(place)
    }

    /// Maps private memory at `shift` bytes after a 2 MiB boundary.
    pub(crate) fn map_private_aligned(
        bytes: usize,
        protection: i32,
        shift: usize,
    ) -> Result<Self, MemoryCallError> {
        let wide = map_anonymous(bytes + REGION + shift, protection, libc::MAP_PRIVATE)?;
        let head = wide.start.as_ptr().align_offset(REGION) + shift;
        let wanted = wide.split_at(head).1.and_then(|rest| rest.split_at(bytes).0);
        Ok(wanted.unwrap_or_else(|| unreachable!("the mapping is longer than its head")))
    }

    pub(crate) fn start_address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn count_pages(&self) -> usize {
        self.bytes / PAGE
    }

    /// Reads the word at a byte offset, a multiple of eight.
    #[inline]
    pub(crate) fn read_word(&self, offset: usize) -> u64 {
        let word = self.word_pointer(offset);
        // SAFETY: `word` is an aligned word of the mapping, which we own and which lives as long
        // as `self`; any bit pattern is a u64.
        unsafe { word.read_volatile() }
    }

    /// Builds the report that the word at a byte offset is wrong. Reads the word again for it.
    pub(crate) fn wrong_word_report(
        &self,
        offset: usize,
        expected: u64,
        found: u64,
        during: &str,
    ) -> WrongWord {
        WrongWord {
            address: self.start_address() + offset as u64,
            expected,
            found,
            found_again: self.read_word(offset),
            thread: 0,
            during: during.to_owned(),
            in_child: false,
        }
    }

    /// Writes the word at a byte offset, a multiple of eight.
    #[inline]
    pub(crate) fn write_word(&mut self, offset: usize, value: u64) {
        let word = self.word_pointer(offset);
        // SAFETY: as in `read_word`, and `&mut self` excludes every other access.
        unsafe { word.write_volatile(value) }
    }

    #[inline]
    fn word_pointer(&self, offset: usize) -> *mut u64 {
        assert!(offset < self.bytes && offset % 8 == 0, "word outside the mapping");
        // SAFETY: the offset is inside the mapping; as it is a multiple of eight and the mapping
        // one of pages, so is the whole word.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Makes the kernel map all of a range, each page with memory of its own (since Linux 5.14).
    pub(crate) fn populate_range(
        &mut self,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryCallError> {
        self.advise_range(offset, bytes, libc::MADV_POPULATE_WRITE)
    }

    /// Gives a range back to the kernel; it reads as zeros afterwards.
    pub(crate) fn discard_range(
        &mut self,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryCallError> {
        self.advise_range(offset, bytes, libc::MADV_DONTNEED)
    }

    /// Makes a pipe refer to a range of pages, which keeps them in memory and in place.
    pub(crate) fn pin_by_pipe(
        &self,
        offset: usize,
        bytes: usize,
        pipe: BorrowedFd<'_>,
    ) -> Result<(), MemoryCallError> {
        let range = libc::iovec { iov_base: self.range_pointer(offset, bytes), iov_len: bytes };
        // SAFETY: the range is ours. The call only reads the page table. The pages may change while
        // they are in the pipe, because nothing reads the pipe.
        let done = unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const range, 1, 0) };
        if usize::try_from(done) == Ok(bytes) {
            Ok(())
        } else {
            Err(MemoryCallError::last_os_error("vmsplice", bytes))
        }
    }

    fn advise_range(
        &self,
        offset: usize,
        bytes: usize,
        advice: i32,
    ) -> Result<(), MemoryCallError> {
        let at = self.range_pointer(offset, bytes);
        // SAFETY: the range is ours; the advice used here at most zeroes it, and no reference
        // into it exists.
        check_memory_call(unsafe { libc::madvise(at, bytes, advice) }, "madvise", bytes)
    }

    /// Sets the accesses that a range allows. Any other access ends the process.
    pub(crate) fn protect_range(
        &mut self,
        offset: usize,
        bytes: usize,
        protection: MemoryProtection,
    ) -> Result<(), MemoryCallError> {
        let at = self.range_pointer(offset, bytes);
        let bits = match protection {
            MemoryProtection::Nothing => libc::PROT_NONE,
            MemoryProtection::Read => libc::PROT_READ,
            MemoryProtection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: the range is ours and no reference into it exists.
        check_memory_call(unsafe { libc::mprotect(at, bytes, bits) }, "mprotect", bytes)
    }

    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), MemoryCallError> {
        assert!(bytes > 0 && bytes % PAGE == 0, "a mapping is made of pages");
        let old = self.start.as_ptr().cast();
        // SAFETY: the old range is ours, no reference into it exists, and the kernel picks a
        // free place for the new one.
        let new = unsafe { libc::mremap(old, self.bytes, bytes, libc::MREMAP_MAYMOVE) };
        (self.start, self.bytes) = (mmap_result(new, "mremap", bytes)?, bytes);
        Ok(())
    }

    /// Moves the mapping to a new place, `shift` bytes (whole pages) after a 2 MiB boundary.
    pub(crate) fn relocate(&mut self, shift: usize) -> Result<(), MemoryCallError> {
        assert!(shift % PAGE == 0, "a mapping starts at a page");
        let place = Self::map_private_aligned(self.bytes, libc::PROT_NONE, shift)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (old, target) = (self.start.as_ptr().cast(), place.start.as_ptr());
        // SAFETY: both ranges are ours and no reference into either exists; the call replaces
        // `place` by what `self` maps.
        let new = unsafe { libc::mremap(old, self.bytes, self.bytes, flags, target) };
        self.start = mmap_result(new, "mremap", self.bytes)?;
        std::mem::forget(place); // `self` owns that range now
        Ok(())
    }

    /// Cuts the mapping in two at a byte offset (whole pages), without a system call.
    pub(crate) fn split_at(self, at: usize) -> (Option<Self>, Option<Self>) {
        assert!(at <= self.bytes && at % PAGE == 0, "a cut is at a page of the mapping");
        let this = std::mem::ManuallyDrop::new(self);
        // An empty part must not exist, not even to be dropped.
        let base_at_first_touch = this.base_at_first_touch;
        let part = |start, bytes| (bytes > 0).then(|| Self { start, bytes, base_at_first_touch });
        // SAFETY: the offset is inside the mapping or just at its end.
        let rest = unsafe { this.start.add(at) };
        (part(this.start, at), part(rest, this.bytes - at))
    }

    fn range_pointer(&self, offset: usize, bytes: usize) -> *mut libc::c_void {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset % PAGE == 0, "range outside the mapping");
        // SAFETY: the offset is inside the mapping or just at its end.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }
}

impl Drop for WorkloadMemory {
    fn drop(&mut self) {
        // SAFETY: the range is ours and no reference to it exists any more. The call fails only at
        // the limit of mappings, and then the memory is merely kept.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map_anonymous(
    bytes: usize,
    protection: i32,
    sharing: i32,
) -> Result<WorkloadMemory, MemoryCallError> {
    let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | sharing;
    map_anywhere(bytes, protection, flags, -1)
}

fn map_anywhere(
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: RawFd,
) -> Result<WorkloadMemory, MemoryCallError> {
    assert!(bytes > 0 && bytes % PAGE == 0, "a mapping is made of pages");
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, 0) };
    let start = mmap_result(start, "mmap", bytes)?;
    Ok(WorkloadMemory { start, bytes, base_at_first_touch: false })
}

fn mmap_result(
    start: *mut libc::c_void,
    call: &'static str,
    bytes: usize,
) -> Result<NonNull<u8>, MemoryCallError> {
    let found = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
    found.ok_or_else(|| MemoryCallError::last_os_error(call, bytes))
}

fn check_memory_call(result: i32, call: &'static str, bytes: usize) -> Result<(), MemoryCallError> {
    match result {
        0 => Ok(()),
        _ => Err(MemoryCallError::last_os_error(call, bytes)),
    }
}

fn is_thp_always() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|setting| setting.contains("[always]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_survive_moves_and_discarded_pages_are_zero() {
        let mut memory =
            WorkloadMemory::map_private_and_touch(2 * REGION, RequestedPageKind::Default, |_| ())
                .unwrap();
        assert_eq!(memory.start_address() % REGION as u64, 0);
        memory.write_word(PAGE, 11);
        memory.write_word(2 * REGION - 8, 22);
        memory.relocate(3 * PAGE).unwrap();
        assert_eq!(memory.start_address() % REGION as u64, 3 * PAGE as u64);
        memory.resize(4 * REGION).unwrap();
        assert_eq!((memory.read_word(PAGE), memory.read_word(2 * REGION - 8)), (11, 22));
        assert_eq!(memory.read_word(4 * REGION - 8), 0);
        memory.discard_range(PAGE, PAGE).unwrap();
        assert_eq!((memory.read_word(PAGE), memory.read_word(2 * REGION - 8)), (0, 22));
        let (head, tail) = memory.split_at(REGION);
        drop(head);
        assert_eq!(tail.unwrap().read_word(REGION - 8), 22);
    }

    /// The kernel's flag of each region: `Some(true)` where huge pages are advised, `Some(false)`
    /// where they are forbidden.
    fn huge_page_advice(memory: &WorkloadMemory) -> Vec<Option<bool>> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut mapping = 0..0;
        let mut advice = vec![None; memory.bytes / REGION];
        for line in maps.lines() {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((Some(start), Some(end))) = range.map(|(a, b)| (address(a), address(b))) {
                mapping = start..end;
            } else if let Some(flags) = line.strip_prefix("VmFlags:") {
                let has = |flag| flags.split(' ').any(|found| found == flag);
                for (region, advice) in advice.iter_mut().enumerate() {
                    if mapping.contains(&(memory.start_address() + (region * REGION) as u64)) {
                        *advice = has("hg").then_some(true).or(has("nh").then_some(false));
                    }
                }
            }
        }
        advice
    }

    #[test]
    fn base_pages_stay_requested_until_the_first_touch_is_over() {
        let map = |pages, always| WorkloadMemory::map_private_where(2 * REGION, pages, always);
        let mut memory = map(RequestedPageKind::Base, true).unwrap();
        assert_eq!(huge_page_advice(&memory), [Some(false); 2]);
        memory.allow_promotion_of_range(REGION, REGION).unwrap();
        assert_eq!(huge_page_advice(&memory), [Some(false), Some(true)]);
        memory.allow_promotion().unwrap();
        assert_eq!(huge_page_advice(&memory), [Some(true); 2]);
        memory.expect_first_touch_of_range(0, REGION).unwrap();
        assert_eq!(huge_page_advice(&memory), [Some(false), Some(true)]);
        let mut first = memory.split_at(REGION).0.unwrap();
        first.allow_promotion().unwrap();
        assert_eq!(huge_page_advice(&first), [Some(true)]);
        for (pages, always, advice) in [
            (RequestedPageKind::Base, false, None),
            (RequestedPageKind::Default, true, None),
            (RequestedPageKind::Huge, true, Some(true)),
        ] {
            let mut memory = map(pages, always).unwrap();
            assert_eq!(huge_page_advice(&memory), [advice; 2], "{pages:?}");
            memory.allow_promotion().unwrap();
            assert_eq!(huge_page_advice(&memory), [advice; 2], "{pages:?}");
        }
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn no_word_outside_can_be_read() {
        WorkloadMemory::map_private_and_touch(REGION, RequestedPageKind::Default, |_| ())
            .unwrap()
            .read_word(REGION);
    }

    #[test]
    fn pages_touched_while_mapping_are_kept() {
        for pages in [RequestedPageKind::Base, RequestedPageKind::Default] {
            let memory = WorkloadMemory::map_private_and_touch(REGION, pages, |memory| {
                memory.write_word(PAGE, 5)
            })
            .unwrap();
            assert_eq!(memory.read_word(PAGE), 5);
        }
    }
}
