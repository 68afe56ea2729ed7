//! The calls that the manager makes into targets, through helpers.

use super::helper_messages::LISTING_MAPPINGS;
use super::{CallHelperPool, CallResult, TargetRequest};
use crate::error::{LinuxError, Result};
use crate::processes::mapping_records::parse_mapping_records;
use crate::processes::mappings::Mapping;
use crate::processes::process::ProcessHandle;
use crate::promote::process_madvise::{CLEAR, CollapseRetry, PAGE_OUT, SPLIT};
use crate::promote::reserve::RESERVE;
use crate::sample::page_table_reader::ProcessBpfLinks;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId, RegionAddr};
use nix::errno::Errno;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Most regions cleared in one call: it holds `mmap_lock` for reading for 0.25 ms.
const CLEARED_PER_CALL: usize = 16;
/// Base pages of which one call copies the contents.
pub(crate) const ZERO_CHECKED_PER_CALL: u16 = 8;

/// Result of clearing some regions, in order.
pub struct AccessBitClearResult {
    /// Number of regions that were cleared.
    pub done: usize,
    /// Number of regions that need no other try. It includes the first that cannot be cleared,
    /// because it was unmapped or locked meanwhile.
    pub passed: usize,
    /// The kernel's answer. The error says why none could be cleared: `EINVAL` where the first is
    /// locked in memory, `ENOMEM` where part of it is not mapped.
    pub answer: Result<CallResult>,
}

impl CallHelperPool {
    /// Reads a byte, which maps untouched memory, as a read by the process itself would. `huge`: it
    /// maps a huge page, so the reserve gives one.
    ///
    /// It never waits for userfaultfd: it fails with `EIO` where a monitor would have to answer
    /// (mm/gup.c, `get_user_page_vma_remote` allows no retry; fs/userfaultfd.c,
    /// `handle_userfault`).
    ///
    /// # Errors
    /// - `EIO`: nothing is mapped there, or userfaultfd watches it.
    /// - `NoSuchProcess`: the process has ended or executed another program.
    pub(crate) fn map_page_by_reading(
        &mut self,
        process: &ProcessHandle,
        address: u64,
        huge: bool,
    ) -> Result<()> {
        let request = TargetRequest::for_reading_memory(process, address, 1);
        let cpu = if huge { RESERVE.give_back_page() } else { None };
        let answer = self.call_target(process.id, &request.on_cpu(cpu))?;
        let gone = LinuxError::NoSuchProcess(process.id.pid);
        answer.data.first().map(drop).ok_or(gone)
    }

    /// Makes a region huge now (`MADV_COLLAPSE`). Takes about 0.4 ms where memory is not
    /// fragmented. Refusals that cost the kernel nothing are tried again for some milliseconds.
    /// `give_back` runs before each try. It returns the CPU that makes the call, because that CPU
    /// just got a huge page back.
    ///
    /// # Errors
    /// From mm/khugepaged.c, `madvise_collapse_errno`:
    ///
    /// - `ENOMEM`: no huge page was available.
    /// - `EBUSY`: the cgroup is at its limit.
    /// - `EAGAIN`: pages are pinned or busy.
    /// - `EINVAL`: the region may not, or may no longer, be huge.
    /// - `ESRCH`: the process is gone.
    ///
    /// Or `NotAnswering`: the call waits for a lock of the process.
    pub fn collapse(
        &mut self,
        process: &ProcessHandle,
        region: RegionAddr,
        mut give_back: impl FnMut() -> Option<u32>,
    ) -> Result<CallResult> {
        let mut retry = CollapseRetry::default();
        loop {
            let request = TargetRequest::for_collapse(process, region).on_cpu(give_back());
            let answer = self.call_target(process.id, &request);
            if !retry.should_retry(&answer, self.statistics.last) {
                return answer;
            }
        }
    }

    /// Splits the huge page of a region: advises that one of its base pages is cold (`MADV_COLD`).
    /// Since 6.12 the split maps every zero-filled base page to the shared zero page, atomically
    /// (mm/migrate.c, `try_to_map_unused_to_zeropage`). Returns the call's duration. Threads that
    /// run on `cpu` wait meanwhile.
    ///
    /// # Errors
    /// - The kernel's error. It also answers without an error where it does not split.
    /// - `NotAnswering`: the call waits for a lock of the process.
    pub fn split_huge_page(
        &mut self,
        process: &ProcessHandle,
        region: RegionAddr,
        cpu: Option<u32>,
    ) -> Result<Duration> {
        self.split_at_page(process, region.start(), cpu)
    }

    /// As [`Self::split_huge_page`], for up to 64 regions in one call, which ends at the first that
    /// is not mapped or locked in memory. Returns how many it came to, and its duration. Linux
    /// 6.18 holds the process's `mmap_lock` for reading until it ends, 6.12 for each region.
    pub(crate) fn split_huge_pages(
        &mut self,
        process: &ProcessHandle,
        regions: &[RegionAddr],
    ) -> Result<(usize, Duration)> {
        let first_page = |region: &RegionAddr| region.start()..region.start() + BASE_PAGE_BYTES;
        let pages: Vec<Range<u64>> = regions.iter().map(first_page).collect();
        let request = TargetRequest::for_advice(process, SPLIT, &pages);
        let answer = self.call_target(process.id, &request)?;
        let advised_bytes = answer.result.unwrap_or(0);
        Ok((usize_from_u64(advised_bytes / BASE_PAGE_BYTES), answer.took))
    }

    /// As [`Self::split_huge_page`], by any base page that is mapped. Of a huge page that is mapped
    /// in part, the split frees the rest.
    pub(crate) fn split_at_page(
        &mut self,
        process: &ProcessHandle,
        page: u64,
        cpu: Option<u32>,
    ) -> Result<Duration> {
        let page = page..page + BASE_PAGE_BYTES;
        let request = TargetRequest::for_advice(process, SPLIT, &[page]).on_cpu(cpu);
        Ok(self.call_target(process.id, &request)?.took)
    }

