//! Keeps free memory fragmented while this value lives.

use crate::live::prelude::*;

/// The workload `fragment`. The kernel can move the memory that it holds, so huge pages are
/// possible, but compaction has to make each of them. Proactive compaction is off: programs that
/// start meanwhile get base pages, and only compaction for their own promotions slows them down.
pub struct FragmentedMemory {
    _workload: WorkloadProcess,
}

/// 0-1: the share of free memory in blocks smaller than a huge page.
const LEAST_FMFI: f64 = 0.7;

/// How eagerly the kernel makes huge pages before a request; 0 is never. 5.9 and later
/// (`mm/compaction.c`).
const UNASKED: &str = "/proc/sys/vm/compaction_proactiveness";

const AT_MOST: Duration = Duration::from_secs(120);

impl FragmentedMemory {
    /// Fragments all free memory except 256 MiB, without which the kernel would kill this or
    /// another process.
    pub fn new(host: &mut BenchHost) -> BenchResult<Self> {
        let unasked = Path::new(UNASKED);
        if unasked.exists() {
            host.set_kernel_setting(unasked, "0")?;
        }
        let mut workload = host.start_workload("fragment --fmfi 1 --spare-mib 256")?;
        loop {
            if let WorkloadEvent::Fragmented { fmfi, .. } = workload.next_event(AT_MOST)? {
                if fmfi < LEAST_FMFI {
                    bail!(
                        "fragmenting free memory reached an FMFI of {fmfi:.2} only, not {LEAST_FMFI}"
                    );
                }
                return Ok(Self { _workload: workload });
            }
        }
    }

    /// Gives the memory back, and restores the machine's setting of proactive compaction.
    pub fn end(self, host: &mut BenchHost) -> BenchResult<()> {
        host.restore_kernel_setting(Path::new(UNASKED))
    }
}
