//! Advice to the kernel about another process's memory: the primitives that promote and split.

use crate::error::{LinuxError, Result};
use crate::processes::process::ProcessHandle;
use hawkeye_policy::whole::usize_of;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionAddr};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::time::Duration;

pub(crate) const MADV_COLD: i32 = 20;
pub(crate) const MADV_PAGEOUT: i32 = 21;
pub(crate) const MADV_COLLAPSE: i32 = 25;

fn advise(
    process: &ProcessHandle,
    start: u64,
    bytes: u64,
    advice: i32,
    call: &'static str,
) -> Result<u64> {
    let range = libc::iovec {
        iov_base: start as *mut _,
        iov_len: usize_of(bytes),
    };
    advise_ranges(process, &[range], advice, call)
}

/// Bytes that were advised; the rest was refused.
fn advise_ranges(
    process: &ProcessHandle,
    ranges: &[libc::iovec],
    advice: i32,
    call: &'static str,
) -> Result<u64> {
    // SAFETY: `ranges` is ours and lives through the call; the addresses in it are the target's and
    // only the kernel interprets them, with the target's own page table and locks.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.fd().as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            advice,
            0u32,
        )
    };
    if done < 0 {
        Err(LinuxError::last_call(call))
    } else {
        Ok(done.unsigned_abs())
    }
}

/// Makes a region huge now (`MADV_COLLAPSE`). About 0.4 ms where memory is not fragmented.
///
/// # Errors
/// `ENOMEM` no huge page could be had, `EBUSY` the cgroup's limit, `EAGAIN` pages pinned or busy,
/// `EINVAL` not a region that may be huge (any more), `ESRCH` gone (mm/khugepaged.c,
/// `madvise_collapse_errno`).
pub fn collapse(process: &ProcessHandle, region: RegionAddr) -> Result<()> {
    advise(
        process,
        region.start(),
        HUGE_PAGE_BYTES,
        MADV_COLLAPSE,
        "collapsing a region",
    )
    .map(drop)
}

/// A call that is refused faster than this did not look for a huge page.
const WITHOUT_LOOKING: Duration = Duration::from_micros(500);
/// So long a region is asked for: 64 such refusals take 5 ms on a machine of two cores. Each has all cores hand over pages that were just
/// touched (`lru_add_drain_all`), so that on large machines it is fewer of them.
const INSISTING: Duration = Duration::from_millis(10);

/// Whether a call for which no huge page could be had is made again at once.
///
/// Where the kernel puts compaction off, up to 64 calls that would take it are refused without a try,
/// whenever they come (mm/compaction.c, `compaction_deferred`).
#[derive(Debug, Default)]
pub struct Insisting {
    so_far: Duration,
}

impl Insisting {
    /// Told what came of a call and how long it took.
    pub fn again<T>(&mut self, result: &Result<T>, took: Duration) -> bool {
        self.so_far += took;
        let refused = matches!(result, Err(error) if error.errno() == Some(Errno::ENOMEM));
        refused && took < WITHOUT_LOOKING && self.so_far < INSISTING
    }
}

/// Splits the huge page of a region, by calling one of its base pages cold (`MADV_COLD`). Since 6.12
/// the split maps every zero-filled base page to the shared zero page, atomically
/// (mm/migrate.c, `try_to_map_unused_to_zeropage`).
pub fn split(process: &ProcessHandle, region: RegionAddr) -> Result<()> {
    advise(
        process,
        region.start(),
        BASE_PAGE_BYTES,
        MADV_COLD,
        "splitting a huge page",
    )
    .map(drop)
}

/// Clears the access bits of whole regions together with their TLB entries (`MADV_COLD`); returns how
/// many of them, in order, it came through. At most 1024 regions.
///
/// Costs about as much as `clear_refs` (15 us a region of base pages here), but for any part of the
/// address space: so it can be done in slices, and to a sample. It also moves the pages to the end of the
/// kernel's reclaim lists; those that are touched again come back from there when reclaim looks at them.
///
/// # Errors
/// `EINVAL` the first region is locked in memory, `ENOMEM` part of it is not mapped, `ESRCH` gone.
pub fn clear_accessed(process: &ProcessHandle, regions: &[RegionAddr]) -> Result<usize> {
    let ranges: Vec<libc::iovec> = regions
        .iter()
        .map(|region| libc::iovec {
            iov_base: region.start() as *mut _,
            iov_len: usize_of(HUGE_PAGE_BYTES),
        })
        .collect();
    let done = advise_ranges(process, &ranges, MADV_COLD, "clearing access bits")?;
    Ok((done / HUGE_PAGE_BYTES) as usize)
}

/// Pages out one base page (`MADV_PAGEOUT`): into zram or swap a zero-filled page costs nothing.
pub fn page_out(process: &ProcessHandle, start: u64, bytes: u64) -> Result<()> {
    advise(process, start, bytes, MADV_PAGEOUT, "paging out zero pages").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> Result<()> {
        Err(LinuxError::Call {
            call: "collapsing a region",
            errno,
        })
    }

    const QUICK: Duration = Duration::from_micros(70);

    #[test]
    fn where_the_kernel_does_not_try_it_is_asked_again() {
        let mut insisting = Insisting::default();
        for _ in 1..64 {
            assert!(insisting.again(&refused(Errno::ENOMEM), QUICK));
        }
        assert!(!insisting.again(&Ok(()), QUICK));
    }

    #[test]
    fn where_it_tries_or_has_another_reason_it_is_asked_once() {
        for (errno, took) in [(Errno::ENOMEM, WITHOUT_LOOKING), (Errno::EAGAIN, QUICK)] {
            assert!(!Insisting::default().again(&refused(errno), took));
        }
    }

    #[test]
    fn it_is_not_asked_for_ever() {
        let mut insisting = Insisting::default();
        let calls = (1..).find(|_| !insisting.again(&refused(Errno::ENOMEM), QUICK));
        assert_eq!(calls, Some(143));
    }
}
