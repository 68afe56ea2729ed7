//! Memory runs short.

use crate::common::{parse, program, run, small};
use hawkeye_sim::engine::Outcome;
use hawkeye_sim::simulate::Setup;

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
    let setup = Setup {
        memory_bytes: 256 << 20,
        rate: hawkeye_policy::Rate::per_second(20.0).ok(),
        ..small()
    };
    let workload = program(AREAS, REFILLED);
    let linux = run("linux", &workload, &setup);
    assert_eq!(linux.figures.programs[0].outcome, Outcome::Killed);
    let base = run("linux-4k", &workload, &setup);
    assert_eq!(base.figures.programs[0].outcome, Outcome::Done);
    for system in ["hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let done = run(system, &workload, &setup);
        assert_eq!(done.figures.programs[0].outcome, Outcome::Done, "{system}");
    }
}

#[test]
fn the_largest_is_killed() {
    let process = |name: &str, mib: u32, start_s: f64| {
        format!(
            r#"
            [[process]]
            name = "{name}"
            start_s = {start_s}
            area = [{{ name = "data", size = "{mib}MiB" }}]
            phase = [
                {{ kind = "fill", area = "data", page_ns = 100.0 }},
                {{ kind = "wait", seconds = 5.0 }},
            ]
            "#
        )
    };
    let (large, small_one) = (process("large", 150, 0.0), process("small", 80, 1.0));
    let text = format!("name = \"two\"\nsource = \"a test\"\n{large}{small_one}");
    let setup = Setup {
        memory_bytes: 200 << 20,
        ..small()
    };
    let done = run("linux-4k", &parse(&text), &setup);
    let outcomes: Vec<Outcome> = done.figures.programs.iter().map(|p| p.outcome).collect();
    assert_eq!(outcomes, [Outcome::Killed, Outcome::Done]);
}
