//! Workloads that hold memory, idle, and free, refill and verify it on request.

use crate::patterned::PatternedMemory;
use crate::prelude::*;

/// Options of `bloat`.
#[derive(Clone, Debug, clap::Args)]
pub struct BloatArgs {
    /// Memory to map, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Base pages of each region (0-512) that hold data.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=512))]
    pub used: u16,
    /// Let one in four of them hold nothing but its last byte.
    #[arg(long)]
    pub tail_byte: bool,
    /// Pages to start with.
    #[arg(long, value_enum, default_value_t = Pages::Huge)]
    pub pages: Pages,
    /// Verify and end after N seconds instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
}

/// Options of `burner`.
#[derive(Clone, Debug, clap::Args)]
pub struct BurnerArgs {
    /// Memory to fill, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Pages to start with.
    #[arg(long, value_enum, default_value_t = Pages::Base)]
    pub pages: Pages,
    /// Verify and end after N seconds instead of at the end of standard input.
    #[arg(long)]
    pub seconds: Option<f64>,
}

pub(super) fn bloat(args: &BloatArgs, console: &mut Console) -> Result<()> {
    let regions = regions(args.mib);
    let memory = PatternedMemory::new(regions, args.used.into(), args.tail_byte, args.pages)?;
    serve(memory, args.seconds, console)
}

pub(super) fn burner(args: &BurnerArgs, console: &mut Console) -> Result<()> {
    let memory = PatternedMemory::new(regions(args.mib), REGION_PAGES, false, args.pages)?;
    serve(memory, args.seconds, console)
}

pub(super) fn regions(mib: u64) -> usize {
    ((mib << 20) as usize).div_ceil(REGION)
}

/// Answers requests until there is a reason to end.
fn serve(mut memory: PatternedMemory, seconds: Option<f64>, console: &mut Console) -> Result<()> {
    say_ready(console, memory.start(), memory.bytes() as u64)?;
    let period = seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or_default());
    let deadline = period.map(|period| Instant::now() + period);
    loop {
        let input = match deadline {
            None => console.next(),
            Some(at) => match console.wait(at.saturating_duration_since(Instant::now())) {
                Some(Input::End) => {
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    return last_check(&memory, console);
                }
                Some(input) => input,
                None => return last_check(&memory, console),
            },
        };
        let answer = match input {
            Input::End | Input::Request(Request::Quit) => return Ok(()),
            Input::Bad(bad) => Err(WorkloadError::Usage(bad.to_string())),
            Input::Request(request) => answer(&mut memory, request),
        };
        let failed = |error: WorkloadError| Event::Error {
            message: error.to_string(),
        };
        console.emit(&answer.unwrap_or_else(failed))?;
    }
}

fn answer(memory: &mut PatternedMemory, request: Request) -> Result<Event> {
    let freed = |freed_bytes| Event::Freed { freed_bytes };
    match request {
        Request::Verify => Ok(verified(memory).0),
        Request::Rss => resident(),
        Request::Refill(pages_per_region) if pages_per_region <= REGION_PAGES => {
            memory.write(pages_per_region);
            Ok(Event::Refilled { pages_per_region })
        }
        Request::DontNeed(percent) => memory.discard_part(percent).map(freed),
        Request::Free(regions) => memory.discard_regions(regions).map(freed),
        Request::Unmap(regions) => memory.unmap(regions).map(freed),
        _ => Err(WorkloadError::Usage(format!(
            "this workload cannot {request}"
        ))),
    }
}

pub(super) fn verified(memory: &PatternedMemory) -> (Event, Result<()>) {
    let verdict = memory.verify();
    let event = Event::Verified {
        checked_bytes: verdict.checked_bytes,
        bad_bytes: verdict.bad_bytes,
        first_bad: verdict.first.as_ref().map(|wrong| wrong.address),
    };
    (
        event,
        verdict
            .first
            .map_or(Ok(()), |wrong| Err(WorkloadError::Wrong(wrong))),
    )
}

fn last_check(memory: &PatternedMemory, console: &mut Console) -> Result<()> {
    let (event, result) = verified(memory);
    console.emit(&event)?;
    result
}
