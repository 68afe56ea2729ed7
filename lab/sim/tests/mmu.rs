//! The MMU model as a whole: counters and time of whole runs.

use hawkeye_sim::mmu::translation::LeafSize;
use hawkeye_sim::mmu::{
    AccessPattern, CoreCounters, HugePageGain, L1TlbSpec, MmuError, NEOVERSE_V2, PROCESSORS,
    PatternRun, ProcessorSpec, ReadLatencyShape, SKYLAKE, SetShape, ZEN_4,
};

type TestResult<T = ()> = Result<T, MmuError>;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn base(pattern: AccessPattern, bytes: u64) -> TestResult<PatternRun> {
    PatternRun::new(&SKYLAKE, pattern, bytes, LeafSize::Base, 1)
}

/// Counters of `accesses` accesses under base pages, after as many to warm up.
fn counted(pattern: AccessPattern, bytes: u64, accesses: u64) -> TestResult<CoreCounters> {
    let mut run = base(pattern, bytes)?;
    run.run_accesses(accesses);
    Ok(run.run_and_count_accesses(accesses))
}

/// Cost to the program of each walk that huge pages save; `None` without any.
fn ns_per_saved_walk(gain: &HugePageGain) -> Option<f64> {
    let saved_walks = gain.base.walks.checked_sub(gain.huge.walks)?;
    let saved = gain.base.cpu_time.as_secs_f64() - gain.huge.cpu_time.as_secs_f64();
    (saved_walks > 0).then(|| saved * 1e9 / saved_walks as f64)
}

#[test]
fn sequential_reads_walk_once_a_page_and_load_an_entry_a_walk() -> TestResult {
    let pages = 4096;
    let counters = base(AccessPattern::SEQUENTIAL, 64 * MIB)?.run_and_count_accesses(512 * pages);
    assert_eq!(counters.walks, pages);
    let loads: u64 = counters.walk_loads.iter().sum();
    // A page-directory entry for each region, and two loads of upper entries.
    assert_eq!(loads, pages + pages / 512 + 2);
    // Eight entries per line.
    let [l1, ..] = counters.walk_loads;
    assert!(l1 >= pages / 8 * 7, "{:?}", counters.walk_loads);
    Ok(())
}

#[test]
fn memory_within_tlb_reach_has_no_walks() -> TestResult {
    // 1536 entries of 4 KiB: 6 MiB.
    let inside = counted(AccessPattern::RANDOM, 4 * MIB, 100_000)?;
    assert_eq!(inside.walks, 0);
    assert!(inside.l2_tlb_hits > 90_000, "64 of 1024 pages in the first");
    let beyond = counted(AccessPattern::RANDOM, 12 * MIB, 100_000)?;
    let walks = beyond.walks as f64 / beyond.accesses as f64;
    assert!((0.45..0.55).contains(&walks), "half of the pages: {walks}");
    Ok(())
}

#[test]
fn more_memory_means_more_and_dearer_walks() -> TestResult {
    for pattern in [AccessPattern::RANDOM, AccessPattern::ZIPF, AccessPattern::CHASE] {
        let mut before = CoreCounters::default();
        for bytes in [8 * MIB, 64 * MIB, 512 * MIB, 4 * GIB] {
            let counters = counted(pattern, bytes, 100_000)?;
            assert!(counters.walks > before.walks, "{pattern:?}, {bytes}");
            let pending = counters.walk_pending_cycles;
            assert!(pending > before.walk_pending_cycles, "{pattern:?}, {bytes}");
            before = counters;
        }
    }
    Ok(())
}

