//! Many small processes, some of which end and are replaced each second.

use crate::prelude::*;
use crate::process::ForkedWorker;
use crate::process_storms::{EndCondition, HeldMemoryArgs, report_ready_with_exec_count};
use crate::rate_schedule::RateSchedule;
use std::collections::VecDeque;

#[derive(Clone, Debug, clap::Args)]
pub struct CrowdArgs {
    /// Processes at a time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub processes: u32,
    /// How many of them end and are replaced each second; fewer where the machine is too slow.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    pub per_s: u32,
    /// Memory that each touches, in KiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub each_kib: u64,
    /// Memory of the parent, and duration.
    #[command(flatten)]
    pub hold: HeldMemoryArgs,
}

/// Time between two rounds of replacement.
const TICK: Duration = Duration::from_millis(20);

pub(super) fn run_crowd(args: &CrowdArgs, console: &mut Console) -> WorkloadResult<()> {
    let memory = args.hold.memory.map_and_fill()?;
    // Mapped by the parent and touched by each child: a child must not allocate.
    let bytes = ((args.each_kib as usize) << 10).next_multiple_of(REGION);
    let mut each = WorkloadMemory::map_private(bytes, RequestedPageKind::Base)?;
    let pages = (args.each_kib << 10) as usize / PAGE;
    let mut crowd = VecDeque::with_capacity(args.processes as usize);
    for _ in 0..args.processes {
        crowd.push_back(fork_touching_process(&mut each, pages)?);
    }
    report_ready_with_exec_count(&memory, 0, console)?;
    let mut replacements = RateSchedule::new(args.per_s.into());
    let mut clock = EndCondition::new(args.hold.seconds);
    while clock.wait_and_should_go_on(console, TICK)? {
        replacements.take_due_steps(|| {
            // The oldest must end before its place is reused.
            drop(crowd.pop_front());
            crowd.push_back(fork_touching_process(&mut each, pages)?);
            Ok(())
        })?;
    }
    Ok(())
}

fn fork_touching_process(
    memory: &mut WorkloadMemory,
    pages: usize,
) -> WorkloadResult<ForkedWorker> {
    let touch = || {
        (0..pages).for_each(|page| memory.write_word(page * PAGE, 1));
        // A child has nowhere to report an error. Without this it is only not promoted.
        let _ = memory.allow_promotion();
    };
    // SAFETY: the child only writes to memory and makes one system call.
    unsafe { ForkedWorker::fork(touch) }
}
