//! Costs of page faults, of freeing, and of faults after a fork.

use super::prelude::*;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

const BYTES: usize = 256 << 20;
const FORKED_BYTES: usize = 128 << 20;

/// Costs of faults and of freeing, for a page each.
pub struct FaultCosts {
    /// First touch of a base page, including its zeroing.
    pub base: MedianAndRange,
    pub free_base: MedianAndRange,
    /// First touch of a huge page, including its zeroing.
    pub huge: CostResult,
    pub free_huge: CostResult,
    /// Copying the page table of a region of base pages for a fork.
    pub fork_region: MedianAndRange,
    /// A write to a base page that was shared with an ended child.
    pub reuse: MedianAndRange,
}

pub fn measure_fault_costs() -> Result<FaultCosts, LinuxError> {
    let [base, free_base] = median_figures_over_turns(|| {
        let memory = ScratchMemory::map(BYTES, PageAdvice::Base)?;
        let pages = (BYTES / PAGE) as f64;
        Ok([memory.time_strided_writes(PAGE, 1) / pages, memory.time_unmap() / pages])
    })?;
    // Whether huge pages are available at all.
    let had = ScratchMemory::map_and_write(REGION * 8, PageAdvice::Huge).map(drop);
    let huge = had.and_then(|()| {
        median_figures_over_turns(|| {
            let memory = ScratchMemory::map(BYTES, PageAdvice::Huge)?;
            let regions = memory.region_count() as f64;
            Ok([memory.time_strided_writes(REGION, 1) / regions, memory.time_unmap() / regions])
        })
    });
    let (huge, free_huge) = match huge {
        Ok([huge, free_huge]) => (Ok(huge), Ok(free_huge)),
        Err(error) => {
            let missing =
                super::not_measured_error("page faults give no huge pages that could be freed");
            (Err(error), Err(missing))
        }
    };
    let [fork_region, reuse] = median_figures_over_turns(|| {
        let alone = time_fork_ns()?;
        let memory = ScratchMemory::map_and_write(FORKED_BYTES, PageAdvice::Base)?;
        let together = time_fork_ns()?;
        let regions = memory.region_count() as f64;
        let pages = (FORKED_BYTES / PAGE) as f64;
        let shared = memory.time_strided_writes(PAGE, 2) / pages;
        // The same writes without faults.
        let own = memory.time_strided_writes(PAGE, 3) / pages;
        Ok([((together - alone) / regions).max(0.0), (shared - own).max(0.0)])
    })?;
    Ok(FaultCosts { base, free_base, huge, free_huge, fork_region, reuse })
}

/// The child ends at once. Returns the duration of the fork, in nanoseconds.
fn time_fork_ns() -> Result<f64, LinuxError> {
    let begun = Instant::now();
    // SAFETY: the child only ends, by a call that is safe after a fork.
    match unsafe { fork() }.map_err(LinuxError::wrap_errno("forking to measure that"))? {
        // SAFETY: it ends this child at once, without running any code of its parent.
        ForkResult::Child => unsafe { libc::_exit(0) },
        ForkResult::Parent { child } => {
            let took = nanoseconds_since(begun);
            waitpid(child, None).map_err(LinuxError::wrap_errno("waiting for a child"))?;
            Ok(took)
        }
    }
}
