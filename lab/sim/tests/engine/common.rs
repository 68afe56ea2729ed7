//! Small machines and workloads.

use crate::workload_toml::{one, reader};
use hawkeye_manager::{Machine, MachineError, Sampling};
use hawkeye_policy::{ProcessId, ProcessSample, RatePerSecond};
use hawkeye_sim::engine::{Engine, ProgramFigures};
use hawkeye_sim::simulate::{SimulationResult, SimulationSetup, simulate};
use hawkeye_sim::systems;
use hawkeye_sim::workloads::WorkloadSpec;
use std::time::Duration;

pub fn small() -> SimulationSetup {
    SimulationSetup {
        memory_bytes: 512 << 20,
        cores: 4,
        sample: 4_000,
        ..SimulationSetup::default()
    }
}

/// The same without a free huge page at the start, and with `rate` promotions per second.
pub fn fragmented(rate: f64) -> SimulationSetup {
    SimulationSetup { fragmented: 1.0, rate: RatePerSecond::new(rate).ok(), ..small() }
}

pub fn parse(text: &str) -> WorkloadSpec {
    WorkloadSpec::parse("test", text).unwrap()
}

pub fn run(system: &str, workload: &WorkloadSpec, setup: &SimulationSetup) -> SimulationResult {
    let system = systems::by_name(system).unwrap();
    simulate(&system, workload, setup).unwrap()
}

pub fn ran(system: &str, workload: &WorkloadSpec, setup: &SimulationSetup) -> ProgramFigures {
    run(system, workload, setup).figures.programs.swap_remove(0)
}

pub fn second_phase_s(program: &ProgramFigures) -> f64 {
    program.phases[1].end_s - program.phases[1].start_s
}

pub fn engine(system: &str, workload: &WorkloadSpec, setup: &SimulationSetup) -> Engine {
    let system = systems::by_name(system).unwrap();
    Engine::new(setup, &system, workload).unwrap()
}

pub fn only(engine: &mut Engine) -> ProcessId {
    let processes = engine.admit_and_list_processes(Duration::from_secs(3600));
    processes.into_done().expect("all have joined")[0]
}

pub fn sample(machine: &mut Engine, process: ProcessId) -> Result<ProcessSample, MachineError> {
    let sample = machine.sample(process, Duration::MAX)?;
    Ok(sample.into_done().expect("read at once"))
}

/// One program with these areas and phases.
pub fn program(areas: &str, phases: &str) -> WorkloadSpec {
    parse(&one(areas, phases))
}

/// One program with 128 MiB, and its accesses.
pub fn accessing(ideal_s: f64, streams: &str) -> WorkloadSpec {
    parse(&reader(128, "", ideal_s, streams))
}

pub const RANDOM: &str = r#"stream = [{ area = "heap", pattern = "random", cycles = 60.0 }]"#;
pub const SEQUENTIAL: &str = r#"stream = [{ area = "heap", pattern = { stride = 8 }, cycles = 6.0, waited_percent = 10.0 }]"#;
/// 1 access in 1,000 is outside the last quarter: a window sees few other pages.
pub const HOT_AT_THE_TOP: &str = r#"stream = [
    { area = "heap", part = [0.75, 1.0], pattern = "random", weight = 999.0, cycles = 150.0 },
    { area = "heap", part = [0.0, 0.75], pattern = "random", weight = 1.0, cycles = 150.0 },
]"#;
