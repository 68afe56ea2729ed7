//! This machine's own speed-ups by huge pages, beside the predictions of the calibrated simulator.
//!
//! The processor is simulated as `calibrate` measured it. The work of a program beside its reads is
//! measured too: the same instructions over 2 MiB, where neither caches nor translation slow them
//! down. Nothing else is known of the programs than their instructions per read, and nothing is
//! fitted to their speed.

use crate::calibrate::{self, CalibratedProcessor};
use crate::error::BenchResult;
use crate::live::live_report::LiveReport;
use crate::live::programs::program_speed::measure_rounds;
use crate::live::programs::start_reader_workload;
use crate::live::programs::whole_process_promotion::huge_memory_percent;
use crate::machine_costs::shared_cache_retention;
use crate::statistics::{median, sorted};
use hawkeye_sim::mmu::{AccessPattern, CacheReplacement, HugePageGain, MmuError};
use std::path::Path;
use std::time::Duration;

/// Memory of each program, in MiB: as much as the calibration covers.
const MIB: u64 = 2048;
/// Memory small enough that nothing slows a program down.
const SMALL_MIB: u64 = 2;
/// Number of starts of each program: its frames determine which lines share a set of a cache.
const STARTS: usize = 3;
const TURNS: usize = 4;
const TURN: Duration = Duration::from_millis(350);

struct PredictionCase {
    name: &'static str,
    words: &'static str,
    /// The same over little memory: far reads at a fixed distance would share a few cache sets.
    little: &'static str,
    pattern: fn(u32) -> AccessPattern,
    /// Instructions per read, counted by single steps through some thousand reads of an optimised
    /// build. With them the core's reach ahead limits the overlap.
    instructions: u32,
    /// Those of them that take a register. Comparisons and branches take none, and a copy of one
    /// register to another is only renamed. Not counted, and taken to be all, if only one read at a
    /// time is under way anyway.
    registers: u32,
    /// Number of simulated accesses: they cover everything that is read again at least once.
    accesses: u64,
}

const CASES: [PredictionCase; 5] = [
    PredictionCase {
        name: "random",
        words: "random",
        little: "random",
        pattern: |instructions| AccessPattern::Random { instructions },
        instructions: 28,
        registers: 13,
        accesses: 2_000_000,
    },
    PredictionCase {
        name: "zipf",
        words: "zipf",
        little: "zipf",
        pattern: |instructions| AccessPattern::Zipf { theta: 0.99, instructions },
        instructions: 509,
        registers: 509,
        accesses: 2_000_000,
    },
    PredictionCase {
        name: "sequential",
        words: "sequential",
        little: "sequential",
        pattern: |instructions| AccessPattern::Stride { bytes: 8, instructions },
        instructions: 11,
        registers: 5,
        accesses: 8_000_000,
    },
    PredictionCase {
        name: "stride 64 KiB",
        words: "stride --stride-bytes 65536",
        little: "sequential",
        pattern: |instructions| AccessPattern::Stride { bytes: 64 << 10, instructions },
        instructions: 11,
        registers: 5,
        accesses: 2_000_000,
    },
    PredictionCase {
        name: "pointer chase",
        words: "chase",
        little: "chase",
        pattern: |instructions| AccessPattern::Chase { instructions },
        instructions: 9,
        registers: 9,
        accesses: 2_000_000,
    },
];

struct MeasuredReadNs {
    base: f64,
    huge: f64,
    own: f64,
    /// The minimum of all starts.
    huge_percent: f64,
    speed_ups: Vec<f64>,
}

/// Measures, predicts and compares. `program` accepts the arguments `workload NAME ...`.
pub fn measure_and_predict_speed_ups(program: &Path) -> BenchResult<LiveReport> {
    let here = calibrate::measure_processor_once()?;
    let mut report = LiveReport::new("this-machine");
    let mut shared =
        vec![here.with_shared_cache_retention(&shared_cache_retention::measure_cache_retention()?)];
    let mut seen = Vec::new();
    for case in &CASES {
        seen.push((case, measure_program_reads(program, case)?));
        shared.push(
            here.with_shared_cache_retention(&shared_cache_retention::measure_cache_retention()?),
        );
    }
    let here = with_median_cache_retention(here, &shared);
    for (case, live) in seen {
        let simulated = simulate_program_reads(&here, case, live.own)?;
        let mut alone = here;
        alone.processor.memory.neighbours_gb_per_s = 0.0;
        let undisturbed = simulate_program_reads(&alone, case, live.own)?;
        let (base, huge) = (simulated.base.access_ns(), simulated.huge.access_ns());
        let by_start: Vec<String> = live.speed_ups.iter().map(|x| format!("{x:.2}")).collect();
        let (speed_up, predicted) = (median(&live.speed_ups), base / huge);
        report.add_row(
            format!("{}: speed-up", case.name),
            speed_up,
            "x",
            format!(
                "{} by start; predicted {predicted:.2} x: {:+.1} %; {:.2} x without neighbours; base {:.1} / huge {:.1} ns per read, predicted {base:.1} / {huge:.1}",
                by_start.join(", "),
                (predicted / speed_up - 1.0) * 100.0,
                undisturbed.base.access_ns() / undisturbed.huge.access_ns(),
                live.base,
                live.huge,
            ),
        );
        if live.huge_percent < 95.0 {
            let percent = live.huge_percent;
            let name = case.name;
            report.add_note(format!("{name}: only {percent:.0} % of its memory was huge."));
        }
    }
    report.add_note("Goal: a prediction within 15 % of the measurement.");
    let rates =
        shared.iter().map(|here| format!("{:.1}", here.processor.memory.neighbours_gb_per_s));
    report.add_note(format!(
        "Neighbours bring {:.1} GB/s into the last-level cache, of which this machine uses {} MiB: the median of measurements before, between and after the programs ({}).",
        here.processor.memory.neighbours_gb_per_s,
        here.processor.memory.caches[2].bytes >> 20,
        rates.collect::<Vec<String>>().join(", "),
    ));
    report.add_note(format!(
        "Each program has {MIB} MiB, under base pages and huge pages in turn; {STARTS} starts, median of {TURNS} turns of {} s by CPU time. The processor is simulated as measured, otherwise like {}{}.",
        TURN.as_secs_f64(),
        here.like,
        if here.hosted_by.is_some() {
            "; the host maps this machine's memory by base pages"
        } else {
            ""
        },
    ));
    Ok(report)
}

