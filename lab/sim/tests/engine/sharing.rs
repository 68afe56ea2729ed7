//! Programs on fewer cores than they have threads.

use crate::common::{parse, run, small};
use crate::workload_toml::{process, workload};
use hawkeye_sim::engine::ProgramFigures;
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
        let setup = SimulationSetup { memory_bytes: 1 << 30, ..small() };
        let figures = run("linux", &hosted, &setup).figures;
        figures.guests[0].inside.programs[0].wall_s
    };
    assert!(close(inside(2) / inside(4), 2.0));
}
