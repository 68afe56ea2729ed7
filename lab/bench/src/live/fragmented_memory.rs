//! Fragments the machine's free memory for an experiment, by the workload `fragment`.

use super::prelude::*;

/// Longest time to fill all free memory and give most of it back.
const AT_MOST: Duration = Duration::from_secs(180);

/// Starts the workload with these options, and waits until memory is fragmented, which it is while
/// the workload lives. Returns the share of free memory in blocks smaller than a huge page, too
/// (0-1).
pub(super) fn fragment_free_memory(
    host: &BenchHost,
    options: &str,
) -> BenchResult<(WorkloadProcess, f64)> {
    let mut workload = host.start_workload(&format!("fragment {options}"))?;
    loop {
        match workload.next_event(AT_MOST)? {
            WorkloadEvent::Fragmented { fmfi, .. } => return Ok((workload, fmfi)),
            WorkloadEvent::Error { message } => bail!("fragmenting free memory failed: {message}"),
            _ => {}
        }
    }
}
