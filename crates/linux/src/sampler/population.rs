//! Population where page tables can't be read by BPF: `smaps` and `pagemap`, by a thread of its own.
//!
//! Both take the process's `mmap_lock` and are slow: the loop does not wait for them.

use super::task::Task;
use crate::error::LinuxError;
use crate::mappings::{self, Eligible};
use crate::pagemap;
use hawkeye_policy::RegionSample;
use std::time::Duration;

/// A process that was not read by then is passed over for now.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Mappings, and the regions in them.
pub(super) type Population = (Eligible, Vec<RegionSample>);

/// A reading under way.
pub(super) type PopulationReading = Task<Result<Population, LinuxError>>;

/// Reads a process.
pub(super) fn read(pid: u32) -> Result<Population, LinuxError> {
    let eligible = mappings::eligible(&pagemap::mappings(pid)?);
    let regions = pagemap::population(pid, &eligible.ranges)?;
    Ok((eligible, regions))
}
