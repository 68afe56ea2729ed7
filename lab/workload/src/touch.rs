//! A workload that touches new memory, and how long each touch takes.

use crate::console::{Console, Input};
use crate::error::WorkloadError;
use crate::memory::{Mapping, PAGE, Pages, REGION, REGION_PAGES};
use crate::process::{ready, stay};
use crate::protocol::{Event, Request, WrongWord};
use crate::rng::Rng;
use std::thread;
use std::time::{Duration, Instant};

/// Options of `touch`.
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
    #[arg(long, value_enum, default_value_t = Order::Ascending)]
    pub order: Order,
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
    #[arg(long, value_enum, default_value_t = Pages::Default)]
    pub pages: Pages,
    /// Begin at once, without waiting for `go`.
    #[arg(long)]
    pub now: bool,
}

/// In which order memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// From low addresses to high ones.
    Ascending,
    /// From high addresses to low ones.
    Descending,
    /// Base pages of all regions mixed.
    Random,
}

/// How long touches took, in nanoseconds: a histogram that loses at most a sixteenth.
struct Latencies {
    counts: Vec<u64>,
    sum_ns: u64,
    longest_ns: u64,
}

const STEPS_PER_OCTAVE: u64 = 16;

impl Latencies {
    fn new() -> Self {
        Self {
            counts: vec![0; 64 * STEPS_PER_OCTAVE as usize],
            sum_ns: 0,
            longest_ns: 0,
        }
    }

    fn note(&mut self, ns: u64) {
        let ns = ns.max(STEPS_PER_OCTAVE);
        let octave = u64::from(ns.ilog2());
        let step = (ns >> (octave - 4)) - STEPS_PER_OCTAVE;
        if let Some(count) = self
            .counts
            .get_mut((octave * STEPS_PER_OCTAVE + step) as usize)
        {
            *count += 1;
        }
        self.sum_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }

    fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ns += other.sum_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }

    /// The latency that a share of all touches does not exceed.
    fn quantile_ns(&self, share: f64) -> f64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let place = place.unwrap_or(0) as u64;
        let (octave, step) = (place / STEPS_PER_OCTAVE, place % STEPS_PER_OCTAVE);
        ((STEPS_PER_OCTAVE + step + 1) << octave.saturating_sub(4)) as f64
    }
}

/// Waits for `go`, touches, says how long it took, checks its memory and ends.
pub(super) fn touch(args: &TouchArgs, console: &mut Console) -> Result<(), WorkloadError> {
    let bytes = (args.mib.next_multiple_of(2) << 20) as usize;
    let mapped = ((args.mapped_mib.next_multiple_of(2) << 20) as usize).max(bytes);
    let memory = Mapping::private(mapped, args.pages, |_| {})?;
    console.emit(&Event::Ready(ready(
        memory.start(),
        bytes as u64,
        memory.start() + bytes as u64,
    )))?;
    if !args.now && !told_to_go(console)? {
        return Ok(());
    }
    let (touched, _untouched) = memory.split(bytes);
    let mut parts =
        touched.map_or_else(Vec::new, |memory| parts(memory, usize::from(args.threads)));
    for _ in 0..args.rounds {
        let begun = Instant::now();
        let all = thread::scope(|scope| {
            let threads: Vec<_> = parts
                .iter_mut()
                .enumerate()
                .map(|(n, part)| scope.spawn(move || touch_part(args, part, n as u64)))
                .collect();
            let mut all = Latencies::new();
            for thread in threads {
                // A thread that panicked has said so itself, and no memory is right then.
                all.add(&thread.join().unwrap_or_else(|_| Latencies::new()));
            }
            all
        });
        console.emit(&Event::Touched {
            elapsed_s: begun.elapsed().as_secs_f64(),
            mean_ns: all.mean_ns(),
            p99_ns: all.quantile_ns(0.99),
            longest_ns: all.longest_ns,
        })?;
    }
    let wrong = parts.iter().find_map(|part| wrong_word(args, part));
    console.emit(&Event::Verified {
        checked_bytes: bytes as u64,
        bad_bytes: wrong.as_ref().map_or(0, |_| 8),
        first_bad: wrong.as_ref().map(|wrong| wrong.address),
    })?;
    if args.stay {
        stay(console)?;
    }
    wrong.map_or(Ok(()), |wrong| Err(WorkloadError::Wrong(wrong)))
}

