//! How much memory of the machine is in use, and how long tasks wait for memory.

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::CgroupLimits;
use hawkeye_policy::MemoryUse;
use procfs::{Current, Meminfo, MemoryPressure};

/// The machine's memory in use, against its total.
pub fn machine_memory_use() -> Result<MemoryUse> {
    let meminfo = read_meminfo()?;
    // Free and cheaply reclaimable memory is not in use (Documentation/filesystems/proc.rst).
    let available = meminfo.mem_available.unwrap_or(meminfo.mem_free);
    Ok(MemoryUse {
        used_bytes: meminfo.mem_total.saturating_sub(available),
        total_bytes: meminfo.mem_total,
    })
}

/// Memory that this process may still allocate, in bytes: what the machine has available, within
/// the limits of this process's cgroups.
pub fn available_memory_bytes() -> Result<u64> {
    let memory = machine_memory_use()?;
    let of_machine = memory.total_bytes.saturating_sub(memory.used_bytes);
    let in_cgroups = CgroupLimits::of_this_machine().own_remaining_memory_bytes();
    Ok(of_machine.min(in_cgroups.unwrap_or(u64::MAX)))
}

/// Memory that holds nothing, in bytes.
pub fn free_memory_bytes() -> Result<u64> {
    Ok(read_meminfo()?.mem_free)
}

/// Swap that holds nothing, in bytes.
pub fn free_swap_bytes() -> Result<u64> {
    Ok(read_meminfo()?.swap_free)
}

fn read_meminfo() -> Result<Meminfo> {
    let meminfo = Meminfo::current().map_err(std::io::Error::other);
    meminfo.map_err(LinuxError::wrap_io_error("reading", "/proc/meminfo"))
}

/// PSI "some avg10" of memory, in per cent; `None` if the kernel has no PSI.
pub fn memory_pressure_percent() -> Option<f64> {
    MemoryPressure::current().ok().map(|pressure| f64::from(pressure.some.avg10))
}
