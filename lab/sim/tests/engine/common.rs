//! Small machines and workloads.

use crate::support::{one, reader};
use hawkeye_policy::Rate;
use hawkeye_sim::simulate::{Setup, Simulated, simulate};
use hawkeye_sim::systems;
use hawkeye_sim::workloads::Workload;

/// A machine of 512 MiB.
pub fn small() -> Setup {
    Setup {
        memory_bytes: 512 << 20,
        cores: 4,
        sample: 4_000,
        ..Setup::default()
    }
}

/// The same without a free huge page at the start, and with `rate` promotions per second.
pub fn fragmented(rate: f64) -> Setup {
    Setup {
        fragmented: 1.0,
        rate: Rate::per_second(rate).ok(),
        ..small()
    }
}

pub fn parse(text: &str) -> Workload {
    Workload::parse("test", text).unwrap()
}

pub fn run(system: &str, workload: &Workload, setup: &Setup) -> Simulated {
    let system = systems::by_name(system).unwrap();
    simulate(&system, workload, setup).unwrap()
}

/// One program with these areas and phases.
pub fn program(areas: &str, phases: &str) -> Workload {
    parse(&one(areas, phases))
}

/// One program with 128 MiB, and its accesses.
pub fn accessing(ideal_s: f64, streams: &str) -> Workload {
    parse(&reader(128, "", ideal_s, streams))
}

pub const RANDOM: &str = r#"stream = [{ area = "heap", pattern = "random", cycles = 60.0 }]"#;
pub const SEQUENTIAL: &str = r#"stream = [{ area = "heap", pattern = { stride = 8 }, cycles = 6.0, waited_percent = 10.0 }]"#;
/// All accesses except one of 1,000 go to the last quarter. The others touch few of the other pages
/// in a window.
pub const HOT_AT_THE_TOP: &str = r#"stream = [
    { area = "heap", part = [0.75, 1.0], pattern = "random", weight = 999.0, cycles = 150.0 },
    { area = "heap", part = [0.0, 0.75], pattern = "random", weight = 1.0, cycles = 150.0 },
]"#;
