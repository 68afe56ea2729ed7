//! Programs that share cores or memory of which there is too little.

use super::common::{parse, ran, run, small};
use super::support::{process, workload};
use hawkeye_sim::engine::{ProgramFigures, ProgramOutcome};
use hawkeye_sim::simulate::SimulationSetup;

/// A program that works for `ideal_s` by itself, with further keys.
fn program(name: &str, keys: &str, ideal_s: f64) -> String {
    let phases = format!(
        r#"{{ kind = "fill", area = "data", page_ns = 0.0 }},
           {{ kind = "access", ideal_s = {ideal_s}, stream = [{{ area = "data", pattern = "random", cycles = 60.0 }}] }}"#
    );
    process(name, keys, r#"{ name = "data", size = "64MiB" }"#, &phases)
}

fn on(cores: u32, programs: &[String]) -> Vec<ProgramFigures> {
    let setup = SimulationSetup { cores, ..small() };
    let workload = parse(&workload(programs));
    run("linux", &workload, &setup).figures.programs
}

fn close(seconds: f64, expected: f64) -> bool {
    (seconds / expected - 1.0).abs() < 0.02
}

#[test]
fn weights_share_a_core() {
    let alone = on(1, &[program("alone", "", 30.0)])[0].wall_s;
    let three = "cpu_weight = 300";
    let both = on(1, &[program("a", three, 30.0), program("b", "", 30.0)]);
    // The first has three quarters of the core until it ends; then the other has all of it.
    assert!(close(both[0].wall_s, alone * 4.0 / 3.0), "{both:?}");
    assert!(close(both[1].wall_s, alone * 2.0), "{both:?}");
}

#[test]
fn threads_are_as_many_times_as_fast_where_there_are_cores() {
    let one = on(4, &[program("one", "", 40.0)])[0].clone();
    let four = on(4, &[program("four", "threads = 4", 40.0)])[0].clone();
    assert!(close(one.wall_s / four.wall_s, 4.0), "{one:?} {four:?}");
    // Rounding may lose part of the last accesses.
    assert!((one.accesses - four.accesses).abs() < 1.0);
    assert!((one.overhead_percent - four.overhead_percent).abs() < 0.5);
    let too_many = on(2, &[program("four", "threads = 4", 40.0)])[0].clone();
    assert!(close(one.wall_s / too_many.wall_s, 2.0), "{too_many:?}");
}

/// A program that sleeps needs no core, and does not sleep longer without one.
#[test]
fn waiting_takes_as_long_on_a_full_machine() {
    let area = r#"{ name = "data", size = "2MiB" }"#;
    let sleeper = process("sleeper", "", area, r#"{ kind = "wait", seconds = 20.0 }"#);
    let [a, b] = ["a", "b"].map(|name| program(name, "", 20.0));
    let all = on(1, &[sleeper, a, b]);
    assert!(close(all[0].wall_s, 20.0), "{all:?}");
}

#[test]
fn threads_of_a_guest_have_its_cores() {
    let inside = |cores| {
        let workload = parse(&workload(&[program("four", "threads = 4", 80.0)]));
        let hosted = workload.in_guest("256MiB".parse().unwrap(), cores);
        let setup = SimulationSetup {
            memory_bytes: 1 << 30,
            ..small()
        };
        let figures = run("linux", &hosted, &setup).figures;
        figures.guests[0].inside.programs[0].wall_s
    };
    assert!(close(inside(2) / inside(4), 2.0));
}

/// A small Redis: filled, most of it deleted, filled again.
const AREAS: &str = r#"{ name = "first", size = "200MiB" }, { name = "second", size = "120MiB" }"#;
const REFILLED: &str = r#"
    { kind = "fill", area = "first", page_ns = 9000.0 },
    { kind = "free", area = "first", share = 0.8 },
    { kind = "wait", seconds = 40.0 },
    { kind = "fill", area = "second", page_ns = 20000.0 }
"#;

#[test]
fn recovery_saves_who_runs_out_of_memory_under_huge_pages() {
    let setup = SimulationSetup {
        memory_bytes: 256 << 20,
        rate: hawkeye_policy::Rate::per_second(20.0).ok(),
        ..small()
    };
    let workload = crate::common::program(AREAS, REFILLED);
    let linux = ran("linux", &workload, &setup);
    assert_eq!(linux.outcome, ProgramOutcome::Killed);
    for system in ["linux-4k", "hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let done = ran(system, &workload, &setup);
        assert_eq!(done.outcome, ProgramOutcome::Done, "{system}");
    }
}

#[test]
fn the_largest_is_killed() {
    let filling = |name, mib: u32, start_s: f64| {
        let area = format!(r#"{{ name = "data", size = "{mib}MiB" }}"#);
        let phases = r#"{ kind = "fill", area = "data", page_ns = 100.0 },
            { kind = "wait", seconds = 5.0 }"#;
        process(name, &format!("start_s = {start_s:?}"), &area, phases)
    };
    let both = [filling("large", 150, 0.0), filling("small", 80, 1.0)];
    let setup = SimulationSetup {
        memory_bytes: 200 << 20,
        ..small()
    };
    let done = run("linux-4k", &parse(&workload(&both)), &setup);
    let outcomes: Vec<ProgramOutcome> = done.figures.programs.iter().map(|p| p.outcome).collect();
    assert_eq!(outcomes, [ProgramOutcome::Killed, ProgramOutcome::Done]);
}
