//! Memory runs short.

use crate::common::{parse, program, ran, run, small};
use crate::workload_toml::{process, workload};
use hawkeye_sim::engine::ProgramOutcome;
use hawkeye_sim::simulate::SimulationSetup;

/// A small Redis: filled, most of it deleted, filled again.
const AREAS: &str = r#"{ name = "first", size = "200MiB" }, { name = "second", size = "120MiB" }"#;
const REFILLED: &str = r#"
    { kind = "fill", area = "first", page_ns = 9000.0 },
    { kind = "free", area = "first", share = 0.8 },
    { kind = "wait", seconds = 40.0 },
    { kind = "fill", area = "second", page_ns = 20000.0 }
"#;

#[test]
fn recovery_prevents_running_out_of_memory_under_huge_pages() {
    let setup = SimulationSetup {
        memory_bytes: 256 << 20,
        rate: hawkeye_policy::RatePerSecond::new(20.0).ok(),
        ..small()
    };
    let workload = program(AREAS, REFILLED);
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
    let setup = SimulationSetup { memory_bytes: 200 << 20, ..small() };
    let done = run("linux-4k", &parse(&workload(&both)), &setup);
    let outcomes: Vec<ProgramOutcome> = done.figures.programs.iter().map(|p| p.outcome).collect();
    assert_eq!(outcomes, [ProgramOutcome::Killed, ProgramOutcome::Done]);
}
