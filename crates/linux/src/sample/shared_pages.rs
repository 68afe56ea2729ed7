//! Which pages of a region other processes map too, by `/proc/PID/pagemap`.
//!
//! A page table shows only that a page is write-protected, which has other reasons as well: the
//! other process has ended, or soft-dirty tracking began.

use crate::error::{LinuxError, Result};
use crate::promote::target_call::{Request, TargetCalls};
use crate::sample::pagemap;
use hawkeye_policy::run_rate::PageBits;
use hawkeye_policy::{
    BASE_PAGE_BYTES, MAX_SHARED_PAGES, PAGES_PER_REGION, ProcessId, RegionAddr, RegionSample,
};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The pages of one process that others map too.
pub struct SharedPages {
    path: String,
    file: File,
}

impl SharedPages {
    /// Opens the page map of a process.
    ///
    /// # Errors
    /// The process is gone, or its page map may not be read.
    pub fn open(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/pagemap");
        let file = File::open(&path).map_err(LinuxError::file("opening", &path))?;
        Ok(Self { path, file })
    }

    /// The shared pages of a region, without the zero page. One read of 4 KiB.
    ///
    /// # Errors
    /// The process is gone.
    pub fn in_region(&self, region: RegionAddr) -> Result<PageBits> {
        let mut bytes = [0u8; PAGES_PER_REGION as usize * 8];
        self.file
            .read_exact_at(&mut bytes, region.start() / BASE_PAGE_BYTES * 8)
            .map_err(LinuxError::file("reading", &self.path))?;
        Ok(shared_of(&bytes))
    }
}

impl TargetCalls {
    /// As [`SharedPages::in_region`], for the loop: the read takes the process's `mmap_lock`.
    pub(crate) fn shared_pages(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<PageBits> {
        let request = Request::ReadFile {
            path: &format!("/proc/{}/pagemap", process.pid),
            offset: region.start() / BASE_PAGE_BYTES * 8,
            length: usize::from(PAGES_PER_REGION) * 8,
        };
        let answer = self.make(process, "looking for shared pages", &request)?;
        match <[u8; PAGES_PER_REGION as usize * 8]>::try_from(answer.data) {
            Ok(entries) => Ok(shared_of(&entries)),
            // Its address space is gone.
            Err(_) => Err(LinuxError::NoSuchProcess(process.pid)),
        }
    }
}

fn shared_of(entries: &[u8; PAGES_PER_REGION as usize * 8]) -> PageBits {
    let mut shared = PageBits::default();
    for (page, entry) in (0..PAGES_PER_REGION).zip(pagemap::entries(entries)) {
        if pagemap::is_shared(entry) {
            shared.insert(page);
        }
    }
    shared
}

/// How many pages of a region are shared, where these are more than [`MAX_SHARED_PAGES`]. `found` is
/// what its page table showed just now; where the exact number can't be read, that one counts.
pub(crate) fn above_limit(
    calls: &mut TargetCalls,
    process: ProcessId,
    found: &RegionSample,
) -> Option<u16> {
    if found.maybe_shared <= MAX_SHARED_PAGES {
        return None;
    }
    let exact = calls.shared_pages(process, found.region);
    let pages = exact.map_or(found.maybe_shared, |pages| pages.count());
    (pages > MAX_SHARED_PAGES).then_some(pages)
}
