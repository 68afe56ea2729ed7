//! Gives the zero pages of a huge page back.

use crate::error::LinuxError;
use crate::memory::cgroup_limits::remaining_cgroup_swap_bytes;
use crate::memory::system_memory;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::{CallHelperPool, SERIES_TIME};
use hawkeye_manager::MachineError;
use hawkeye_policy::{
    BASE_PAGE_BYTES, Errno, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample,
};
use serde::Serialize;
use std::time::{Duration, Instant};

/// How zero pages are given back; the probe chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryMethod {
    /// The split itself maps zero pages to the shared zero page (6.12 and later).
    SplitRemaps,
    /// Split, then page the zero pages out into swap or zram.
    SplitAndPageOut,
    /// Neither works here.
    None,
}

impl RecoveryMethod {
    /// Whether it can give memory of this process back now: paging out needs swap, of which the
    /// machine or the process's cgroup may have none left.
    pub fn is_possible_for_pid(self, pid: u32) -> bool {
        match self {
            Self::SplitRemaps => true,
            Self::SplitAndPageOut => machine_has_swap_left() && cgroup_has_swap_left(pid),
            Self::None => false,
        }
    }

    /// Most huge pages that are split in one call. Linux 6.18 holds the process's `mmap_lock` for
    /// all of them, 0.6 ms each, which delays its `mmap` and `munmap`.
    pub(crate) fn splits_per_call(self) -> usize {
        match self {
            Self::SplitRemaps => 4,
            Self::SplitAndPageOut | Self::None => 1,
        }
    }

    /// Whether a region looks as if it had not been split. The kernel silently skips a huge page
    /// to which something else holds a reference (mm/huge_memory.c, `__folio_split`). If it notices
    /// the reference late, base pages map the page and it is still whole.
    pub(crate) fn split_was_skipped(self, left: &RegionSample) -> bool {
        left.is_huge() || self == Self::SplitRemaps && left.present >= PAGES_PER_REGION
    }

    /// Splits a huge page and gives its zero pages back; returns the duration of the longest call.
    /// Where the target answers slowly, some zero pages are neither found nor given back.
    pub(crate) fn split_and_give_back_zero_pages(
        self,
        process: &ProcessHandle,
        region: RegionAddr,
        calls: &mut CallHelperPool,
    ) -> Result<Duration, MachineError> {
        let failed = |error: LinuxError| error.into_machine_error(process.id);
        let zero = match self {
            Self::SplitRemaps => Vec::new(),
            Self::SplitAndPageOut => {
                check_swap_left(process)?;
                // Zero pages must be found before the split.
                let deadline = Instant::now() + SERIES_TIME;
                let pages = PAGES_PER_REGION;
                let zero = calls.find_zero_pages_by_copying(process, region, pages, deadline);
                let zero = zero.map_err(failed)?;
                if zero.is_empty() {
                    let (call, process) = ("finding zero pages", process.id);
                    return Err(MachineError::Refused { call, process, errno: Errno::EBUSY });
                }
                zero
            }
            Self::None => {
                return Err(MachineError::Other(
                    "zero pages cannot be freed on this kernel; see `hawkeye doctor`".into(),
                ));
            }
        };
        let split = calls.split_huge_page(process, region, None).map_err(failed)?;
        let deadline = Instant::now() + SERIES_TIME;
        let longest = page_out_until(calls, process, region, &zero, deadline).map_err(failed)?;
        Ok(split.max(longest))
    }
}

/// Without swap a split would be useless: the process would be as large as before, and slower.
fn check_swap_left(process: &ProcessHandle) -> Result<(), MachineError> {
    if !machine_has_swap_left() {
        let why = "zero pages cannot be freed: this kernel can only swap them out, and there is no swap left";
        return Err(MachineError::Other(why.into()));
    }
    let is_left = cgroup_has_swap_left(process.id.pid);
    is_left.then_some(()).ok_or(MachineError::NoSwap(process.id))
}

/// Whether a huge page fits into the machine's swap.
fn machine_has_swap_left() -> bool {
    system_memory::free_swap_bytes().is_ok_and(|bytes| bytes >= HUGE_PAGE_BYTES)
}

fn cgroup_has_swap_left(pid: u32) -> bool {
    remaining_cgroup_swap_bytes(pid).is_none_or(|bytes| bytes >= HUGE_PAGE_BYTES)
}

/// Pages out these pages of a region, a run of neighbours a call, as far as `deadline` allows.
/// Returns the duration of the longest call.
fn page_out_until(
    calls: &mut CallHelperPool,
    process: &ProcessHandle,
    region: RegionAddr,
    pages: &[u16],
    deadline: Instant,
) -> Result<Duration, LinuxError> {
    let mut longest = Duration::ZERO;
    for (first, pages) in consecutive_runs(pages) {
        if Instant::now() >= deadline {
            break;
        }
        let start = region.start() + u64::from(first) * BASE_PAGE_BYTES;
        let end = start + pages as u64 * BASE_PAGE_BYTES;
        longest = longest.max(calls.page_out(process, start..end)?);
    }
    Ok(longest)
}

/// Runs of consecutive numbers: (first, length).
fn consecutive_runs(sorted: &[u16]) -> Vec<(u16, usize)> {
    let runs = sorted.chunk_by(|one, next| one + 1 == *next);
    runs.map(|run| (run[0], run.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_slow_target_stay() {
        let own = ProcessHandle::open(std::process::id()).expect("this process exists");
        let region = RegionAddr::containing(HUGE_PAGE_BYTES);
        let mut calls = CallHelperPool::default();
        let longest = page_out_until(&mut calls, &own, region, &[0, 2, 4], Instant::now());
        assert_eq!(longest.expect("no call failed"), Duration::ZERO);
        assert_eq!(calls.statistics.longest, Duration::ZERO, "a call was made");
    }

    #[test]
    fn runs_join_neighbours() {
        let runs = consecutive_runs(&[0, 1, 2, 5, 9, 10]);
        assert_eq!(runs, [(0, 3), (5, 1), (9, 2)]);
        assert_eq!(consecutive_runs(&[]), []);
    }
}
