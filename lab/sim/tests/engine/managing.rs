//! Which regions are promoted first.

use crate::common::{HOT_AT_THE_TOP, RANDOM, accessing, fragmented, run};
use hawkeye_manager::{LoopWakeReason, Machine};
use hawkeye_sim::simulate::{SimulationSetup, build_manager};
use hawkeye_sim::systems;
use hawkeye_sim::workloads::WorkloadSpec;

fn first_promoted(
    system: &str,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
    count: u64,
) -> Vec<usize> {
    let system = systems::by_name(system).unwrap();
    let mut manager = build_manager(&system, workload, setup).unwrap();
    while manager.journal().totals().promoted < count {
        assert_eq!(manager.run_due_work_and_wait(), LoopWakeReason::Deadline, "it ended too soon");
    }
    let engine = manager.machine();
    assert!(engine.now().as_secs() < 120);
    let space = engine.kernel().space_ids().next();
    let samples = space.map(|space| engine.kernel().list_region_samples(space).unwrap_or_default());
    let regions = samples.into_iter().flatten().enumerate();
    regions.filter(|(_, s)| s.is_huge()).map(|(n, _)| n).collect()
}

#[test]
fn hawkeye_promotes_the_hot_part_first() {
    let workload = accessing(100.0, HOT_AT_THE_TOP);
    for system in ["hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let huge = first_promoted(system, &workload, &fragmented(4.0), 8);
        assert!(huge.iter().all(|number| *number >= 48), "{system}: {huge:?}");
    }
}

#[test]
fn khugepaged_goes_by_address() {
    let workload = accessing(100.0, HOT_AT_THE_TOP);
    let huge = first_promoted("linux", &workload, &fragmented(4.0), 8);
    assert!(huge.iter().copied().eq(0..huge.len()), "{huge:?}");
}

#[test]
fn promotions_are_paid_and_pay_off() {
    let workload = accessing(40.0, RANDOM);
    let none = run("linux-4k", &workload, &fragmented(8.0));
    for system in ["linux", "ingens-90", "hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let done = run(system, &workload, &fragmented(8.0));
        // The last ones are not worth a promotion: by then overhead is under 2 %.
        assert!((58..=64).contains(&done.promoted), "{system}: {done:?}");
        assert!(done.figures.manager_cpu_s > 0.01, "{system}");
        assert!(done.figures.wall_s < none.figures.wall_s, "{system}");
    }
}

#[test]
fn freebsd_promotes_full_reservations_itself() {
    let workload = accessing(1.0, RANDOM);
    let done = run("freebsd", &workload, &crate::common::small());
    assert_eq!((done.promoted, done.figures.programs[0].huge_peak_bytes), (0, 128 << 20));
}
