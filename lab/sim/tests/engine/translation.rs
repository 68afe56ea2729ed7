//! Costs of translation for programs.

use crate::common::{RANDOM, SEQUENTIAL, accessing, parse, run, small};
use crate::support::reader;

#[test]
fn random_accesses_gain_by_huge_pages_what_counters_say() {
    let workload = accessing(2.0, RANDOM);
    let base = run("linux-4k", &workload, &small());
    let huge = run("linux", &workload, &small());
    let (base, huge) = (&base.figures.programs[0], &huge.figures.programs[0]);
    let access = |p: &hawkeye_sim::engine::ProgramFigures| p.phases[1].end_s - p.phases[1].start_s;
    let own =
        |p: &hawkeye_sim::engine::ProgramFigures| access(p) * (1.0 - p.overhead_percent / 100.0);
    assert!(base.overhead_percent > 10.0, "{}", base.overhead_percent);
    assert!(huge.overhead_percent < 1.0, "{}", huge.overhead_percent);
    // The time outside walks is the program's own work, and hits in the second level of the TLB: at
    // most 7 of 60 cycles.
    assert!((2.0..2.25).contains(&own(base)), "{}", own(base));
    assert!((2.0..2.25).contains(&own(huge)), "{}", own(huge));
}

#[test]
fn sequential_accesses_gain_nothing() {
    let workload = accessing(2.0, SEQUENTIAL);
    let base = run("linux-4k", &workload, &small());
    let huge = run("linux", &workload, &small());
    let access = |p: &hawkeye_sim::engine::ProgramFigures| p.phases[1].end_s - p.phases[1].start_s;
    let gain = access(&base.figures.programs[0]) / access(&huge.figures.programs[0]);
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
    let access_s = |system, non_temporal| {
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
        let done = run(system, &workload, &setup);
        let phase = &done.figures.programs[0].phases[1];
        phase.end_s - phase.start_s
    };
    let alone = access_s("linux-4k", false);
    let (through, past) = (
        access_s("hawkeye-4k", false) / alone,
        access_s("hawkeye-4k", true) / alone,
    );
    assert!(past > 1.0 && past < 1.1, "{past}");
    assert!(through > 1.15 && through > past + 0.1, "{through}");
}
