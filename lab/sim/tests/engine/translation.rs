//! Costs of translation for programs.

use crate::common::{RANDOM, SEQUENTIAL, accessing, ran, second_phase_s, small};
use hawkeye_sim::engine::ProgramFigures;

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
