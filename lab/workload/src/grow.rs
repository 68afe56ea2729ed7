//! A workload that grows into memory it hardly uses: a few pages of each region, at a set speed.
//! It may do so again and again.

use crate::memory_holding_workloads::{region_count_for_mib, verify_and_report};
use crate::patterned_memory::PatternedMemory;
use crate::prelude::*;
use hawkeye_policy::PAGES_PER_REGION;

#[derive(Clone, Debug, clap::Args)]
pub struct GrowArgs {
    /// Memory to grow to, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Base pages of each region (1-512) that get data.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=i64::from(PAGES_PER_REGION)))]
    pub used: u16,
    /// Memory to grow to before it is ready, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 0)]
    pub start_mib: u64,
    /// Once grown and verified, give everything back and grow again, until the end of standard
    /// input.
    #[arg(long)]
    pub endless: bool,
    /// How fast to go through the regions, in MB of them per second; as fast as possible unless
    /// set.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub mb_per_s: Option<u64>,
    /// Pages to ask for.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Default)]
    pub pages: RequestedPageKind,
}

/// It catches up with its schedule unless it is later than this: a sleep may end late. With more,
/// it would grow for a while at more than the set speed.
const MOST_LATE: Duration = Duration::from_millis(10);

/// Waits for `go`, grows, reports the time, verifies all memory and ends.
pub(super) fn run_grow(args: &GrowArgs, console: &mut Console) -> WorkloadResult<()> {
    let mut memory = PatternedMemory::new(region_count_for_mib(args.mib), 0, false, args.pages)?;
    let mut first = region_count_for_mib(args.start_mib).min(memory.count_regions());
    for region in 0..first {
        memory.write_region_pages(region, args.used.into())?;
    }
    report_ready(console, memory.start_address(), memory.bytes() as u64)?;
    if !wait_for_go(console, "grown")? {
        return Ok(());
    }
    while grow_and_verify(args, &mut memory, first, console)? && args.endless {
        memory.discard_last_regions(memory.count_regions())?;
        first = 0;
    }
    Ok(())
}

/// False if there is a reason to end before it has grown.
fn grow_and_verify(
    args: &GrowArgs,
    memory: &mut PatternedMemory,
    first: usize,
    console: &mut Console,
) -> WorkloadResult<bool> {
    let begun = Instant::now();
    // Later than `begun` by the time for which the process was stopped.
    let mut schedule_start = begun;
    for region in first..memory.count_regions() {
        if args.endless && should_end(console)? {
            return Ok(false);
        }
        if let Some(mb_per_s) = args.mb_per_s {
            let due_s = ((region - first) * REGION) as f64 / (mb_per_s as f64 * 1e6);
            let due = Duration::try_from_secs_f64(due_s).unwrap_or(Duration::MAX);
            let elapsed = schedule_start.elapsed();
            std::thread::sleep(due.saturating_sub(elapsed));
            let late = elapsed.saturating_sub(due);
            if late > MOST_LATE {
                schedule_start += late;
            }
        }
        memory.write_region_pages(region, args.used.into())?;
    }
    console.emit_event(&WorkloadEvent::Progress {
        elapsed_s: begun.elapsed().as_secs_f64(),
        operations: (memory.count_regions() - first) as u64,
    })?;
    verify_and_report(memory, console)?;
    Ok(true)
}

fn should_end(console: &mut Console) -> WorkloadResult<bool> {
    match console.poll_input() {
        None => Ok(false),
        Some(ConsoleInput::End | ConsoleInput::Request(WorkloadRequest::Quit)) => Ok(true),
        Some(other) => console.refuse_input(other).map(|()| false),
    }
}