#[test]
fn counters_are_consistent_on_every_processor() -> TestResult {
    for processor in PROCESSORS {
        for (name, pattern) in AccessPattern::ALL {
            for size in [LeafSize::Base, LeafSize::Huge] {
                let mut run = PatternRun::new(&processor, pattern, 256 * MIB, size, 1)?;
                let c = run.run_and_count_accesses(30_000);
                let what = format!("{name} on {}: {c:?}", processor.name);
                assert_eq!(c.accesses, 30_000, "{what}");
                assert!(c.walks + c.l2_tlb_hits <= c.accesses, "{what}");
                assert!(c.walk_loads.iter().sum::<u64>() >= c.walks, "{what}");
                assert!(c.walk_active_cycles <= c.cycles, "{what}");
                // Both are sums of many rounded terms.
                let (active, pending) = (c.walk_active_cycles, c.walk_pending_cycles);
                let rounded = 1.0 + 1e-9;
                assert!(active <= pending * rounded, "{what}");
                let walkers = f64::from(processor.walkers);
                // A walk that is placed before one that starts later may last into it
                // (`resource_slots.rs`); hence the tolerance.
                assert!(pending <= 1.1 * walkers * active, "{what}");
                let at_best = c.instructions as f64 / f64::from(processor.width);
                assert!(c.cycles >= at_best, "{what}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_same_run_twice_is_the_same() -> TestResult {
    for (name, pattern) in AccessPattern::ALL {
        let mut runs = [base(pattern, 64 * MIB)?, base(pattern, 64 * MIB)?];
        for run in &mut runs {
            run.run_accesses(10_000);
        }
        let [one, two] = runs;
        assert_eq!(one.counters(), two.counters(), "{name}");
    }
    Ok(())
}

#[test]
fn patterns_gain_what_their_kind_gains() -> TestResult {
    let gain = |pattern| -> TestResult<f64> {
        Ok(HugePageGain::measure(&SKYLAKE, pattern, GIB, 300_000, 1)?.gain_percent())
    };
    for pattern in [
        AccessPattern::RANDOM,
        AccessPattern::ZIPF,
        AccessPattern::CHASE,
        AccessPattern::STRIDE_64K,
    ] {
        let percent = gain(pattern)?;
        assert!(percent > 15.0, "{pattern:?}: {percent}");
    }
    // Neighbouring entries share lines, and a program that reads a line of each page waits for
    // memory.
    let paged = gain(AccessPattern::STRIDE_4K)?;
    assert!((0.0..15.0).contains(&paged), "{paged}");
    let sequential = gain(AccessPattern::SEQUENTIAL)?;
    assert!((0.0..3.0).contains(&sequential), "{sequential}");
    Ok(())
}

#[test]
fn a_host_of_base_pages_takes_the_reach_of_huge_pages_and_not_their_shorter_walks() -> TestResult {
    let hosted = |backed_by| {
        let new = |size| {
            let run = PatternRun::new(&SKYLAKE, AccessPattern::CHASE, GIB, size, 1)?;
            Ok(run.in_guest(&SKYLAKE, backed_by))
        };
        HugePageGain::measure_runs(new, 200_000)
    };
    let (native, small, large) = (
        HugePageGain::measure(&SKYLAKE, AccessPattern::CHASE, GIB, 200_000, 1)?,
        hosted(LeafSize::Base)?,
        hosted(LeafSize::Huge)?,
    );
    assert_eq!(small.huge.walks, small.base.walks, "4 KiB at a time");
    assert_eq!((native.huge.walks, large.huge.walks), (0, 0));
    let loads = |of: &CoreCounters| of.walk_loads.iter().sum::<u64>() as f64 / of.walks as f64;
    assert!(loads(&small.base) > loads(&large.base) && loads(&large.base) > loads(&native.base));
    let gains = [small, native, large].map(|truth| truth.gain_percent());
    assert!(gains.is_sorted() && gains[0] > 5.0, "{gains:?}");
    Ok(())
}

#[test]
fn neighbours_make_walks_dearer_for_those_who_walk_seldom() -> TestResult {
    let mut shared = SKYLAKE;
    shared.memory.neighbours_gb_per_s = 5.0;
    let dearer = |pattern| -> TestResult<f64> {
        let walk_ns = |processor| -> TestResult<f64> {
            let base = HugePageGain::measure(processor, pattern, GIB, 200_000, 1)?.base;
            Ok(base.walk_pending_cycles / base.walks as f64)
        };
        Ok(walk_ns(&shared)? / walk_ns(&SKYLAKE)?)
    };
    let (often, seldom) = (dearer(AccessPattern::RANDOM)?, dearer(AccessPattern::CHASE)?);
    assert!(often < 1.1 && seldom > 1.1, "{often}, {seldom}");
    Ok(())
}

/// A tenth of the reads take five times as long as the others. Dependent reads take their mean,
/// whatever the order. Reads under way together all wait for the slowest one before them.
#[test]
fn where_latency_varies_reads_overlap_less() -> TestResult {
    let mut varied = SKYLAKE;
    let latencies = (0..1000).map(|n| if n % 10 == 0 { 5.0 } else { 1.0 });
    varied.memory.latency_shape = ReadLatencyShape::from_latencies(latencies.collect());
    let slower = |pattern| -> TestResult<f64> {
        let read_ns = |processor| -> TestResult<f64> {
            let huge = HugePageGain::measure(processor, pattern, GIB, 200_000, 1)?.huge;
            Ok(huge.access_ns())
        };
        Ok(read_ns(&varied)? / read_ns(&SKYLAKE)?)
    };
    let (alone, together) = (slower(AccessPattern::CHASE)?, slower(AccessPattern::RANDOM)?);
    assert!((alone - 1.0).abs() < 0.02 && together > 1.2, "{alone}, {together}");
    Ok(())
}

#[test]
fn slow_programs_gain_less() -> TestResult {
    let gain = |pace| -> TestResult<f64> {
        let new = |size| {
            Ok(PatternRun::new(&SKYLAKE, AccessPattern::ZIPF, GIB, size, 1)?
                .with_instruction_rate(pace))
        };
        Ok(HugePageGain::measure_runs(new, 200_000)?.gain_percent())
    };
    let (fast, slow) = (gain(4.0)?, gain(0.1)?);
    assert!(fast > slow && slow >= 0.0, "{fast}, {slow}");
    Ok(())
}

#[test]
fn nothing_is_gained_where_nothing_is_missed() -> TestResult {
    let truth = HugePageGain::measure(&SKYLAKE, AccessPattern::RANDOM, 2 * MIB, 50_000, 1)?;
    assert_eq!((truth.base.walks, ns_per_saved_walk(&truth)), (0, None));
    let gain = truth.gain_percent();
    assert!((0.0..30.0).contains(&gain), "hits in the second level: {gain}");
    Ok(())
}

#[test]
fn a_walk_costs_most_where_the_program_waits_for_it() -> TestResult {
    let mut before = [0.0; 3];
    for bytes in [64 * MIB, 512 * MIB] {
        let mut costs = [0.0; 3];
        let patterns = [AccessPattern::STRIDE_4K, AccessPattern::RANDOM, AccessPattern::CHASE];
        for (cost, pattern) in costs.iter_mut().zip(patterns) {
            let truth = HugePageGain::measure(&SKYLAKE, pattern, bytes, 1 << 17, 1)?;
            *cost = ns_per_saved_walk(&truth).unwrap_or_default();
        }
        let [streamed, independent, dependent] = costs;
        assert!(dependent > 2.0 * independent.max(streamed), "{costs:?}");
        assert!(dependent > before[2] && independent > before[1], "{costs:?}");
        before = costs;
    }
    Ok(())
}

#[test]
fn what_cant_be_simulated_is_refused() {
    let new = |processor: &ProcessorSpec, pattern, bytes| {
        PatternRun::new(processor, pattern, bytes, LeafSize::Base, 1).map(drop)
    };
    for bytes in [0, 4096, 2 * MIB + 4096, (1 << 40) + 2 * MIB] {
        let refused = new(&SKYLAKE, AccessPattern::RANDOM, bytes);
        assert_eq!(refused, Err(MmuError::Footprint { bytes }));
    }
    let lame = AccessPattern::Chase { instructions: 0 };
    let refused = new(&SKYLAKE, lame, 2 * MIB).map_err(|e| e.to_string());
    let sentence = "pattern: instructions must be 1 or more, not 0";
    assert_eq!(refused, Err(sentence.to_owned()));
    let odd = ProcessorSpec { l1_tlb: L1TlbSpec::Shared(SetShape::new(7, 2)), ..SKYLAKE };
    let refused = new(&odd, AccessPattern::RANDOM, 2 * MIB).map_err(|e| e.to_string());
    let sentence = "processor skylake: the first-level TLB must be a power of two of whole sets";
    assert_eq!(refused, Err(sentence.to_owned()));
}

/// Walks per access of random reads over 256 MiB, in groups or not, in a guest or not.
fn walks(
    processor: &ProcessorSpec,
    size: LeafSize,
    in_groups: bool,
    backed_by: Option<LeafSize>,
) -> TestResult<f64> {
    let mut run = PatternRun::new(processor, AccessPattern::RANDOM, GIB / 4, size, 1)?;
    if let Some(pages) = backed_by {
        run = run.in_guest(processor, pages);
    }
    if in_groups {
        run = run.in_largest_tlb_groups(processor);
    }
    run.run_accesses(100_000);
    let counters = run.run_and_count_accesses(100_000);
    Ok(counters.walks as f64 / counters.accesses as f64)
}

#[test]
fn groups_reach_as_far_as_they_are_large() -> TestResult {
    // 65,536 pages: misses of the second level are walks.
    for (processor, in_groups) in [
        (NEOVERSE_V2, 1.0 - 2048.0 * 16.0 / 65_536.0),
        (ZEN_4, 1.0 - 3072.0 * 4.0 / 65_536.0),
        (SKYLAKE, 1.0 - 1536.0 / 65_536.0),
    ] {
        let close = |a: f64, b: f64| (a - b).abs() < 0.02;
        let base = walks(&processor, LeafSize::Base, false, None)?;
        let grouped = walks(&processor, LeafSize::Base, true, None)?;
        let what = format!("{}: {base}, {grouped}", processor.name);
        assert!(base > 0.9 && close(grouped, in_groups), "{what}");
        // A host with base pages removes the whole gain, one with huge pages none of it.
        let hosts = [LeafSize::Base, LeafSize::Huge].map(Some);
        let [small, large] = hosts.map(|host| walks(&processor, LeafSize::Base, true, host));
        assert_eq!((small?, large?), (base, grouped), "{what}");
    }
    Ok(())
}

#[test]
fn where_a_processor_knows_no_groups_nothing_changes() -> TestResult {
    for size in [LeafSize::Base, LeafSize::Huge] {
        let count = |in_groups| -> TestResult<CoreCounters> {
            let run = PatternRun::new(&SKYLAKE, AccessPattern::ZIPF, GIB, size, 1)?;
            let run = match in_groups {
                true => run.in_largest_tlb_groups(&SKYLAKE),
                false => run,
            };
            Ok({ run }.run_and_count_accesses(100_000))
        };
        assert_eq!(count(true)?, count(false)?);
    }
    Ok(())
}
