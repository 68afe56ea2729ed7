//! Advice to the kernel about another process's memory: the primitives that promote and split.

use crate::error::{LinuxError, Result};
use crate::processes::process::ProcessHandle;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionAddr};
use nix::errno::Errno;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Advice (`MADV_*`), and the name of a call with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedAdvice {
    pub(crate) number: i32,
    pub(crate) call: &'static str,
}

impl NamedAdvice {
    const fn new(number: i32, call: &'static str) -> Self {
        Self { number, call }
    }
}

/// Of one base page.
pub(crate) const SPLIT: NamedAdvice = NamedAdvice::new(libc::MADV_COLD, "splitting a huge page");
/// Of whole regions.
pub(crate) const CLEAR: NamedAdvice = NamedAdvice::new(libc::MADV_COLD, "clearing access bits");
pub(crate) const PAGE_OUT: NamedAdvice =
    NamedAdvice::new(libc::MADV_PAGEOUT, "paging out zero pages");
pub(crate) const COLLAPSE: NamedAdvice =
    NamedAdvice::new(libc::MADV_COLLAPSE, "collapsing a region");

/// Advises ranges; returns the number of bytes that were advised. The rest was refused.
fn advise_ranges(
    process: &ProcessHandle,
    ranges: &[Range<u64>],
    advice: NamedAdvice,
) -> Result<u64> {
    let iovec = |range: &Range<u64>| libc::iovec {
        iov_base: range.start as *mut _,
        iov_len: usize_from_u64(range.end - range.start),
    };
    let ranges: Vec<libc::iovec> = ranges.iter().map(iovec).collect();
    let (call, fd) = (libc::SYS_process_madvise, process.fd().as_raw_fd());
    let (first, count) = (ranges.as_ptr(), ranges.len());
    // SAFETY: `ranges` is ours and lives through the call. The addresses in it are the target's,
    // and only the kernel interprets them, with the target's own page table and locks.
    let done = unsafe { libc::syscall(call, fd, first, count, advice.number, 0u32) };
    let done = Errno::result(done).map_err(LinuxError::wrap_errno(advice.call))?;
    Ok(done.unsigned_abs())
}

/// Makes a region huge now (`MADV_COLLAPSE`). Takes about 0.4 ms where memory is not fragmented.
///
/// # Errors
/// From mm/khugepaged.c, `madvise_collapse_errno`:
///
/// - `ENOMEM`: no huge page was available.
/// - `EBUSY`: the cgroup is at its limit.
/// - `EAGAIN`: pages are pinned or busy.
/// - `EINVAL`: the region may not, or may no longer, be huge.
/// - `ESRCH`: the process is gone.
pub fn collapse(process: &ProcessHandle, region: RegionAddr) -> Result<()> {
    let range = region.start()..region.end();
    advise_ranges(process, &[range], COLLAPSE).map(drop)
}

/// A call that is refused faster than this did not search for a huge page.
const FAST_REFUSAL: Duration = Duration::from_micros(500);
/// Time for which the call is repeated for one region. 64 such refusals take 5 ms on a machine of
/// two cores. Each makes all cores hand over pages that were just touched (`lru_add_drain_all`). So
/// on large machines fewer of them fit.
const RETRY_TIME: Duration = Duration::from_millis(10);

/// Whether a call that found no huge page is made again at once.
///
/// Where the kernel defers compaction, it refuses up to 64 calls that need it without a try,
/// whenever they come (mm/compaction.c, `compaction_deferred`).
#[derive(Debug, Default)]
pub struct CollapseRetry {
    so_far: Duration,
}

impl CollapseRetry {
    /// Takes the result of a call and its duration; returns whether to call again.
    pub fn should_retry<T>(&mut self, result: &Result<T>, took: Duration) -> bool {
        self.so_far += took;
        let refused = matches!(result, Err(error) if error.errno() == Some(Errno::ENOMEM));
        refused && took < FAST_REFUSAL && self.so_far < RETRY_TIME
    }
}

/// Splits the huge page of a region: advises that one of its base pages is cold (`MADV_COLD`).
/// Since 6.12 the split maps every zero-filled base page to the shared zero page, atomically
/// (mm/migrate.c, `try_to_map_unused_to_zeropage`).
pub fn split_huge_page(process: &ProcessHandle, region: RegionAddr) -> Result<()> {
    let page = region.start()..region.start() + BASE_PAGE_BYTES;
    advise_ranges(process, &[page], SPLIT).map(drop)
}

/// Clears the access bits of whole regions together with their TLB entries (`MADV_COLD`). Returns
/// how many of them, in order, it cleared. At most 1024 regions.
///
/// It costs about as much as `clear_refs` (15 us a region of base pages here), but covers any part
/// of the address space. So it can work in slices, and on a sample. It also moves the pages to the
/// end of the kernel's reclaim lists. Pages that are touched again leave that end when reclaim
/// scans them.
///
/// # Errors
/// - `EINVAL`: the first region is locked in memory.
/// - `ENOMEM`: part of it is not mapped.
/// - `ESRCH`: the process is gone.
pub fn clear_access_bits(process: &ProcessHandle, regions: &[RegionAddr]) -> Result<usize> {
    let ranges: Vec<Range<u64>> = regions.iter().map(|r| r.start()..r.end()).collect();
    let done = advise_ranges(process, &ranges, CLEAR)?;
    Ok((done / HUGE_PAGE_BYTES) as usize)
}

/// Pages out base pages (`MADV_PAGEOUT`): a zero-filled page costs nothing in zram or swap.
pub fn page_out(process: &ProcessHandle, start: u64, bytes: u64) -> Result<()> {
    let range = start..start + bytes;
    advise_ranges(process, &[range], PAGE_OUT).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> Result<()> {
        Err(LinuxError::wrap_errno(COLLAPSE.call)(errno))
    }

    const QUICK: Duration = Duration::from_micros(70);

    #[test]
    fn a_call_that_the_kernel_did_not_try_is_repeated() {
        let mut retry = CollapseRetry::default();
        for _ in 1..64 {
            assert!(retry.should_retry(&refused(Errno::ENOMEM), QUICK));
        }
        assert!(!retry.should_retry(&Ok(()), QUICK));
    }

    #[test]
    fn a_call_that_was_tried_or_refused_otherwise_is_made_once() {
        for (errno, took) in [(Errno::ENOMEM, FAST_REFUSAL), (Errno::EAGAIN, QUICK)] {
            assert!(!CollapseRetry::default().should_retry(&refused(errno), took));
        }
    }

    #[test]
    fn repeated_calls_are_bounded() {
        let mut retry = CollapseRetry::default();
        let calls = (1..).find(|_| !retry.should_retry(&refused(Errno::ENOMEM), QUICK));
        assert_eq!(calls, Some(143));
    }
}