fn measure_program_reads(program: &Path, case: &PredictionCase) -> BenchResult<MeasuredReadNs> {
    let start = |words, mib, pages| {
        let words = format!("{words} --mib {mib} --pages {pages}");
        start_reader_workload(program, &words)
    };
    let mut reads: [Vec<f64>; 3] = Default::default();
    let mut least_huge = 100.0f64;
    let mut speed_ups = Vec::new();
    for _ in 0..STARTS {
        let mut base = start(case.words, MIB, "base")?;
        let mut huge = start(case.words, MIB, "huge")?;
        let mut small = start(case.little, SMALL_MIB, "huge")?;
        least_huge = least_huge.min(huge_memory_percent(huge.pid())?);
        // The first turn of each program only warms up caches.
        let programs = [&mut base, &mut huge, &mut small];
        let rounds = measure_rounds(programs, TURN, |rounds| rounds <= TURNS)?;
        let now = [0, 1, 2].map(|n: usize| {
            let rounds = rounds[1..].iter();
            rounds.map(|round| 1e9 / round[n].per_cpu_s).collect::<Vec<f64>>()
        });
        speed_ups.push(median(&now[0]) / median(&now[1]));
        for (reads, now) in reads.iter_mut().zip(now) {
            reads.extend(now);
        }
    }
    let [base, huge, own] = reads.map(|reads| median(&reads));
    Ok(MeasuredReadNs { base, huge, own, huge_percent: least_huge, speed_ups: sorted(speed_ups) })
}

/// Single measurements differ by more than the neighbours' changes.
fn with_median_cache_retention(
    mut here: CalibratedProcessor,
    looks: &[CalibratedProcessor],
) -> CalibratedProcessor {
    let memories = looks.iter().map(|look| look.processor.memory);
    let rates = memories.clone().map(|memory| memory.neighbours_gb_per_s);
    let taken = memories.filter_map(|memory| match memory.last_level {
        CacheReplacement::ReReference { taken_percent } => Some(f64::from(taken_percent)),
        CacheReplacement::LeastRecentlyUsed => None,
    });
    let taken: Vec<f64> = taken.collect();
    here.processor.memory.neighbours_gb_per_s = median(&rates.collect::<Vec<f64>>());
    if !taken.is_empty() {
        here.processor.memory.last_level =
            CacheReplacement::ReReference { taken_percent: median(&taken).round() as u32 };
    }
    here
}

/// Instructions that the core runs ahead: until its registers run out or its reorder buffer is
/// full. The number of registers is the measured number of instructions that all write one.
fn instructions_ahead(here: &CalibratedProcessor, case: &PredictionCase) -> u32 {
    let by_registers = here.processor.reorder_buffer * case.instructions / case.registers;
    by_registers.min(here.reorder_buffer.max(here.processor.reorder_buffer))
}

/// The same accesses on the simulated processor; the program's own work takes as long as here.
fn simulate_program_reads(
    here: &CalibratedProcessor,
    case: &PredictionCase,
    own_ns: f64,
) -> BenchResult<HugePageGain, MmuError> {
    let mut processor = here.processor;
    processor.reorder_buffer = instructions_ahead(here, case);
    // A chase's own time is that of the cache level that holds it.
    let dependent = matches!((case.pattern)(1), AccessPattern::Chase { .. });
    let pace = if dependent {
        f64::from(processor.width)
    } else {
        f64::from(case.instructions) / (own_ns * processor.ghz)
    };
    let pattern = (case.pattern)(case.instructions);
    here.simulate_program(&processor, pattern, MIB << 20, pace, case.accesses)
}
