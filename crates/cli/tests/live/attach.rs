//! `hawkeye attach`.

use crate::common::{
    DEADLINE, huge_bytes, kernel_backend, machine, machine_at_speed, memory, or_skip, until,
    workload, workload_without_thp,
};
use hawkeye_bench::live::manage_process_until;
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_manager::{Journal, Settings};
use hawkeye_policy::CpuBudget;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadRequest;
use std::time::{Duration, Instant};

#[test]
fn hot_memory_of_a_running_process_becomes_huge_and_stays_huge() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let (mut program, pid) = workload("hot-spot --mib 256 --hot-mib 64 --quiet --seconds 600");
    let options = "--window 0.02 --period 2 --cpu 100 --max-promotions 32";
    let attached = machine.attach(options, pid);
    let hot = until(DEADLINE, || huge_bytes(pid) >= 64 << 20);
    let summary = attached.interrupt();
    assert!(hot, "{} bytes are huge: {summary}", huge_bytes(pid));
    assert_eq!(summary["promoted"], 32);
    assert!(summary["exit_status"].is_null());
    assert_eq!(huge_bytes(pid), 64 << 20, "huge memory stays huge");
    let _ = program.send_request(WorkloadRequest::Quit);
}

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
    let managed = manage_process_until(kernel_backend(), pid, "hawkeye", settings, DEADLINE, whole);
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
            (at.independent_ns, at.dependent_ns, at.alone_ns) = (0.1, 0.1, 0.1);
        }
        for at in &mut costs.by_distance {
            at.walk_ns = 0.1;
        }
        bits.walk_costs = Some(costs.into());
    }
    // If there were anything to gain, the next window would open three window lengths after the
    // first one.
    let mut first = None;
    let journal =
        manage_process_until(means, pid, "hawkeye", rare_sampling(), DEADLINE, |journal| {
            let sampled = journal.totals().samples >= 1;
            let since = *first.get_or_insert_with(Instant::now);
            if !sampled {
                first = None;
            }
            sampled && since.elapsed() > Duration::from_secs(4)
        });
    let totals = journal.expect("the process can be managed").journal.totals().clone();
    assert_eq!((totals.samples, totals.promoted), (1, 0), "{totals:?}");
    let _ = program.send_request(WorkloadRequest::Quit);
}

#[test]
fn attach_ends_when_the_process_ends() {
    let machine = or_skip!(machine(this_test!()));
    let (program, pid) = workload("exit-after --ms 2500");
    let mut attached = machine.attach("", pid);
    // The process is not gone before its parent has waited for it.
    assert!(program.close_input_and_wait().is_ok_and(|status| status.success()));
    let summary = attached.finish();
    assert_eq!(summary["subject"], format!("process {pid}"));
}

#[test]
fn a_process_with_huge_pages_disabled_is_left_alone_and_noted() {
    let machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload_without_thp("burner --mib 64 --pages base");
    let (_other, other) = workload("burner --mib 64 --pages base");
    let options = "--policy linux --rate 1000 --period 1 --window 0.1 --cpu 100";
    let attached = machine.attach_all(options, &[pid, other]);
    let promoted = until(DEADLINE, || huge_bytes(other) == 64 << 20);
    let summary = attached.interrupt();
    assert!(promoted, "all of the other process is promoted: {summary}");
    // All of these are in the other process.
    assert_eq!(summary["promoted"], 32);
    let errors = summary["errors"].as_object();
    assert!(errors.is_some_and(serde_json::Map::is_empty), "{summary}");
    let notes = summary["notes"].to_string();
    assert!(notes.contains("PR_SET_THP_DISABLE"), "{summary}");
    assert_eq!(memory(&mut program).1, 0);
}
