//! Pages of 64 KiB beside base pages and huge pages, for a program with allocations of 128 KiB that it uses at random: measured,
//! and predicted.

use super::Scale;
use super::host::{Host, need_bytes};
use super::programs::speed::turn;
use super::programs::{Program, start_reader};
use super::report::Report;
use crate::calibrate;
use crate::error::BenchError;
use crate::simulated::small_pages::{Filled, Layout, reads};
use crate::statistics::median;
use hawkeye_linux::page_sizes::tlb_sizes;
use hawkeye_linux::page_sizes::{all, mapped, setting_file};
use hawkeye_linux::processes::process;
use hawkeye_linux::takeover::thp_settings::THP_DIR;
use hawkeye_policy::{BASE_PAGE_BYTES, PageOrder, PageOrders};
use hawkeye_sim::mmu::MmuError;
use hawkeye_workload::{Event, Workload};
use std::path::Path;
use std::time::Duration;

/// Sizes that faults are given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Base,
    Small,
    Huge,
}

impl Way {
    const ALL: [Self; 3] = [Self::Base, Self::Small, Self::Huge];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4 KiB",
            Self::Small => "64 KiB",
            Self::Huge => "2 MiB",
        }
    }

    fn sizes(self) -> PageOrders {
        match self {
            Self::Base => PageOrders::NONE,
            Self::Small => PageOrders::NONE.with(PageOrder::CONTIGUOUS),
            Self::Huge => PageOrders::HUGE,
        }
    }
}

/// How the program has its memory.
struct Case {
    name: &'static str,
    words: &'static str,
    apart: bool,
    /// Blocks that are unmapped again once all are filled.
    free_percent: u64,
}

const CASES: [Case; 2] = [
    Case {
        name: "one mapping",
        words: "--fill-late",
        apart: false,
        free_percent: 0,
    },
    Case {
        name: "mappings apart",
        words: "--guards --free-percent 20",
        apart: true,
        free_percent: 20,
    },
];

/// What glibc's malloc maps for 128 KiB.
const BLOCK_PAGES: u64 = 33;
/// Filled and used of it: three quarters.
const USED_PAGES: u64 = 25;
/// Instructions for each read, counted in the optimised build's loop.
const INSTRUCTIONS: u32 = 35;
/// Where a block is, and the block.
const ACCESSES_PER_READ: f64 = 2.0;
/// Accesses that are simulated.
const ACCESSES: u64 = 4_000_000;
/// A program of which one page of each block is used, so few that neither caches nor translation hold it up.
const SMALL_MIB: u64 = 4;
const SMALL_BLOCKS: f64 = 31.0;
const TURN: Duration = Duration::from_millis(350);

/// What one program showed when it was ready.
#[derive(Clone, Copy, Default)]
struct Seen {
    fill_s: f64,
    rss_bytes: f64,
    faults: f64,
    /// Share of its memory under pages of the size, in per cent.
    share_percent: f64,
    /// Of a read.
    ns: f64,
}

