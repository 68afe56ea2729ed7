//! The estimate of walk-rate sampling against the simulated processor's own figures. The estimator
//! is the same as on live processes; here no hypervisor limits what is visible.

use crate::error::Result;
use crate::live::host::Host;
use crate::live::report::Report;
use crate::live::scale::Scale;
use hawkeye_policy::run_rate::plan::READS_AFTER;
use hawkeye_policy::run_rate::{
    DistanceCost, Estimator, FootprintCosts, PageBits, Probe, ProbeSettings, RegionMarks, WalkCosts,
};
use hawkeye_policy::{BASE_PAGE_BYTES, Overhead};
use hawkeye_sim::mmu::translation::LeafSize;
use hawkeye_sim::mmu::{MmuError, Pattern, Processor, Run, SAPPHIRE_RAPIDS, SKYLAKE, Truth};
use hawkeye_sim::parallel::map_on_threads;
use std::time::Duration;

/// Memory of each simulated program: under huge pages the TLB covers all of it.
const BYTES: u64 = 2 << 30;
/// Footprints at which the simulated processor's walks are measured.
const FOOTPRINTS_BYTES: [u64; 3] = [64 << 20, 512 << 20, BYTES];
/// Accesses before a program is measured, so that caches and TLBs are in use.
const WARM_UP: Duration = Duration::from_millis(5);
/// Instructions between reads, for measuring where walks stop overlapping.
const INSTRUCTIONS_BETWEEN: [u32; 7] = [15, 30, 60, 120, 240, 480, 960];
/// The live calibration uses 256 MiB.
const DATA_BYTES: u64 = 256 << 20;

/// Reads without work, with many other reads between them, as in the live calibration.
const AMID: Pattern = Pattern::KeyValue {
    value_bytes: 4096,
    instructions: 100,
};

/// For every pattern, the gain by the simulated counters and the estimated gain.
pub fn run(_host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    // Rounds that only rank regions are not covered here.
    let as_live = ProbeSettings {
        ranking_rounds: 0,
        ..ProbeSettings::for_first_touch(Duration::ZERO)
    };
    let (processors, accesses, settings): (&[&Processor], _, _) = match scale {
        Scale::Quick => {
            let few = ProbeSettings {
                rate_rounds: 3,
                ..as_live
            };
            (&[&SAPPHIRE_RAPIDS], 1_000_000, few)
        }
        Scale::Full => (&[&SKYLAKE, &SAPPHIRE_RAPIDS], 10_000_000, as_live),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for processor in processors {
        let costs = costs(processor, threads)?;
        let seen = map_on_threads(&Pattern::ALL, threads, |_, (_, pattern)| {
            let truth = Truth::measure(processor, *pattern, BYTES, accesses, 1)?;
            Ok::<_, MmuError>((truth, estimate(processor, *pattern, &costs, settings)?))
        });
        for ((name, _), seen) in Pattern::ALL.into_iter().zip(seen) {
            let (truth, estimate) = seen?;
            let gain = truth.gain_percent();
            let beside = match estimate {
                Some(overhead) => format!(
                    "estimated {overhead}: {:+.1} points; walking {:.0} % of cycles",
                    overhead.percent - gain,
                    truth.base.walk_active_percent()
                ),
                None => "not estimated: it hardly ran".into(),
            };
            report.row(
                format!("{}: {name}", processor.name),
                gain,
                "% gain",
                beside,
            );
        }
    }
    report.note("2 GiB. Gain: 1 - time under huge pages / time under base pages.");
    Ok(())
}

/// Costs of walks on the simulated processor, measured with the same patterns as on a live machine.
fn costs(processor: &Processor, threads: usize) -> Result<WalkCosts, MmuError> {
    let at = |_, footprint_bytes: &u64| {
        let walk_ns = |pattern, reads| -> Result<f64, MmuError> {
            let truth = Truth::measure(processor, pattern, *footprint_bytes, reads, 1)?;
            Ok(truth.walk_ns().unwrap_or(0.0).max(0.0))
        };
        // With more pages, each page is read once after a first pass.
        let reads = (footprint_bytes / BASE_PAGE_BYTES).max(1 << 17);
        let dependent_ns = walk_ns(Pattern::CHASE, reads)?;
        Ok(FootprintCosts {
            footprint_bytes: *footprint_bytes,
            streamed_ns: walk_ns(Pattern::STRIDE_4K, reads)?,
            strided_ns: walk_ns(Pattern::STRIDE_64K, 1 << 18)?,
            independent_ns: walk_ns(Pattern::RANDOM, reads)?,
            dependent_ns,
            alone_ns: walk_ns(AMID, 1 << 18)?.max(dependent_ns),
        })
    };
    let by_footprint = map_on_threads(&FOOTPRINTS_BYTES, threads, at);
    let mut by_distance = Vec::new();
    for instructions in INSTRUCTIONS_BETWEEN {
        let pattern = Pattern::Random { instructions };
        let truth = Truth::measure(processor, pattern, BYTES, 1 << 18, 1)?;
        by_distance.push(DistanceCost {
            apart_ns: truth.base.access_ns(),
            walk_ns: truth.walk_ns().unwrap_or(0.0).max(0.0),
        });
    }
    let stream = Truth::measure(processor, Pattern::STRIDE_4K, BYTES, 1 << 19, 1)?;
    let data_ns = |pattern| -> Result<f64, MmuError> {
        let mut run = Run::new(processor, pattern, DATA_BYTES, LeafSize::Huge, 1)?;
        Ok(run.count_accesses(1 << 20).access_ns())
    };
    Ok(WalkCosts {
        by_footprint: by_footprint.into_iter().collect::<Result<_, MmuError>>()?,
        by_distance,
        streamed_apart_ns: stream.base.access_ns(),
        data_independent_ns: data_ns(Pattern::RANDOM)?,
        data_dependent_ns: data_ns(Pattern::CHASE)?,
        tlb_pages: processor.l2_tlb.shape.entries,
        tlb_huge_pages: processor.l2_tlb.shape.entries,
    })
}

fn estimate(
    processor: &Processor,
    pattern: Pattern,
    costs: &WalkCosts,
    settings: ProbeSettings,
) -> Result<Option<Overhead>, MmuError> {
    let mut run = Run::new(processor, pattern, BYTES, LeafSize::Base, 2)?;
    run.advance(WARM_UP);
    let regions: Vec<_> = run.regions().collect();
    let mut estimator = Estimator::new(regions.len() as u64, 0, Duration::ZERO);
    let mut probe = Probe::new(regions, settings, 7, |_| 0);
    while let Some(plan) = probe.next_round() {
        let round = plan.regions;
        run.clear(&round, true);
        let mut exposed = Duration::ZERO;
        for (read, due) in READS_AFTER.into_iter().enumerate() {
            // Reading takes a while too.
            let due = due.max(Duration::from_micros(50));
            run.advance(due.saturating_sub(exposed));
            exposed = due;
            let marks: Vec<RegionMarks> = round
                .iter()
                .map(|region| RegionMarks {
                    region: *region,
                    huge: false,
                    exposed,
                    touched: PageBits(run.accessed(*region)),
                })
                .collect();
            let touched = estimator.read(&marks, exposed, exposed);
            if Probe::seen_enough(read, touched, round.len()) {
                break;
            }
        }
        estimator.end_round(plan.for_rate);
    }
    Ok(estimator.finish(costs).overhead)
}
