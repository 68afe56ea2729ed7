//! How often a large process is sampled.

use hawkeye_bench::live::manage_processes_until;
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_live_test_support::manager_in_test::kernel_backend;
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::machine_at_speed;
use hawkeye_live_test_support::time_limits::DEADLINE;
use hawkeye_live_test_support::workloads::workload;
use hawkeye_manager::{Journal, Settings};
use hawkeye_policy::CpuBudget;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadRequest;
use std::time::{Duration, Instant};

/// The period is much longer than the deadline of the tests.
fn rare_sampling() -> Settings {
    Settings {
        period: Duration::from_secs(600),
        window: Duration::from_millis(500),
        cpu: CpuBudget::new(100.0).expect("in range"),
        ..Settings::default()
    }
}

#[test]
fn a_large_process_is_sampled_completely_long_before_the_period_ends() {
    let _machine = or_skip!(machine_at_speed(this_test!()));
    // One window shows the page walks of 2.5 or 2.7 GiB at most.
    let (mut program, pid) = workload("random --mib 3584 --quiet --seconds 600");
    let mut settings = rare_sampling();
    settings.max_promotions = Some(1);
    let whole = |journal: &Journal| journal.totals().samples >= 2 && journal.totals().promoted == 1;
    let managed =
        manage_processes_until(kernel_backend(), &[pid], "hawkeye", settings, DEADLINE, whole);
    let journal = managed.expect("the process can be managed").journal;
    let events: Vec<String> = journal.entries().map(|entry| entry.event.to_string()).collect();
    assert!(whole(&journal), "{:?}, {events:?}", journal.totals());
    let _ = program.send_request(WorkloadRequest::Quit);
}

#[test]
fn a_process_without_worthwhile_promotions_is_sampled_once_a_period() {
    let _machine = or_skip!(machine_at_speed(this_test!()));
    let (mut program, pid) = workload("random --mib 3584 --quiet --seconds 600");
    let mut means = kernel_backend();
    if let SamplerBackend::AccessBits(bits) = &mut means.sampler {
        let mut given = bits.walk_costs.take().expect("the costs are given");
        let mut costs = given.measured_or_typical().clone();
        for at in &mut costs.by_footprint {
            (at.independent_ns, at.dependent_ns) = (0.1, 0.1);
        }
        for at in &mut costs.by_distance {
            at.walk_ns = 0.1;
        }
        bits.walk_costs = Some(costs.into());
    }
    // If there were anything to gain, a window would open every three window lengths: four in this
    // time.
    const WATCHED: Duration = Duration::from_secs(6);
    let mut first = None;
    let journal =
        manage_processes_until(means, &[pid], "hawkeye", rare_sampling(), DEADLINE, |journal| {
            let sampled = journal.totals().samples >= 1;
            let since = *first.get_or_insert_with(Instant::now);
            if !sampled {
                first = None;
            }
            sampled && since.elapsed() > WATCHED
        });
    let totals = journal.expect("the process can be managed").journal.totals().clone();
    // Where the machine stands still between a clear and its answer, one estimate is too high, and
    // the next look corrects it.
    assert!((1..=2).contains(&totals.samples), "{totals:?}");
    assert_eq!(totals.promoted, 0, "{totals:?}");
    let _ = program.send_request(WorkloadRequest::Quit);
}
