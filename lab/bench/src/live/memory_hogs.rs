//! Makes memory short for the whole machine.

use super::bench_host::available_memory_bytes;
use crate::live::prelude::*;
use hawkeye_linux::memory::system_memory;

/// Programs that keep memory in use while this value lives.
pub struct MemoryHogs {
    _neighbours: Vec<WorkloadProcess>,
    /// Share of the machine's memory in use once enough was filled, in per cent.
    pub used_percent: f64,
}

/// Tolerated shortfall, in points of the share asked for.
const NEARLY_PERCENT: f64 = 0.5;
const MOST_NEIGHBOURS: usize = 5;

impl MemoryHogs {
    /// Fills the machine until `percent` of its memory is in use.
    pub fn fill_until_percent(program: &Path, percent: f64) -> BenchResult<Self> {
        let mut neighbours = Vec::new();
        loop {
            let machine = system_memory::machine_memory_use()?;
            let used_percent = machine.used_percent();
            if used_percent >= percent - NEARLY_PERCENT {
                return Ok(Self { _neighbours: neighbours, used_percent });
            }
            if neighbours.len() == MOST_NEIGHBOURS {
                bail!(
                    "filling memory to {percent} % failed: {MOST_NEIGHBOURS} programs fill {used_percent:.1} %"
                );
            }
            // Free pages in per-processor lists count as used until an allocation takes them: one
            // gigabyte on this machine. So one neighbour may not be enough.
            let wanted = (machine.total_bytes as f64 * percent / 100.0) as u64;
            let missing = wanted.saturating_sub(machine.used_bytes);
            let mib = (missing.min(available_memory_bytes()) >> 20).max(1).to_string();
            let words = ["workload", "burner", "--pages", "huge", "--mib", &mib];
            let mut neighbour = WorkloadProcess::spawn(program, words)?;
            neighbour.wait_ready()?;
            neighbours.push(neighbour);
        }
    }
}
