//! Programs on fewer cores than they have threads.

use crate::common::{parse, run, small};
use hawkeye_sim::engine::ProgramFigures;
use hawkeye_sim::simulate::Setup;
use hawkeye_sim::workloads::Workload;

/// A program that works for `ideal_s` by itself, with further keys.
fn program(name: &str, keys: &str, ideal_s: f64) -> String {
    format!(
        r#"
        [[process]]
        name = "{name}"
        {keys}
        area = [{{ name = "data", size = "64MiB" }}]
        phase = [
            {{ kind = "fill", area = "data", page_ns = 0.0 }},
            {{ kind = "access", ideal_s = {ideal_s}, stream = [{{ area = "data", pattern = "random", cycles = 60.0 }}] }},
        ]
        "#
    )
}

fn workload(programs: &[String]) -> Workload {
    let programs = programs.concat();
    parse(&format!("name = \"test\"\nsource = \"a test\"\n{programs}"))
}

fn on(cores: u32, programs: &[String]) -> Vec<ProgramFigures> {
    let setup = Setup { cores, ..small() };
    run("linux", &workload(programs), &setup).figures.programs
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
    let sleeper = r#"
        [[process]]
        name = "sleeper"
        area = [{ name = "data", size = "2MiB" }]
        phase = [{ kind = "wait", seconds = 20.0 }]
        "#;
    let [a, b] = ["a", "b"].map(|name| program(name, "", 20.0));
    let all = on(1, &[sleeper.to_owned(), a, b]);
    assert!(close(all[0].wall_s, 20.0), "{all:?}");
}

#[test]
fn threads_of_a_guest_have_its_cores() {
    let inside = |cores| {
        let workload = workload(&[program("four", "threads = 4", 80.0)]);
        let hosted = workload.in_guest("256MiB".parse().unwrap(), cores);
        let setup = Setup {
            memory_bytes: 1 << 30,
            ..small()
        };
        let figures = run("linux", &hosted, &setup).figures;
        figures.guests[0].inside.programs[0].wall_s
    };
    assert!(close(inside(2) / inside(4), 2.0));
}

#[test]
fn values_out_of_range_are_told() {
    for (keys, told) in [
        ("threads = 0", "threads"),
        ("threads = 2000", "1 to 1024"),
        ("cpu_weight = 0", "cpu_weight"),
        ("cpu_weight = 20000", "1 to 10000"),
    ] {
        let text = format!(
            "name = \"test\"\nsource = \"a test\"\n{}",
            program("a", keys, 1.0)
        );
        let refused = Workload::parse("test", &text).map_err(|e| e.to_string());
        assert!(
            refused.as_ref().is_err_and(|e| e.contains(told)),
            "{refused:?}"
        );
    }
}
