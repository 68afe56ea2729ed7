//! How much memory is in use: the machine's, a cgroup's, by how much waiting it is felt, and how
//! fragmented the rest is.

use crate::cgroup::{self, CgroupLimit};
use crate::error::LinuxError;
use crate::fragmentation;
use hawkeye_policy::{GroupMemory, MemoryState, MemoryUse, ProcessId};
use procfs::{Current, Meminfo, MemoryPressure};
use std::collections::BTreeMap;

/// Reads the machine's memory and that of every limited cgroup above one of `processes`.
pub fn read(processes: &[ProcessId]) -> Result<MemoryState, LinuxError> {
    let meminfo = Meminfo::current().map_err(|error| LinuxError::File {
        doing: "reading",
        path: "/proc/meminfo".into(),
        source: std::io::Error::other(error),
    })?;
    // Free and cheaply reclaimable memory is not in use (Documentation/filesystems/proc.rst).
    let available = meminfo.mem_available.unwrap_or(meminfo.mem_free);
    let mut groups: BTreeMap<String, GroupMemory> = BTreeMap::new();
    for &process in processes {
        for CgroupLimit { name, usage } in cgroup::limits(process.pid) {
            groups
                .entry(name.clone())
                .or_insert_with(|| GroupMemory {
                    name,
                    usage,
                    pressure_percent: None,
                    members: Vec::new(),
                })
                .members
                .push(process);
        }
    }
    Ok(MemoryState {
        machine: MemoryUse {
            used_bytes: meminfo.mem_total.saturating_sub(available),
            total_bytes: meminfo.mem_total,
        },
        groups: groups.into_values().collect(),
        pressure_percent: pressure(),
        fmfi: fragmentation::fmfi(),
    })
}

/// PSI "some avg10" of memory, in per cent; `None` where the kernel has none.
pub fn pressure() -> Option<f64> {
    MemoryPressure::current()
        .ok()
        .map(|pressure| f64::from(pressure.some.avg10))
}
