//! Pages that the kernel keeps for each processor.
//!
//! A page that is freed goes to a list of the processor first, tens of thousands of them on kernels that tune these lists (6.7 and later,
//! `mm/page_alloc.c`, `nr_pcp_high`), and joins its neighbours only when it leaves that list: the one page that is
//! missing in each of 10,000 huge pages stays missing for as long.

use crate::workload::error::WorkloadError;
use crate::workload::memory::{Mapping, PAGE};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// More than a list holds (212 MiB were seen on a machine of 24 GiB).
const BYTES: usize = 512 << 20;

/// Has every processor's list hand on what it keeps: memory that is touched takes it from there, and once freed, the
/// first pages are pushed out by the last ones, which lie together.
///
/// # Errors
/// No memory for it, or the processors can't be chosen.
pub(super) fn flush() -> Result<(), WorkloadError> {
    let myself = Pid::from_raw(0);
    let failed = || WorkloadError::system("choosing the processor");
    let all = sched_getaffinity(myself).map_err(|errno| failed()(errno.into()))?;
    for cpu in (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)) {
        let mut one = CpuSet::new();
        let chosen = one.set(cpu).and_then(|()| sched_setaffinity(myself, &one));
        chosen.map_err(|errno| failed()(errno.into()))?;
        let mut memory = Mapping::of_base_pages(BYTES)?;
        for offset in (0..BYTES).step_by(PAGE) {
            memory.write(offset, 1);
        }
    }
    sched_setaffinity(myself, &all).map_err(|errno| failed()(errno.into()))
}