fn told_to_go(console: &mut Console) -> Result<bool, WorkloadError> {
    loop {
        let message = match console.next() {
            Input::Request(Request::Go) => return Ok(true),
            Input::Request(Request::Quit) | Input::End => return Ok(false),
            Input::Request(other) => format!("this workload cannot {other} before it has begun"),
            Input::Bad(bad) => bad.to_string(),
        };
        console.emit(&Event::Error { message })?;
    }
}

/// So many parts of about the same number of regions.
fn parts(memory: Mapping, threads: usize) -> Vec<Mapping> {
    let mut parts = Vec::new();
    let mut rest = Some(memory);
    for left in (1..=threads).rev() {
        let Some(memory) = rest.take() else { break };
        let regions = memory.bytes() / REGION;
        let (part, after) = memory.split(regions.div_ceil(left) * REGION);
        parts.extend(part);
        rest = after;
    }
    parts
}

/// What is written to a page: its address, so that one that is mixed up shows.
fn stamp(memory: &Mapping, offset: usize) -> u64 {
    (memory.start() + offset as u64) | 1
}

fn touch_part(args: &TouchArgs, memory: &mut Mapping, seed: u64) -> Latencies {
    let regions = memory.bytes() / REGION;
    let per_region = usize::from(args.pages_per_region);
    let work = Duration::from_micros(args.work_us);
    let mut latencies = Latencies::new();
    let mut write = |memory: &mut Mapping, region: usize, page: usize| {
        let offset = region * REGION + page * (REGION_PAGES / per_region) * PAGE;
        let value = stamp(memory, offset);
        if args.latencies {
            let begun = Instant::now();
            memory.write(offset, value);
            latencies.note(begun.elapsed().as_nanos() as u64);
        } else {
            memory.write(offset, value);
        }
    };
    if args.order == Order::Random {
        let mut order: Vec<u32> = (0..(regions * per_region) as u32).collect();
        let mut random = Rng::new(1, seed);
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last + 1));
        }
        for place in order {
            let place = place as usize;
            write(memory, place / per_region, place % per_region);
        }
        return latencies;
    }
    for n in 0..regions {
        let descends = args.order == Order::Descending;
        let region = if descends { regions - 1 - n } else { n };
        for page in 0..per_region {
            let page = if descends {
                per_region - 1 - page
            } else {
                page
            };
            write(memory, region, page);
        }
        let begun = Instant::now();
        while begun.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    latencies
}

/// The first touched word that is not as written, or other word that is not zero.
fn wrong_word(args: &TouchArgs, memory: &Mapping) -> Option<WrongWord> {
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
        let expected = if touched(offset) {
            stamp(memory, offset)
        } else {
            0
        };
        let found = memory.read(offset);
        (found != expected).then(|| WrongWord {
            address: memory.start() + offset as u64,
            expected,
            found,
            found_again: memory.read(offset),
            thread: 0,
            during: "touching".into(),
            in_child: false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let mut latencies = Latencies::new();
        for ns in 1..=10_000 {
            latencies.note(ns);
        }
        let p99 = latencies.quantile_ns(0.99);
        assert!(
            (9_900.0..9_900.0 * 17.0 / 16.0 + 1.0).contains(&p99),
            "{p99}"
        );
        assert_eq!(latencies.count(), 10_000);
        assert_eq!(latencies.longest_ns, 10_000);
    }
}