    /// Pages out base pages (`MADV_PAGEOUT`): a zero-filled page costs nothing in zram or swap.
    /// Returns the call's duration.
    pub(crate) fn page_out(
        &mut self,
        process: &ProcessHandle,
        range: Range<u64>,
    ) -> Result<Duration> {
        let request = TargetRequest::for_advice(process, PAGE_OUT, &[range]);
        Ok(self.call_target(process.id, &request)?.took)
    }

    /// Clears the access bits of the first 16 of some regions together with their TLB entries
    /// (`MADV_COLD`). One that it cannot clear is no error.
    ///
    /// It costs about as much as `clear_refs` (15 us a region of base pages here), but covers any
    /// part of the address space. So it can work in slices, and on a sample. It also moves the
    /// pages to the end of the kernel's reclaim lists. Pages that are touched again leave that end
    /// when reclaim scans them.
    pub fn clear_access_bits(
        &mut self,
        process: &ProcessHandle,
        regions: &[RegionAddr],
    ) -> Result<AccessBitClearResult> {
        let regions = regions.iter().take(CLEARED_PER_CALL);
        let ranges: Vec<Range<u64>> = regions.map(|r| r.start()..r.end()).collect();
        let request = TargetRequest::for_advice(process, CLEAR, &ranges);
        let answer = match self.call_target(process.id, &request) {
            Err(error @ (LinuxError::NotAnswering(_) | LinuxError::HelperFailed { .. })) => {
                return Err(error);
            }
            Err(error) if error.is_process_gone() => return Err(error),
            answer => answer,
        };
        let bytes = answer.as_ref().map_or(0, |a| a.result.unwrap_or(0));
        let done = (bytes / HUGE_PAGE_BYTES) as usize;
        let passed = if done == ranges.len() { done } else { done + 1 };
        Ok(AccessBitClearResult { done, passed, answer })
    }

    /// All mappings of a process, in address order. Empty for one without an address space.
    ///
    /// # Errors
    /// `NotAnswering`: the call waits for a lock of the process.
    pub fn list_mappings(
        &mut self,
        process: ProcessId,
        target: &ProcessBpfLinks,
    ) -> Result<Vec<Mapping>> {
        let request = TargetRequest::for_listing_mappings(target.mapping_list_link());
        let listed = self.call_target(process, &request)?;
        Ok(parse_mapping_records(&listed.data))
    }

    /// The same, where the answer to a call of the last second will do: one that came late is not
    /// lost. On a busy machine, or of a process with tens of thousands of mappings, all do.
    pub(crate) fn list_recent_mappings(
        &mut self,
        process: ProcessId,
        target: &ProcessBpfLinks,
    ) -> Result<Vec<Mapping>> {
        let Some(late) = self.take_late_listing(process) else {
            return self.list_mappings(process, target);
        };
        late.result.map_err(LinuxError::wrap_errno(LISTING_MAPPINGS))?;
        Ok(parse_mapping_records(&late.data))
    }

    /// Keeps the address space of a process until this pool's next call, even if the process ends:
    /// an open `pagemap` has a reference to it (fs/proc/base.c, `proc_mem_open`), though not to its
    /// memory.
    ///
    /// A helper opens the file, because the open waits while the process executes another program
    /// (`exec_update_lock`).
    pub(crate) fn hold_address_space(&mut self, process: ProcessId) -> Result<()> {
        let path = format!("/proc/{}/pagemap", process.pid);
        let request = TargetRequest::for_holding_file("holding the address space", &path);
        match self.call_target(process, &request) {
            Err(error) if error.errno() == Some(Errno::ENOENT) => {
                Err(LinuxError::NoSuchProcess(process.pid))
            }
            held => held.map(drop),
        }
    }

    /// Indices of the zero-filled base pages of a region, up to `enough` of them, from a copy of
    /// its contents. The copy populates pages that are not present. Pages that it did not reach
    /// until `deadline` count as in use.
    pub(crate) fn find_zero_pages_by_copying(
        &mut self,
        process: &ProcessHandle,
        region: RegionAddr,
        enough: u16,
        deadline: Instant,
    ) -> Result<Vec<u16>> {
        let mut zero = Vec::new();
        for first in (0..PAGES_PER_REGION).step_by(usize::from(ZERO_CHECKED_PER_CALL)) {
            let address = region.start() + u64::from(first) * BASE_PAGE_BYTES;
            let pages = (first..).zip(self.find_zero_pages_of_run(process, address)?);
            zero.extend(pages.filter_map(|(index, is_zero)| is_zero.then_some(index)));
            if zero.len() >= usize::from(enough) || Instant::now() >= deadline {
                break;
            }
        }
        zero.truncate(usize::from(enough));
        Ok(zero)
    }

    /// Whether each of the next [`ZERO_CHECKED_PER_CALL`] base pages is filled with zeros, from a
    /// copy of their contents. The copy populates pages that are not present.
    pub(crate) fn find_zero_pages_of_run(
        &mut self,
        process: &ProcessHandle,
        address: u64,
    ) -> Result<Vec<bool>> {
        let page_bytes = usize_from_u64(BASE_PAGE_BYTES);
        let length = usize::from(ZERO_CHECKED_PER_CALL) * page_bytes;
        let request = TargetRequest::for_reading_memory(process, address, length);
        let answer = self.call_target(process.id, &request)?;
        let pages = answer.data.chunks_exact(page_bytes);
        Ok(pages.map(|page| page.iter().all(|&byte| byte == 0)).collect())
    }
}
