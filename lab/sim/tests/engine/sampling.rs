//! Samples do not depend on the size of the engine's own sample.

use crate::common::{accessing, engine, only, sample, small};
use hawkeye_manager::{Machine, Sampling};
use hawkeye_policy::{ProcessSample, SampleKinds};
use hawkeye_sim::simulate::SimulationSetup;
use std::time::Duration;

/// 20,000 cycles of own work for each access: 130,000 accesses a second, to 32,768 pages.
const SLOW: &str = r#"stream = [{ area = "heap", pattern = "random", cycles = 20000.0 }]"#;

fn window(of: u32, window: Duration) -> ProcessSample {
    let setup = SimulationSetup { sample: of, ..small() };
    let mut engine = engine("linux-4k", &accessing(100.0, SLOW), &setup);
    let _ = engine.wait_until(Duration::from_secs(2));
    let process = only(&mut engine);
    let needs = SampleKinds::COVERAGE.union(SampleKinds::OVERHEAD);
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
            assert!((0.97..1.02).contains(&ratio), "{sample}, {lasted} s: {ratio}");
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
