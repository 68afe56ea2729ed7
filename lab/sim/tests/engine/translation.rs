//! Costs of translation for programs.

use crate::common::{RANDOM, SEQUENTIAL, accessing, parse, run, small};
use crate::support::reader;
use hawkeye_sim::engine::ProgramFigures;

/// The program with these accesses under base pages and under huge pages.
fn both(streams: &str) -> [ProgramFigures; 2] {
    let workload = accessing(2.0, streams);
    let run = |system| run(system, &workload, &small()).figures.programs[0].clone();
    ["linux-4k", "linux"].map(run)
}

/// Time of its access phase.
fn access_s(program: &ProgramFigures) -> f64 {
    program.phases[1].end_s - program.phases[1].start_s
}

#[test]
fn random_accesses_gain_by_huge_pages_what_counters_say() {
    let [base, huge] = both(RANDOM);
    assert!(base.overhead_percent > 10.0, "{}", base.overhead_percent);
    assert!(huge.overhead_percent < 1.0, "{}", huge.overhead_percent);
    // The time outside walks is the program's own work, and hits in the second level of the TLB: at
    // most 7 of 60 cycles.
    for ran in [base, huge] {
        let own = access_s(&ran) * (1.0 - ran.overhead_percent / 100.0);
        assert!((2.0..2.25).contains(&own), "{own}");
    }
}

#[test]
fn sequential_accesses_gain_nothing() {
    let [base, huge] = both(SEQUENTIAL);
    let gain = access_s(&base) / access_s(&huge);
    assert!((0.99..1.02).contains(&gain), "{gain}");
}

#[test]
fn programs_share_the_cores() {
    let mut workload = parse(&reader(2, "", 1.0, RANDOM));
    workload.processes[0].count = 4;
    let on = |cores| {
        let setup = hawkeye_sim::simulate::Setup { cores, ..small() };
        run("linux", &workload, &setup).figures.wall_s
    };
    let (alone, shared) = (on(4), on(2));
    assert!((1.95..2.05).contains(&(shared / alone)), "{alone} {shared}");
}

#[test]
fn zeroing_past_the_caches_leaves_a_program_alone_and_through_them_does_not() {
    let workload = hawkeye_sim::workloads::by_name("omnetpp").unwrap();
    let ran_s = |system, non_temporal| {
        let setup = hawkeye_sim::simulate::Setup {
            memory_bytes: 80 << 30,
            zeroed_before: false,
            tuning: hawkeye_sim::Tuning {
                zeroed_pages_per_s: Some(250_000),
                zeroing_non_temporal: Some(non_temporal),
                ..hawkeye_sim::Tuning::default()
            },
            ..small()
        };
        access_s(&run(system, &workload, &setup).figures.programs[0])
    };
    let alone = ran_s("linux-4k", false);
    let [through, past] = [false, true].map(|past| ran_s("hawkeye-4k", past) / alone);
    assert!(past > 1.0 && past < 1.1, "{past}");
    assert!(through > 1.15 && through > past + 0.1, "{through}");
}
