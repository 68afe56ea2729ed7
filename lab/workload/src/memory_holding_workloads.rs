//! Workloads that hold memory, idle, and free, refill and verify it on request. They also share it
//! with an idle child.

use crate::patterned_memory::PatternedMemory;
use crate::prelude::*;
use crate::process::ForkedWorker;
use crate::process_storms::EndCondition;
use hawkeye_policy::PAGES_PER_REGION;
use nix::sys::prctl::set_thp_disable;

#[derive(Clone, Debug, clap::Args)]
pub struct BloatArgs {
    /// Memory to map, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Base pages of each region (0-512) that hold data.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=i64::from(PAGES_PER_REGION)))]
    pub used: u16,
    /// Let one in four of them hold nothing but its last byte.
    #[arg(long)]
    pub tail_byte: bool,
    /// Pages to start with.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Huge)]
    pub pages: RequestedPageKind,
    /// Disable huge pages for the process once it has its memory (`PR_SET_THP_DISABLE`).
    #[arg(long)]
    pub disable_thp: bool,
    /// Verify and end after N seconds instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct FullyUsedMemoryArgs {
    /// Memory to fill, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Pages to start with.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Base)]
    pub pages: RequestedPageKind,
    /// Verify and end after N seconds instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
}

pub(super) fn run_bloat(args: &BloatArgs, console: &mut Console) -> WorkloadResult<()> {
    let regions = region_count_for_mib(args.mib);
    let memory = PatternedMemory::new(regions, args.used.into(), args.tail_byte, args.pages)?;
    if args.disable_thp {
        let disabled = set_thp_disable(true).map_err(std::io::Error::from);
        disabled.map_err(WorkloadError::wrap_system_error("disabling huge pages"))?;
    }
    serve_memory_requests(memory, args.seconds, console)
}

pub(super) fn run_fully_used_memory(
    args: &FullyUsedMemoryArgs,
    console: &mut Console,
) -> WorkloadResult<()> {
    let memory =
        PatternedMemory::new(region_count_for_mib(args.mib), REGION_PAGES, false, args.pages)?;
    serve_memory_requests(memory, args.seconds, console)
}

pub(super) fn region_count_for_mib(mib: u64) -> usize {
    ((mib << 20) as usize).div_ceil(REGION)
}

fn serve_memory_requests(
    mut memory: PatternedMemory,
    seconds: Option<f64>,
    console: &mut Console,
) -> WorkloadResult<()> {
    report_ready(console, memory.start_address(), memory.bytes() as u64)?;
    let mut clock = EndCondition::new(seconds);
    let mut child = None;
    while !clock.is_time_over() {
        let answer = match clock.wait_for_input_within(console, clock.time_left()) {
            None => continue,
            Some(ConsoleInput::Request(WorkloadRequest::Go)) => {
                // SAFETY: the child does nothing.
                child = Some(unsafe { ForkedWorker::fork(|| {}) }?);
                continue;
            }
            Some(ConsoleInput::Request(WorkloadRequest::Stop)) => {
                drop(child.take());
                continue;
            }
            Some(ConsoleInput::End | ConsoleInput::Request(WorkloadRequest::Quit)) => return Ok(()),
            Some(ConsoleInput::Bad(bad)) => Err(WorkloadError::Usage(bad.to_string())),
            Some(ConsoleInput::Request(request)) => answer_request(&mut memory, request),
        };
        let failed = |error: WorkloadError| WorkloadEvent::Error { message: error.to_string() };
        console.emit_event(&answer.unwrap_or_else(failed))?;
    }
    verify_and_report(&memory, console)
}

fn answer_request(
    memory: &mut PatternedMemory,
    request: WorkloadRequest,
) -> WorkloadResult<WorkloadEvent> {
    let freed = |freed_bytes| WorkloadEvent::Freed { freed_bytes };
    match request {
        WorkloadRequest::Verify => Ok(verification_event_and_result(memory).0),
        WorkloadRequest::Rss => resident_memory_event(),
        WorkloadRequest::Refill(pages_per_region) if pages_per_region <= REGION_PAGES => {
            memory.write_pages_per_region(pages_per_region)?;
            Ok(WorkloadEvent::Refilled { pages_per_region })
        }
        WorkloadRequest::DontNeed(percent) => memory.discard_percent_per_region(percent).map(freed),
        WorkloadRequest::Free(regions) => memory.discard_last_regions(regions).map(freed),
        WorkloadRequest::Unmap(regions) => memory.unmap_last_regions(regions).map(freed),
        _ => Err(WorkloadError::Usage(format!("this workload cannot {request}"))),
    }
}

fn verification_event_and_result(memory: &PatternedMemory) -> (WorkloadEvent, WorkloadResult<()>) {
    let verdict = memory.verify_pattern();
    let event = WorkloadEvent::Verified {
        checked_bytes: verdict.checked_bytes,
        bad_bytes: verdict.bad_bytes,
        first_bad: verdict.first.as_ref().map(|wrong| wrong.address),
    };
    (event, verdict.first.map_or(Ok(()), |wrong| Err(WorkloadError::Wrong(wrong))))
}

pub(super) fn verify_and_report(
    memory: &PatternedMemory,
    console: &mut Console,
) -> WorkloadResult<()> {
    let (event, result) = verification_event_and_result(memory);
    console.emit_event(&event)?;
    result
}
