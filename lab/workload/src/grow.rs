//! A workload that grows into memory it hardly uses: a few pages of each region, at a set speed.

use crate::memory_holding_workloads::{region_count_for_mib, verify_and_report};
use crate::patterned_memory::PatternedMemory;
use crate::prelude::*;

#[derive(Clone, Debug, clap::Args)]
pub struct GrowArgs {
    /// Memory to grow to, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Base pages of each region (1-512) that get data.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub used: u16,
    /// How fast to go through the regions, in MB of them per second; as fast as possible unless
    /// set.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub mb_per_s: Option<u64>,
    /// Pages to ask for.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Default)]
    pub pages: RequestedPageKind,
}

/// Waits for `go`, grows, reports the time, verifies all memory and ends.
pub(super) fn run_grow(args: &GrowArgs, console: &mut Console) -> WorkloadResult<()> {
    let mut memory = PatternedMemory::new(region_count_for_mib(args.mib), 0, false, args.pages)?;
    report_ready(console, memory.start_address(), memory.bytes() as u64)?;
    if !wait_for_go(console, "grown")? {
        return Ok(());
    }
    let begun = Instant::now();
    for region in 0..memory.count_regions() {
        if let Some(mb_per_s) = args.mb_per_s {
            let due_s = (region * REGION) as f64 / (mb_per_s as f64 * 1e6);
            let due = Duration::try_from_secs_f64(due_s).unwrap_or(Duration::MAX);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        memory.write_region_pages(region, args.used.into());
    }
    console.emit_event(&WorkloadEvent::Progress {
        elapsed_s: begun.elapsed().as_secs_f64(),
        operations: memory.count_regions() as u64,
    })?;
    verify_and_report(&memory, console)
}
