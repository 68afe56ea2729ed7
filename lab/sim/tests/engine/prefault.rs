//! Memory prefaulted by the predictor of the live manager.

use crate::common::{program, run, second_phase_s, small};
use hawkeye_sim::simulate::{SimulationResult, SimulationSetup};
use hawkeye_sim::workloads::WorkloadSpec;

const MIB: u64 = 1 << 20;

/// Once prefaulting is allowed, fills `pages` of each region of 1 GiB, one every `page_ns` ns.
fn filling(pages: u16, page_ns: f64) -> WorkloadSpec {
    let fill = format!(
        r#"{{ kind = "fill", area = "data", pages_per_region = {pages}, page_ns = {page_ns} }}"#
    );
    program(
        r#"{ name = "data", size = "1GiB" }"#,
        &format!(r#"{{ kind = "wait", seconds = 2.0 }}, {fill}"#),
    )
}

fn setup(prefault: bool) -> SimulationSetup {
    SimulationSetup {
        memory_bytes: 2048 * MIB,
        prefault,
        // Nothing is zeroed in either case.
        zeroed_before: false,
        ..small()
    }
}

#[test]
fn a_program_that_goes_through_new_memory_waits_for_no_zeroing() {
    let workload = filling(512, 2000.0);
    let with = run("hawkeye", &workload, &setup(true));
    let without = run("linux", &workload, &setup(false));
    let filled = with.figures.filled_ahead_bytes;
    assert!((900 * MIB..=1024 * MIB).contains(&filled), "{filled}");
    // 512 regions, with a wait of 465 us for each saved; instead there are waits for cache misses.
    let fill_s = |done: &SimulationResult| second_phase_s(&done.figures.programs[0]);
    let saved = fill_s(&without) - fill_s(&with);
    assert!((0.15..0.25).contains(&saved), "{saved}");
    assert!(with.figures.filling_cpu_s > 0.2);
    assert_eq!(with.figures.zeroing_cpu_s, 0.0);
}

#[test]
fn scattered_first_touches_get_no_prefault() {
    let done = run("hawkeye", &filling(8, 2000.0), &setup(true));
    let filled = done.figures.filled_ahead_bytes;
    assert!(filled <= 64 * MIB, "{filled}");
}

#[test]
fn nothing_is_filled_where_nobody_asked_or_every_core_is_busy() {
    let workload = filling(512, 2000.0);
    for (system, setup) in [
        ("hawkeye", setup(false)),
        ("hawkeye-g", setup(true)),
        ("hawkeye", SimulationSetup { cores: 1, ..setup(true) }),
    ] {
        let done = run(system, &workload, &setup);
        assert_eq!(done.figures.filled_ahead_bytes, 0, "{system}");
    }
}

#[test]
fn what_is_filled_stays_under_the_watermark_and_is_the_same_every_time() {
    let tight = SimulationSetup { memory_bytes: 1100 * MIB, ..setup(true) };
    let workload = filling(512, 2000.0);
    let done = run("hawkeye", &workload, &tight);
    assert!(done.figures.filled_ahead_bytes < 940 * MIB);
    assert_eq!(done, run("hawkeye", &workload, &tight));
}
