//! Many runs at once.

use crate::common::{HOT_AT_THE_TOP, accessing, fragmented};
use hawkeye_sim::simulate::{SimulationJob, SimulationResult, simulate_all};
use hawkeye_sim::systems::SYSTEMS;
use hawkeye_sim::workloads::WorkloadSpec;
use std::sync::atomic::{AtomicUsize, Ordering};

fn compare(workload: &WorkloadSpec, threads: usize, seed: u64) -> Vec<SimulationResult> {
    let setup = hawkeye_sim::simulate::SimulationSetup { seed, ..fragmented(2.0) };
    let jobs = SYSTEMS.map(|system| SimulationJob { system, workload, setup });
    let told = AtomicUsize::new(0);
    let done = simulate_all(&jobs, threads, &|_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(told.into_inner(), jobs.len());
    done.unwrap()
}

#[test]
fn the_same_seed_gives_the_same_on_any_number_of_threads() {
    let workload = accessing(10.0, HOT_AT_THE_TOP);
    let one = compare(&workload, 1, 1);
    for threads in [3, 8] {
        assert_eq!(one, compare(&workload, threads, 1));
    }
    assert_ne!(one, compare(&workload, 4, 2));
}

/// System, seconds, overhead in per cent, MiB under huge pages, faults, promotions.
const GOLDEN: &str = "
linux-4k         64.72  6.61   0 32768  0
linux            62.15  2.96 128 32768 64
linux-async      62.15  2.96 128 32768 64
linux-shmem      64.72  6.61   0 32768  0
linux-mthp-64kb  64.64  6.61   0  2048  0
linux-mthp       62.06  2.97 128   128 64
freebsd          64.72  6.61   0 32768  0
ingens           62.15  2.96 128 32768 64
ingens-90        62.15  2.96 128 32768 64
ingens-50        62.15  2.96 128 32768 64
hawkeye-4k       64.69  6.61   0 32768  0
hawkeye-g        60.52  0.58 128 32768 64
hawkeye-pmu      60.52  0.58 118 32768 59
emd              61.35  1.50  24 32768 12
guard            64.72  6.61   0 32768  0
hawkeye          61.31  1.44  24 32768 12
hawkeye-sizes    61.31  1.44  24 32768 12
unzeroed-4k      64.69  6.61   0 32768  0
unzeroed         60.01  0.00 128    64  0
";

/// A change that changes these figures must say in its note which ones, and why.
#[test]
fn comparison_equals_its_recorded_figures() {
    let workload = accessing(60.0, HOT_AT_THE_TOP);
    let lines = compare(&workload, 2, 1).into_iter().map(|run| {
        let program = &run.figures.programs[0];
        format!(
            "{:<15} {:>6.2} {:>5.2} {:>3} {:>5} {:>2}\n",
            run.system,
            program.wall_s,
            program.overhead_percent,
            program.huge_peak_bytes >> 20,
            program.faults,
            run.promoted
        )
    });
    let table: String = lines.collect();
    assert_eq!(table.trim(), GOLDEN.trim(), "\n{table}");
}