/// Each case by each size, in turn.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let (mib, rounds, turns) = match scale {
        Scale::Quick => (256, 1, 1),
        Scale::Full => (2048, 9, 4),
    };
    let thp = Path::new(THP_DIR);
    if !all(thp).contains(PageOrder::CONTIGUOUS) {
        return Err(BenchError::Impossible(
            "this kernel has no pages of 64 KiB (Linux 6.8 brings them)".into(),
        ));
    }
    need_bytes(4 * (mib << 20))?;
    host.warm_up_for(scale)?;
    let here = calibrate::processor()?;
    let costs = host.touch_costs()?;
    let mut report = Report::new("small-pages");
    for case in &CASES {
        let layout = Layout {
            blocks: (mib << 20) / (BLOCK_PAGES * BASE_PAGE_BYTES),
            block_pages: BLOCK_PAGES,
            used_pages: USED_PAGES,
            apart: case.apart,
        };
        let (live, own_ns) = measure(host, case, mib, rounds, turns)?;
        let failed = |error: MmuError| BenchError::Impossible(error.to_string());
        let left = Layout {
            blocks: layout.blocks * (100 - case.free_percent) / 100,
            ..layout
        };
        let truth = reads(&here, &left, INSTRUCTIONS, own_ns, ACCESSES).map_err(failed)?;
        // Blocks apart from each other are gone with all of their memory.
        let kept = left.blocks as f64 / layout.blocks as f64;
        let base = Predicted::new(&layout, Way::Base, &truth, &costs);
        for (way, seen) in Way::ALL.into_iter().zip(&live) {
            let predicted = Predicted::new(&layout, way, &truth, &costs);
            let mut row =
                |what: &str, value: f64, unit, (now, then): (f64, f64), model: [f64; 2]| {
                    // Beside base pages, which are what both sides start from.
                    let (times, expected) = (now / then, model[0] / model[1]);
                    let beside = if way == Way::Base {
                        format!("predicted {}", short(value * model[0] / now))
                    } else {
                        format!(
                            "{times:.2} times that of 4 KiB, predicted {expected:.2}: {:+.1} %",
                            (expected / times - 1.0) * 100.0
                        )
                    };
                    report.row(
                        format!("{}: {}: {what}", case.name, way.name()),
                        value,
                        unit,
                        beside,
                    );
                };
            let [first, ..] = &live;
            let rate = |ns: f64| 1e3 / ns;
            row(
                "reads",
                rate(seen.ns),
                "M/s",
                (rate(seen.ns), rate(first.ns)),
                [rate(predicted.ns), rate(base.ns)],
            );
            row(
                "resident",
                seen.rss_bytes / f64::from(1 << 20),
                "MiB",
                (seen.rss_bytes, first.rss_bytes),
                [
                    predicted.filled.resident_bytes() * kept,
                    base.filled.resident_bytes() * kept,
                ],
            );
            row(
                "filling",
                seen.fill_s * 1e3,
                "ms",
                (seen.fill_s, first.fill_s),
                [predicted.fill_s, base.fill_s],
            );
            let faults = |filled: &Filled| filled.faults.values().sum::<f64>();
            row(
                "faults",
                seen.faults,
                "",
                (seen.faults, first.faults),
                [faults(&predicted.filled), faults(&base.filled)],
            );
            if way != Way::Base {
                report.row(
                    format!("{}: {}: memory under such pages", case.name, way.name()),
                    seen.share_percent,
                    "%",
                    "",
                );
            }
        }
    }
    report.note("The goal is a prediction of what a size changes within 15 % of what is measured. What stands beside 4 KiB is predicted without any measurement of the program but its own time.");
    report.note(format!(
        "{mib} MiB in blocks of {} KiB, the first {} KiB of each filled and read at random; in one mapping, as glibc's malloc has them, mapped before they are filled, or each in one of its own, filled as it is mapped, 20 % of them freed. Speed: median of {turns} turns of {} s by CPU time; filling: of {rounds} programs. A fault takes {:.0} ns here, zeroing a base page {:.0}, a first touch of one that is mapped {:.0}, by `doctor`'s child.",
        BLOCK_PAGES * 4,
        USED_PAGES * 4,
        TURN.as_secs_f64(),
        costs.fault_ns,
        costs.zero_base_ns,
        costs.touch_ns,
    ));
    if tlb_sizes::of_this_machine()
        .iter()
        .any(|order| order <= PageOrder::CONTIGUOUS)
    {
        report.note("This processor's TLB holds pages of up to 64 KiB by one entry, which the prediction of their speed leaves out.");
    }
    Ok(report)
}

struct Predicted {
    filled: Filled,
    fill_s: f64,
    ns: f64,
}

