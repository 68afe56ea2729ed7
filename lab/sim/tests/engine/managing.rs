//! What a manager sees and promotes, and what translation costs programs.

use super::common::{
    HOT_AT_THE_TOP, RANDOM, SEQUENTIAL, accessing, engine, fragmented, only, ran, run, sample,
    second_phase_s, small,
};
use hawkeye_manager::{LoopWakeReason, Machine, Sampling};
use hawkeye_policy::{ProcessSample, SampleKinds};
use hawkeye_sim::engine::ProgramFigures;
use hawkeye_sim::simulate::{SimulationSetup, build_manager};
use hawkeye_sim::systems;
use hawkeye_sim::workloads::WorkloadSpec;
use std::time::Duration;

fn first_promoted(
    system: &str,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
    count: u64,
) -> Vec<usize> {
    let system = systems::by_name(system).unwrap();
    let mut manager = build_manager(&system, workload, setup).unwrap();
    while manager.journal().totals().promoted < count {
        assert_eq!(
            manager.run_due_work(),
            LoopWakeReason::Deadline,
            "it ended too soon"
        );
    }
    let engine = manager.machine();
    assert!(engine.now().as_secs() < 120);
    let space = engine.kernel().spaces().next();
    let samples = space.map(|space| engine.kernel().samples(space).unwrap_or_default());
    let regions = samples.into_iter().flatten().enumerate();
    regions
        .filter(|(_, s)| s.is_huge())
        .map(|(n, _)| n)
        .collect()
}

#[test]
fn hawkeye_promotes_the_hot_part_first() {
    let workload = accessing(100.0, HOT_AT_THE_TOP);
    for system in ["hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let huge = first_promoted(system, &workload, &fragmented(4.0), 8);
        assert!(
            huge.iter().all(|number| *number >= 48),
            "{system}: {huge:?}"
        );
    }
}

#[test]
fn khugepaged_goes_by_address() {
    let workload = accessing(100.0, HOT_AT_THE_TOP);
    let huge = first_promoted("linux", &workload, &fragmented(4.0), 8);
    assert!(huge.iter().copied().eq(0..huge.len()), "{huge:?}");
}

#[test]
fn promotions_are_paid_and_pay_off() {
    let workload = accessing(40.0, RANDOM);
    let none = run("linux-4k", &workload, &fragmented(8.0));
    for system in ["linux", "ingens-90", "hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let done = run(system, &workload, &fragmented(8.0));
        // The last ones are not worth a promotion: by then overhead is under 2 %.
        assert!((58..=64).contains(&done.promoted), "{system}: {done:?}");
        assert!(done.figures.manager_cpu_s > 0.01, "{system}");
        assert!(done.figures.wall_s < none.figures.wall_s, "{system}");
    }
}

#[test]
fn freebsd_promotes_what_is_full_by_itself() {
    let workload = accessing(1.0, RANDOM);
    let done = run("freebsd", &workload, &crate::common::small());
    assert_eq!(
        (done.promoted, done.figures.programs[0].huge_peak_bytes),
        (0, 128 << 20)
    );
}

/// 20,000 cycles of own work for each access: 130,000 accesses a second, to 32,768 pages.
const SLOW: &str = r#"stream = [{ area = "heap", pattern = "random", cycles = 20000.0 }]"#;

fn window(of: u32, window: Duration) -> ProcessSample {
    let setup = SimulationSetup {
        sample: of,
        ..small()
    };
    let mut engine = engine("linux-4k", &accessing(100.0, SLOW), &setup);
    let _ = engine.wait_until(Duration::from_secs(2));
    let process = only(&mut engine);
    let needs = SampleKinds::COVERAGE.with(SampleKinds::OVERHEAD);
    engine.start_window(process, needs, Duration::MAX).unwrap();
    let until = engine.now() + window;
    let _ = engine.wait_until(until);
    sample(&mut engine, process).unwrap()
}

#[test]
fn coverage_is_that_of_all_accesses_of_the_window() {
    let pages = 32_768.0;
    for sample in [64, 1_000, 100_000] {
        for tenths in [1, 3, 20] {
            let lasted = f64::from(tenths) / 10.0;
            let seen = window(sample, Duration::from_millis(tenths as u64 * 100));
            let accessed: u32 = seen.regions.iter().map(|r| u32::from(r.accessed)).sum();
            // 2.6 GHz; walks add at most 1 %.
            let expected = pages * -(-lasted * 130_000.0 / pages).exp_m1();
            let ratio = f64::from(accessed) / expected;
            assert!(
                (0.97..1.02).contains(&ratio),
                "{sample}, {lasted} s: {ratio}"
            );
        }
    }
}

#[test]
fn overhead_and_walks_are_the_counters() {
    let seen = window(20_000, Duration::from_secs(1));
    let overhead = seen.overhead.map_or(0.0, |overhead| overhead.percent);
    let walks: u64 = seen.regions.iter().map(|r| u64::from(r.walks_per_s)).sum();
    // Nearly each of 130,000 accesses a second causes a walk.
    assert!((110_000..130_000).contains(&walks), "{walks}");
    assert!((0.05..1.0).contains(&overhead), "{overhead}");
    assert!((0.99..=1.01).contains(&seen.cpu_cores));
}

fn both(streams: &str) -> [ProgramFigures; 2] {
    let workload = accessing(2.0, streams);
    ["linux-4k", "linux"].map(|system| ran(system, &workload, &small()))
}

#[test]
fn random_accesses_gain_by_huge_pages_what_counters_say() {
    let [base, huge] = both(RANDOM);
    assert!(base.overhead_percent > 10.0, "{}", base.overhead_percent);
    assert!(huge.overhead_percent < 1.0, "{}", huge.overhead_percent);
    // Outside walks: own work, and hits in the second TLB level, at most 7 of 60 cycles.
    for ran in [base, huge] {
        let own = second_phase_s(&ran) * (1.0 - ran.overhead_percent / 100.0);
        assert!((2.0..2.25).contains(&own), "{own}");
    }
}

#[test]
fn sequential_accesses_gain_nothing() {
    let [base, huge] = both(SEQUENTIAL);
    let gain = second_phase_s(&base) / second_phase_s(&huge);
    assert!((0.99..1.02).contains(&gain), "{gain}");
}

#[test]
fn zeroing_past_the_caches_leaves_a_program_alone_and_through_them_does_not() {
    let workload = hawkeye_sim::workloads::by_name("omnetpp").unwrap();
    let ran_s = |system, non_temporal| {
        let setup = hawkeye_sim::simulate::SimulationSetup {
            memory_bytes: 80 << 30,
            zeroed_before: false,
            tuning: hawkeye_sim::SystemOverrides {
                zeroed_pages_per_s: Some(250_000),
                zeroing_non_temporal: Some(non_temporal),
                ..hawkeye_sim::SystemOverrides::default()
            },
            ..small()
        };
        second_phase_s(&ran(system, &workload, &setup))
    };
    let alone = ran_s("linux-4k", false);
    let [through, past] = [false, true].map(|past| ran_s("hawkeye-4k", past) / alone);
    assert!(past > 1.0 && past < 1.1, "{past}");
    assert!(through > 1.15 && through > past + 0.1, "{through}");
}
