//! This machine's own speed-ups by huge pages, beside what the calibrated simulator predicts of them.
//!
//! The processor is simulated as `calibrate` measured it. What a program does beside reading memory is measured too: the
//! same program over 2 MiB, where neither caches nor translation hold it up. Nothing else is known of the programs, and nothing is
//! fitted to how fast they are.
//!
//! Known to be wrong: the exact model spreads lines at a regular distance over all sets of the second-level cache. Under huge pages they meet in a
//! few sets on a real core, so that strides of 64 KiB are predicted far too fast there.

use crate::calibrate;
use crate::live::BenchError;
use crate::live::programs::huge::huge_percent;
use crate::live::programs::speed::turn;
use crate::live::programs::start_reader;
use crate::live::report::{Report, median};
use hawkeye_sim::mmu::{MmuError, Pattern, Processor, Truth};
use std::path::Path;
use std::time::Duration;

/// Memory of each program, in MiB: as much as calibration has measured latencies of.
const MIB: u64 = 2048;
/// Memory in which nothing holds a program up.
const SMALL_MIB: u64 = 2;
const TURNS: usize = 4;
const TURN: Duration = Duration::from_millis(350);

/// A program, and its accesses as a pattern.
struct Case {
    name: &'static str,
    words: &'static str,
    pattern: fn(u32) -> Pattern,
    /// Instructions for each read, estimated; with them the core's reach ahead is what limits overlap.
    instructions: u32,
    /// Accesses simulated: at least once over all that is read again.
    accesses: u64,
}

const CASES: [Case; 5] = [
    Case {
        name: "random",
        words: "random",
        pattern: |instructions| Pattern::Random { instructions },
        instructions: 15,
        accesses: 2_000_000,
    },
    Case {
        name: "zipf",
        words: "zipf",
        pattern: |instructions| Pattern::Zipf {
            theta: 0.99,
            instructions,
        },
        instructions: 120,
        accesses: 2_000_000,
    },
    Case {
        name: "sequential",
        words: "sequential",
        pattern: |instructions| Pattern::Stride {
            bytes: 8,
            instructions,
        },
        instructions: 5,
        accesses: 8_000_000,
    },
    Case {
        name: "stride 64 KiB",
        words: "stride --stride-bytes 65536",
        pattern: |instructions| Pattern::Stride {
            bytes: 64 << 10,
            instructions,
        },
        instructions: 5,
        accesses: 2_000_000,
    },
    Case {
        name: "pointer chase",
        words: "chase",
        pattern: |instructions| Pattern::Chase { instructions },
        instructions: 3,
        accesses: 2_000_000,
    },
];

/// Nanoseconds for each read.
struct Live {
    base: f64,
    huge: f64,
    /// Over little memory.
    own: f64,
    huge_percent: f64,
}

/// Measures, predicts and compares. `program` understands `workload NAME ...`.
///
/// # Errors
/// Memory that can't be had, programs that can't be started.
pub fn predict(program: &Path) -> Result<Report, BenchError> {
    let (processor, like, walks) = calibrate::processor()?;
    let mut report = Report::new("this-machine");
    let failed = |error: MmuError| BenchError::Impossible(error.to_string());
    for case in &CASES {
        let live = measure(program, case)?;
        let simulated = simulate(&processor, case, live.own).map_err(failed)?;
        let (base, huge) = (simulated.base.access_ns(), simulated.huge.access_ns());
        let (speed_up, predicted) = (live.base / live.huge, base / huge);
        report.row(
            format!("{}: speed-up", case.name),
            speed_up,
            "x",
            format!(
                "predicted {predicted:.2} x: {:+.1} %; base {:.1} / huge {:.1} ns a read, predicted {base:.1} / {huge:.1}",
                (predicted / speed_up - 1.0) * 100.0,
                live.base,
                live.huge,
            ),
        );
        if live.huge_percent < 95.0 {
            let percent = live.huge_percent;
            report.note(format!(
                "{}: only {percent:.0} % of it was huge.",
                case.name
            ));
        }
    }
    for cost in &walks.by_footprint {
        let model =
            hawkeye_sim::mmu::calibrate(&processor, cost.footprint_bytes).map_err(failed)?;
        report.row(
            format!(
                "walk over {} MiB that is waited for",
                cost.footprint_bytes >> 20
            ),
            cost.dependent_ns,
            "ns",
            format!(
                "predicted {:.1} ns; overlapping {:.2} ns, predicted {:.2} ns",
                model.dependent_ns, cost.independent_ns, model.independent_ns
            ),
        );
    }
    report.note("The goal is a prediction within 15 % of what is measured.");
    report.note(format!(
        "{MIB} MiB each, base pages and huge pages in turn, median of {TURNS} turns of {} s by CPU time. Processor as measured, else like {like}.",
        TURN.as_secs_f64()
    ));
    Ok(report)
}

fn measure(program: &Path, case: &Case) -> Result<Live, BenchError> {
    let start = |mib, pages| {
        let words = format!("{} --mib {mib} --pages {pages}", case.words);
        start_reader(program, &words)
    };
    let mut base = start(MIB, "base")?;
    let mut huge = start(MIB, "huge")?;
    let mut small = start(SMALL_MIB, "huge")?;
    let huge_percent = huge_percent(huge.pid())?;
    let mut reads: [Vec<f64>; 3] = Default::default();
    // The first turn of each only warms caches up.
    for number in 0..=TURNS {
        for (program, reads) in [&mut base, &mut huge, &mut small]
            .into_iter()
            .zip(&mut reads)
        {
            let speed = turn(program.as_mut(), TURN)?;
            if number > 0 {
                reads.push(1e9 / speed.per_cpu_s);
            }
        }
    }
    let [base, huge, own] = reads.map(|reads| median(&reads));
    Ok(Live {
        base,
        huge,
        own,
        huge_percent,
    })
}

/// The same accesses on the simulated processor, in which the program's own work takes as long as here.
fn simulate(processor: &Processor, case: &Case, own_ns: f64) -> Result<Truth, MmuError> {
    let cycles = own_ns * processor.ghz;
    let width = f64::from(case.instructions) / cycles;
    let mut processor = *processor;
    // A chase's own time is that of the cache it is in.
    let dependent = matches!((case.pattern)(1), Pattern::Chase { .. });
    let instructions = if dependent || width >= 1.0 {
        let width = width.round().clamp(1.0, f64::from(processor.width));
        processor.width = if dependent {
            processor.width
        } else {
            width as u32
        };
        case.instructions
    } else {
        // Less than one instruction a cycle: as many as there are cycles take as long.
        processor.width = 1;
        cycles.round() as u32
    };
    Truth::measure(
        &processor,
        (case.pattern)(instructions),
        MIB << 20,
        case.accesses,
        1,
    )
}
