//! The calls that the manager makes into targets, by helpers.

use super::{Answer, Request, TargetCalls};
use crate::error::{LinuxError, Result};
use crate::processes::process::ProcessHandle;
use crate::promote::remote_advice::{MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT};
use hawkeye_policy::whole::usize_of;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Regions whose access bits one call clears: a quarter of a millisecond with `mmap_lock` held for
/// reading.
pub(crate) const CLEARED_PER_CALL: usize = 16;

/// What came of clearing some regions, in order.
pub(crate) struct Cleared {
    /// How many were cleared.
    pub(crate) done: usize,
    /// How many need not be tried again: the first that can't be cleared (unmapped or locked meanwhile)
    /// is passed over.
    pub(crate) passed: usize,
    /// `None` where none could be cleared.
    pub(crate) answer: Option<Answer>,
}

/// What a call of [`Request::collapse`] is called.
pub(crate) const COLLAPSING: &str = "collapsing a region";

impl<'a> Request<'a> {
    /// Makes a region huge ([`crate::promote::remote_advice::collapse`]).
    pub(crate) fn collapse(process: &'a ProcessHandle, region: &'a Range<u64>) -> Self {
        Self::Advise {
            process: process.fd(),
            advice: MADV_COLLAPSE,
            ranges: std::slice::from_ref(region),
            unpreempted: false,
        }
    }
}

impl TargetCalls {
    fn advise(
        &mut self,
        process: &ProcessHandle,
        call: &'static str,
        advice: i32,
        ranges: &[Range<u64>],
    ) -> Result<Answer> {
        let request = Request::Advise {
            process: process.fd(),
            advice,
            ranges,
            unpreempted: advice == MADV_COLD,
        };
        self.make(process.id, call, &request)
    }

    /// Reads a byte: memory that nothing has touched is mapped by that, as by a read of the
    /// process's own.
    ///
    /// # Errors
    /// As [`crate::processes::process::ProcessMemory::read`].
    pub(crate) fn map_page(&mut self, process: &ProcessHandle, address: u64) -> Result<()> {
        let request = Request::ReadMemory {
            process: process.fd(),
            pid: process.id.pid,
            address,
            length: 1,
        };
        let answer = self.make(process.id, "reading memory of a process", &request)?;
        if answer.data.is_empty() {
            return Err(LinuxError::NoSuchProcess(process.id.pid));
        }
        Ok(())
    }

    /// As [`crate::promote::remote_advice::split`]; how long it took.
    pub(crate) fn split(
        &mut self,
        process: &ProcessHandle,
        region: RegionAddr,
    ) -> Result<Duration> {
        let page = region.start()..region.start() + BASE_PAGE_BYTES;
        let ranges = std::slice::from_ref(&page);
        let answer = self.advise(process, "splitting a huge page", MADV_COLD, ranges)?;
        Ok(answer.took)
    }

    /// As [`crate::promote::remote_advice::page_out`]; how long it took.
    pub(crate) fn page_out(
        &mut self,
        process: &ProcessHandle,
        range: Range<u64>,
    ) -> Result<Duration> {
        let ranges = std::slice::from_ref(&range);
        let answer = self.advise(process, "paging out zero pages", MADV_PAGEOUT, ranges)?;
        Ok(answer.took)
    }

    /// Clears the access bits of at most [`CLEARED_PER_CALL`] regions together with their TLB entries
    /// ([`crate::promote::remote_advice::clear_accessed`]).
    ///
    /// # Errors
    /// As there, but for regions that can't be cleared.
    pub(crate) fn clear_accessed(
        &mut self,
        process: &ProcessHandle,
        regions: &[RegionAddr],
    ) -> Result<Cleared> {
        let regions = regions.iter().take(CLEARED_PER_CALL);
        let ranges: Vec<Range<u64>> = regions.map(|r| r.start()..r.end()).collect();
        let answer = match self.advise(process, "clearing access bits", MADV_COLD, &ranges) {
            Ok(answer) => Some(answer),
            Err(error @ LinuxError::NotAnswering(_)) => return Err(error),
            Err(error) if error.is_gone() => return Err(error),
            Err(_) => None,
        };
        let bytes = answer.as_ref().map_or(0, |a| a.result.unwrap_or(0));
        let done = (bytes / HUGE_PAGE_BYTES) as usize;
        Ok(Cleared {
            done,
            passed: if done == ranges.len() { done } else { done + 1 },
            answer,
        })
    }

    /// Lists mappings by the BPF iterator of this link; the records of them.
    pub(crate) fn list(
        &mut self,
        process: hawkeye_policy::ProcessId,
        link: BorrowedFd<'_>,
    ) -> Result<Vec<u8>> {
        let request = Request::List { link };
        let answer = self.make(process, "listing mappings", &request)?;
        Ok(answer.data)
    }

    /// Indices of the zero-filled base pages of a region, up to `enough` of them, by copying its
    /// contents. Pages that are not there are made.
    pub(crate) fn zero_pages(
        &mut self,
        process: &ProcessHandle,
        region: RegionAddr,
        enough: u16,
    ) -> Result<Vec<u16>> {
        const PAGES_PER_CALL: u16 = 16;
        let mut zero = Vec::new();
        for first in (0..PAGES_PER_REGION).step_by(usize::from(PAGES_PER_CALL)) {
            let request = Request::ReadMemory {
                process: process.fd(),
                pid: process.id.pid,
                address: region.start() + u64::from(first) * BASE_PAGE_BYTES,
                length: usize::from(PAGES_PER_CALL) * usize_of(BASE_PAGE_BYTES),
            };
            let answer = self.make(process.id, "reading pages", &request)?;
            let pages = answer.data.chunks_exact(usize_of(BASE_PAGE_BYTES));
            for (index, page) in (first..).zip(pages) {
                if page.iter().all(|&byte| byte == 0) {
                    zero.push(index);
                    if zero.len() >= usize::from(enough) {
                        return Ok(zero);
                    }
                }
            }
        }
        Ok(zero)
    }
}
