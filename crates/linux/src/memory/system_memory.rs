//! How much memory of the machine is in use, and by how much waiting it is felt.

use crate::error::{LinuxError, Result};
use hawkeye_policy::MemoryUse;
use procfs::{Current, Meminfo, MemoryPressure};

/// The machine's memory in use against what there is.
pub fn machine() -> Result<MemoryUse> {
    let meminfo = meminfo()?;
    // Free and cheaply reclaimable memory is not in use (Documentation/filesystems/proc.rst).
    let available = meminfo.mem_available.unwrap_or(meminfo.mem_free);
    Ok(MemoryUse {
        used_bytes: meminfo.mem_total.saturating_sub(available),
        total_bytes: meminfo.mem_total,
    })
}

/// Memory that holds nothing at all, in bytes.
pub fn free_bytes() -> Result<u64> {
    Ok(meminfo()?.mem_free)
}

fn meminfo() -> Result<Meminfo> {
    Meminfo::current().map_err(|error| LinuxError::File {
        doing: "reading",
        path: "/proc/meminfo".into(),
        source: std::io::Error::other(error),
    })
}

/// PSI "some avg10" of memory, in per cent; `None` where the kernel has none.
pub fn pressure() -> Option<f64> {
    MemoryPressure::current()
        .ok()
        .map(|pressure| f64::from(pressure.some.avg10))
}
