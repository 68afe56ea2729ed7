//! Memory of the test itself, which a manager changes and a monitor of page faults watches.

use hawkeye_linux::anonymous_mapping::AnonymousMapping;
use hawkeye_linux::probe::userfaultfd_handle::{UserfaultfdHandle, WatchMode};
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::sample::pagemap;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionAddr};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Huge-page regions in a mapping of the test.
pub struct MappedRegions {
    _mapped: AnonymousMapping,
    start: u64,
    /// Their number.
    pub regions: u64,
}

// SAFETY: a mapping that only this test uses; all threads access it by volatile reads and writes of
// single bytes.
unsafe impl Sync for MappedRegions {}

impl MappedRegions {
    /// Maps regions, without pages in them.
    ///
    /// # Panics
    /// They can't be mapped.
    pub fn new(regions: u64) -> Self {
        let bytes = ((regions + 1) * HUGE_PAGE_BYTES) as usize;
        let mapped = AnonymousMapping::map(bytes).expect("memory can be mapped");
        Self { start: mapped.address().next_multiple_of(HUGE_PAGE_BYTES), _mapped: mapped, regions }
    }

    /// The `index`th region.
    pub fn region(&self, index: u64) -> RegionAddr {
        RegionAddr::containing(self.start + index * HUGE_PAGE_BYTES)
    }

    /// The addresses of these regions.
    pub fn range(&self, regions: Range<u64>) -> Range<u64> {
        let at = |index: u64| self.start + index * HUGE_PAGE_BYTES;
        at(regions.start)..at(regions.end)
    }

    /// Writes one byte.
    ///
    /// # Panics
    /// The address is outside of the regions.
    pub fn write(&self, address: u64, value: u8) {
        assert!(self.range(0..self.regions).contains(&address));
        // SAFETY: the address is within the mapping, by the check above.
        unsafe { (address as *mut u8).write_volatile(value) };
    }

    /// Reads one byte.
    ///
    /// # Panics
    /// The address is outside of the regions.
    pub fn read(&self, address: u64) -> u8 {
        assert!(self.range(0..self.regions).contains(&address));
        // SAFETY: as above.
        unsafe { (address as *const u8).read_volatile() }
    }

    /// Calls `madvise` on a range.
    ///
    /// # Panics
    /// The kernel refuses, or the range is not within the regions.
    pub fn advise(&self, range: Range<u64>, advice: libc::c_int) {
        let all = self.range(0..self.regions);
        assert!(all.start <= range.start && range.end <= all.end);
        let bytes = (range.end - range.start) as usize;
        // SAFETY: advice on this test's own mapping.
        let done = unsafe { libc::madvise(range.start as *mut _, bytes, advice) };
        assert_eq!(done, 0, "madvise {advice}");
    }

    /// Maps base pages in a range and writes to each; huge pages are allowed afterwards.
    ///
    /// # Panics
    /// The kernel refuses the advice.
    pub fn touch_as_base_pages(&self, range: Range<u64>) {
        self.advise(range.clone(), libc::MADV_NOHUGEPAGE);
        pages(range.clone()).for_each(|page| self.write(page, 1));
        self.advise(range, libc::MADV_HUGEPAGE);
    }

    /// How many regions of a range are huge.
    ///
    /// # Panics
    /// The pagemap can't be read.
    pub fn huge_regions(&self, range: Range<u64>) -> usize {
        let found = pagemap::read_population(std::process::id(), &[range])
            .expect("the pagemap can be read");
        found.iter().filter(|r| r.is_huge()).count()
    }
}

/// The addresses of a range's base pages.
pub fn pages(range: Range<u64>) -> impl Iterator<Item = u64> {
    range.step_by(BASE_PAGE_BYTES as usize)
}

/// Registers a range with a monitor of page faults.
///
/// # Panics
/// The kernel refuses.
pub fn register(watcher: &UserfaultfdHandle, range: Range<u64>, mode: WatchMode) {
    watcher.register(range, mode).expect("the range can be registered");
}

/// The test process.
///
/// # Panics
/// It can't be opened.
pub fn own() -> ProcessHandle {
    ProcessHandle::open(std::process::id()).expect("the process can be opened")
}

/// Protects a range, writes `value` to each of its pages, and returns the pages that the monitor
/// reported.
///
/// # Panics
/// The monitor can't be used.
pub fn written_under_protection(
    memory: &MappedRegions,
    watcher: &UserfaultfdHandle,
    range: Range<u64>,
    value: u8,
) -> BTreeSet<u64> {
    watcher.write_protect(range.clone(), true).expect("the range can be protected");
    let written = AtomicBool::new(false);
    let mut heard = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pages(range.clone()).for_each(|page| memory.write(page, value));
            written.store(true, Ordering::Release);
        });
        while !written.load(Ordering::Acquire) {
            match watcher.next_fault_address().expect("the monitor can be read") {
                Some(address) => {
                    let page = address & !(BASE_PAGE_BYTES - 1);
                    heard.insert(page);
                    let whole = page..page + BASE_PAGE_BYTES;
                    watcher.write_protect(whole, false).expect("the page can be unprotected");
                }
                None => std::thread::yield_now(),
            }
        }
    });
    heard
}

/// Asserts that the monitor reported a write to each page of a range.
///
/// # Panics
/// It missed one.
pub fn assert_all_reported(heard: &BTreeSet<u64>, range: Range<u64>) {
    let missed: Vec<u64> = pages(range).filter(|page| !heard.contains(page)).collect();
    let count = missed.len();
    assert_eq!(count, 0, "writes were missed: {missed:x?}");
}
