//! Pages of a region that the process maps, and those that other processes map too, from
//! `/proc/PID/pagemap`.
//!
//! A page table shows only that a page is write-protected. That can have other reasons: the other
//! process has ended, or soft-dirty tracking began.

use crate::error::{LinuxError, Result};
use crate::promote::target_call::{CallHelperPool, TargetRequest};
use crate::ring_buffer::decode_u64s;
use crate::sample::pagemap;
use hawkeye_policy::walk_rate::PageBitmap;
use hawkeye_policy::{
    BASE_PAGE_BYTES, MAX_SHARED_PAGES, PAGES_PER_REGION, ProcessId, RegionAddr, RegionSample,
};
use nix::errno::Errno;

impl CallHelperPool {
    /// The shared pages of a region, without the zero page. The read takes the process's
    /// `mmap_lock`.
    pub fn find_shared_pages_of_region(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<PageBitmap> {
        self.find_pages_of_region(process, region, pagemap::is_mapped_by_others)
    }

    /// The pages of a region that the process maps. The read takes the process's `mmap_lock`.
    pub(crate) fn find_mapped_pages_of_region(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<PageBitmap> {
        self.find_pages_of_region(process, region, |entry| entry & pagemap::PRESENT != 0)
    }

    fn find_pages_of_region(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<PageBitmap> {
        let entries = self.read_pagemap_of_region(process, region)?;
        let mut wanted = PageBitmap::default();
        for (page, entry) in (0..PAGES_PER_REGION).zip(decode_u64s(&entries)) {
            if is_wanted(entry) {
                wanted.insert(page);
            }
        }
        Ok(wanted)
    }

    /// The entries of a region's pages. The read takes the process's `mmap_lock`.
    pub(crate) fn read_pagemap_of_region(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<Vec<u8>> {
        let path = format!("/proc/{}/pagemap", process.pid);
        let offset = region.start() / BASE_PAGE_BYTES * 8;
        let length = usize::from(PAGES_PER_REGION) * 8;
        let call = "looking at the pages of";
        let request = TargetRequest::for_reading_file(call, &path, offset, length);
        let gone = LinuxError::NoSuchProcess(process.pid);
        match self.call_target(process, &request) {
            // The address space is gone.
            Ok(answer) if answer.data.len() < length => Err(gone),
            Err(error) if error.errno() == Some(Errno::ENOENT) => Err(gone),
            answer => Ok(answer?.data),
        }
    }
}

/// The number of shared pages of a region, if it is above [`MAX_SHARED_PAGES`]. `found` is what its
/// page table just showed; its count is used if the exact number cannot be read.
pub(crate) fn shared_page_count_above_limit(
    calls: &mut CallHelperPool,
    process: ProcessId,
    found: &RegionSample,
) -> Option<u16> {
    if found.maybe_shared <= MAX_SHARED_PAGES {
        return None;
    }
    let exact = calls.find_shared_pages_of_region(process, found.region);
    let pages = exact.map_or(found.maybe_shared, |pages| pages.count());
    (pages > MAX_SHARED_PAGES).then_some(pages)
}