impl Predicted {
    fn new(
        layout: &Layout,
        way: Way,
        truth: &hawkeye_sim::mmu::Truth,
        costs: &hawkeye_linux::probe::touch_costs::TouchCosts,
    ) -> Self {
        let filled = layout.filled(way.sizes());
        let is_huge = filled.faults.contains_key(&PageOrder::HUGE);
        let ns = if is_huge {
            truth.huge.access_ns()
        } else {
            truth.base.access_ns()
        };
        Self {
            fill_s: filled.seconds(layout.blocks * layout.used_pages, costs),
            filled,
            ns: ns * ACCESSES_PER_READ,
        }
    }
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// By each size, and what a read takes where nothing holds it up.
fn measure(
    host: &mut Host,
    case: &Case,
    mib: u64,
    rounds: usize,
    turns: usize,
) -> Result<([Seen; 3], f64), BenchError> {
    let mut seen: [Vec<Seen>; 3] = Default::default();
    let mut programs: Vec<Box<dyn Program>> = Vec::new();
    for round in 0..rounds {
        for (way, seen) in Way::ALL.into_iter().zip(&mut seen) {
            give(host, way)?;
            let words = format!(
                "blocks --mib {mib} --block-kib {} --used-kib {} {} --pages default --report-ms 100 --wait",
                BLOCK_PAGES * 4,
                USED_PAGES * 4,
                case.words
            );
            let (program, found) = start(host, &words, way)?;
            seen.push(found);
            // The last ones are measured.
            if round + 1 == rounds {
                programs.push(program);
            }
        }
    }
    give(host, Way::Base)?;
    let small = format!("blocks --mib {SMALL_MIB} --used-kib 4 --pages default");
    let small = start_reader(host.program(), &small)?;
    // All but those of its blocks are any program's of ours.
    let started = process::minor_faults(small.pid())? as f64 - SMALL_BLOCKS;
    programs.push(small);
    let mut reads: [Vec<f64>; 4] = Default::default();
    // The first turn of each only warms caches up.
    for number in 0..=turns {
        for (program, reads) in programs.iter_mut().zip(&mut reads) {
            let speed = turn(program.as_mut(), TURN)?;
            if number > 0 {
                reads.push(1e9 / speed.per_cpu_s);
            }
        }
    }
    let [base, small, huge, own] = reads.map(|reads| median(&reads));
    let of = |seen: &[Seen], ns: f64| {
        let median_of = |part: fn(&Seen) -> f64| median(&seen.iter().map(part).collect::<Vec<_>>());
        Seen {
            fill_s: median_of(|seen| seen.fill_s),
            rss_bytes: median_of(|seen| seen.rss_bytes),
            faults: median_of(|seen| seen.faults) - started,
            share_percent: median_of(|seen| seen.share_percent),
            ns,
        }
    };
    let [a, b, c] = &seen;
    Ok(([of(a, base), of(b, small), of(c, huge)], own))
}

/// Has faults be given pages of this size.
fn give(host: &mut Host, way: Way) -> Result<(), BenchError> {
    host.set_enabled(if way == Way::Huge {
        "always"
    } else {
        "madvise"
    })?;
    let thp = Path::new(THP_DIR);
    for order in all(thp).iter().filter(|order| *order < PageOrder::HUGE) {
        let on = way.sizes().contains(order);
        host.set_file(
            &setting_file(thp, order),
            if on { "always" } else { "never" },
        )?;
    }
    Ok(())
}

fn start(host: &Host, words: &str, way: Way) -> Result<(Box<dyn Program>, Seen), BenchError> {
    let mut workload: Workload = host.start(words)?;
    let pid = workload.wait_ready()?.pid;
    let fill_s = match workload.next_event(Duration::from_secs(1))? {
        Event::Touched { elapsed_s, .. } => elapsed_s,
        other => {
            return Err(BenchError::Impossible(format!(
                "the workload says {other:?}"
            )));
        }
    };
    let rss_bytes = process::anonymous_bytes(pid)? as f64;
    let pages = mapped(pid)?.pages;
    let bytes: u64 = pages
        .iter()
        .filter(|(order, _)| way.sizes().contains(**order))
        .map(|(order, pages)| order.bytes() * pages)
        .sum();
    let seen = Seen {
        fill_s,
        rss_bytes,
        faults: process::minor_faults(pid)? as f64,
        share_percent: bytes as f64 * 100.0 / rss_bytes.max(1.0),
        ns: 0.0,
    };
    Ok((super::programs::ready_reader(workload, pid), seen))
}
