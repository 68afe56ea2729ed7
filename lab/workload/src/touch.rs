//! A workload that touches new memory, and the time of each touch.

use crate::prelude::*;
use crate::process::{new_nanosecond_histogram, record_time};
use hdrhistogram::Histogram;
use std::thread;

#[derive(Clone, Debug, clap::Args)]
pub struct TouchArgs {
    /// Memory to touch, in MiB; an odd number is rounded up.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Memory mapped, in MiB, if it is more than what is touched: its low addresses are touched.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub mapped_mib: u64,
    /// Stay there after all was touched and answer requests.
    #[arg(long)]
    pub stay: bool,
    /// In which order.
    #[arg(long, value_enum, default_value_t = TouchOrder::Ascending)]
    pub order: TouchOrder,
    /// Base pages of each region (1-512) that are touched.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub pages_per_region: u16,
    /// Threads, each with a part of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Computation after each region, in microseconds.
    #[arg(long, default_value_t = 0)]
    pub work_us: u64,
    /// Time each touch; takes some ten nanoseconds each.
    #[arg(long)]
    pub latencies: bool,
    /// Touch the memory this often; the first time it is new.
    #[arg(long, default_value_t = 1)]
    pub rounds: u32,
    /// Pages to ask for.
    #[arg(long, value_enum, default_value_t = RequestedPageKind::Default)]
    pub pages: RequestedPageKind,
    /// Begin at once, without waiting for `go`.
    #[arg(long)]
    pub now: bool,
}

/// In which order memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TouchOrder {
    /// From low addresses to high ones.
    Ascending,
    /// From high addresses to low ones.
    Descending,
    /// Base pages of all regions mixed.
    Random,
}

/// Waits for `go`, touches, reports the time, checks its memory and ends.
pub(super) fn run_touch(args: &TouchArgs, console: &mut Console) -> WorkloadResult<()> {
    let bytes = (args.mib.next_multiple_of(2) << 20) as usize;
    let mapped = ((args.mapped_mib.next_multiple_of(2) << 20) as usize).max(bytes);
    let memory = WorkloadMemory::map_private(mapped, args.pages)?;
    report_ready(console, memory.start_address(), bytes as u64)?;
    if !args.now && !wait_for_go(console, "begun")? {
        return Ok(());
    }
    let (touched, _untouched) = memory.split_at(bytes);
    let mut parts = touched
        .map_or_else(Vec::new, |memory| split_for_threads(memory, usize::from(args.threads)));
    for _ in 0..args.rounds {
        let begun = Instant::now();
        let all = thread::scope(|scope| {
            let threads: Vec<_> = parts
                .iter_mut()
                .enumerate()
                .map(|(n, part)| scope.spawn(move || touch_memory_part(args, part, n as u64)))
                .collect();
            let mut all = new_nanosecond_histogram()?;
            for thread in threads {
                let joined = thread.join();
                let part = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                all.add(part).map_err(WorkloadError::from_histogram_error)?;
            }
            Ok::<_, WorkloadError>(all)
        })?;
        let elapsed_s = begun.elapsed().as_secs_f64();
        for part in &mut parts {
            part.allow_promotion()?;
        }
        console.emit_event(&WorkloadEvent::Touched {
            elapsed_s,
            mean_ns: all.mean(),
            p99_ns: all.value_at_quantile(0.99) as f64,
            longest_ns: all.max(),
        })?;
    }
    let wrong = parts.iter().find_map(|part| find_wrong_word(args, part));
    console.emit_event(&WorkloadEvent::Verified {
        checked_bytes: bytes as u64,
        bad_bytes: wrong.as_ref().map_or(0, |_| 8),
        first_bad: wrong.as_ref().map(|wrong| wrong.address),
    })?;
    if args.stay {
        serve_until_quit(console)?;
    }
    wrong.map_or(Ok(()), |wrong| Err(WorkloadError::Wrong(wrong)))
}

fn split_for_threads(memory: WorkloadMemory, threads: usize) -> Vec<WorkloadMemory> {
    let mut parts = Vec::new();
    let mut rest = Some(memory);
    for left in (1..=threads).rev() {
        let Some(memory) = rest.take() else { break };
        let regions = memory.bytes() / REGION;
        let (part, after) = memory.split_at(regions.div_ceil(left) * REGION);
        parts.extend(part);
        rest = after;
    }
    parts
}

/// The word written to a page: its address, so that exchanged pages are detected.
fn expected_word(memory: &WorkloadMemory, offset: usize) -> u64 {
    (memory.start_address() + offset as u64) | 1
}

fn touch_memory_part(
    args: &TouchArgs,
    memory: &mut WorkloadMemory,
    seed: u64,
) -> WorkloadResult<Histogram<u64>> {
    let regions = memory.bytes() / REGION;
    let per_region = usize::from(args.pages_per_region);
    let work = Duration::from_micros(args.work_us);
    let mut latencies = new_nanosecond_histogram()?;
    let mut write = |memory: &mut WorkloadMemory, region: usize, page: usize| {
        let offset = region * REGION + page * (REGION_PAGES / per_region) * PAGE;
        let value = expected_word(memory, offset);
        let begun = args.latencies.then(Instant::now);
        memory.write_word(offset, value);
        begun.map_or(Ok(()), |begun| record_time(&mut latencies, begun.elapsed()))
    };
    if args.order == TouchOrder::Random {
        let mut order: Vec<u32> = (0..(regions * per_region) as u32).collect();
        let mut random = WorkloadRng::new(1, seed);
        random.shuffle(&mut order);
        for place in order {
            let place = place as usize;
            write(memory, place / per_region, place % per_region)?;
        }
        return Ok(latencies);
    }
    let descends = args.order == TouchOrder::Descending;
    let nth = |n, count| if descends { count - 1 - n } else { n };
    for n in 0..regions {
        for page in 0..per_region {
            write(memory, nth(n, regions), nth(page, per_region))?;
        }
        let begun = Instant::now();
        while begun.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    Ok(latencies)
}

fn find_wrong_word(args: &TouchArgs, memory: &WorkloadMemory) -> Option<WrongWord> {
    let step = REGION_PAGES / usize::from(args.pages_per_region);
    let touched = |offset: usize| {
        let page = offset % REGION / PAGE;
        let place = page / step;
        offset % PAGE == 0 && page % step == 0 && place < usize::from(args.pages_per_region)
    };
    // A page of each region is checked in full.
    let offsets = (0..memory.bytes()).step_by(PAGE).flat_map(|page| {
        let words = if page % REGION == 0 { PAGE / 8 } else { 1 };
        (0..words).map(move |word| page + word * 8)
    });
    offsets.into_iter().find_map(|offset| {
        let expected = if touched(offset) { expected_word(memory, offset) } else { 0 };
        let found = memory.read_word(offset);
        (found != expected).then(|| memory.wrong_word_report(offset, expected, found, "touching"))
    })
}
