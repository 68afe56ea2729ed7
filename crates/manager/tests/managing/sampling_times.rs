//! When programs are sampled.

use hawkeye_manager::{Event, ExhaustedBudget, Settings};
use hawkeye_policy::SamplingDelayReason;
use hawkeye_test_support::builders::*;
use std::time::Duration;

fn sampling_times(manager: &ScriptedManager) -> Vec<Duration> {
    let entries = manager.journal().entries();
    let sampled = entries.filter(|entry| matches!(entry.event, Event::Sampled { .. }));
    sampled.map(|entry| entry.at).collect()
}

/// Manages a program in which only this share of accesses to base pages needs a walk.
fn looking(walk_share: f64, end: Duration) -> ScriptedManager {
    let machine = machine_running(16 * GIB, program_with_walk_share(64, walk_share));
    let settings = Settings { period: seconds(30.0), window: seconds(0.5), ..Settings::default() };
    run_manager_of(machine, "hawkeye", settings, end)
}

/// What is promoted pays for another look at once. Where that look finds nothing, the next one is a
/// period later.
#[test]
fn where_promotions_pay_for_the_next_look_it_is_not_put_off() {
    let manager = looking(1.0, seconds(60.0));
    let (looked, promoted) = (sampling_times(&manager), promotions(&manager));
    // A program that was there before is looked at at once.
    assert!(looked[0] <= seconds(0.7), "{looked:?}");
    let soon = looked.windows(2).map(|pair| {
        let between = pair[0]..pair[1];
        let found = promoted.iter().any(|(at, ..)| between.contains(at));
        assert_eq!(pair[1] - pair[0] < seconds(4.0), found, "{looked:?} {promoted:?}");
        found
    });
    let soon: Vec<bool> = soon.collect();
    assert!(soon.contains(&true) && soon.contains(&false), "{looked:?}");
}

/// No page walk is spared, so nothing is promoted.
#[test]
fn where_nothing_is_found_the_period_stands() {
    let looked = sampling_times(&looking(0.0, seconds(25.0)));
    assert_eq!(looked.len(), 1, "{looked:?}");
}

/// A program that fills 1 GiB in half a second, and reads it from then on.
#[test]
fn a_new_program_has_its_first_promotion_within_a_second_of_its_first_use() {
    let mut machine = ScriptedMachine::new(16 * GIB);
    let program = program_of_parts(&[base_page_part(0, 512, 1.0)]);
    machine.add_program_at(seconds(10.0), program);
    let manager = run_manager_of(machine, "hawkeye", Settings::default(), seconds(20.0));
    let first = first_promotion_time(&manager);
    assert!((seconds(10.0)..seconds(11.0)).contains(&first), "{first:?}");
}

/// A program that fills 240 MiB a second for four seconds. Its first 64 MiB are there after 0.3 s.
#[test]
fn a_new_program_that_grows_for_seconds_has_its_first_promotion_within_the_first() {
    let begun = seconds(10.0);
    let mut machine = ScriptedMachine::new(16 * GIB);
    let part = base_page_part(0, 512, 1.0).using(2);
    let process = machine.add_program_at(begun, program_of_parts(&[part]));
    for step in 1..=80u16 {
        machine.schedule(begun + seconds(0.05) * u32::from(step), move |machine| {
            machine.set_used_pages(process, 0, 2 + step * 6);
        });
    }
    let manager = run_manager_of(machine, "hawkeye", Settings::default(), seconds(20.0));
    let first = first_promotion_time(&manager);
    // This machine spends none of the quarter of a second that an early window lasts elsewhere.
    assert!((begun..begun + seconds(0.8)).contains(&first), "{first:?}");
}

/// A program that grows by 16 MiB a second, for a minute.
#[test]
fn a_program_that_grows_is_sampled_and_promoted_while_it_grows() {
    let manager_of_growing = |early_samples| {
        let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 512, 1.0).using(2)]);
        for second in 1..=60u16 {
            machine.schedule(seconds(second.into()), move |machine| {
                machine.set_used_pages(FIRST_PROCESS, 0, 2 + second * 8);
            });
        }
        let settings = Settings { early_samples, ..Settings::default() };
        run_manager_of(machine, "hawkeye", settings, seconds(60.0))
    };
    let (early, late) = (manager_of_growing(true), manager_of_growing(false));
    let sampled = sampling_times(&early);
    let soon = sampled.iter().filter(|at| **at < seconds(30.0)).count();
    assert!(soon >= 3, "{sampled:?}");
    let [early, late] = [early, late].map(|manager| first_promotion_time(&manager));
    assert!(early < seconds(8.0), "{early:?}");
    assert!(late > seconds(25.0), "{late:?}");
}

#[test]
fn a_program_that_does_not_grow_is_sampled_no_more_often() {
    let count = |early_samples| {
        let machine = machine_running(16 * GIB, program_with_walk_share(64, 0.0));
        let settings = Settings { early_samples, ..Settings::default() };
        sampling_times(&run_manager_of(machine, "hawkeye", settings, seconds(300.0))).len()
    };
    assert_eq!(count(true), count(false));
}

fn sampling_times_of_first_process(manager: &ScriptedManager) -> Vec<Duration> {
    let entries = manager.journal().entries();
    let of_first = entries.filter(|entry| {
        let sampled = matches!(entry.event, Event::Sampled { .. });
        sampled && entry.event.process() == Some(FIRST_PROCESS)
    });
    of_first.map(|entry| entry.at).collect()
}

fn assert_sampled_every_period(manager: &ScriptedManager, end: Duration, what: &str) {
    let mut times = sampling_times_of_first_process(manager);
    times.push(end);
    // A period of 30 s, and the duration of a window.
    let late = times.windows(2).any(|pair| pair[1] - pair[0] > seconds(33.0));
    assert!(!late, "{what}: {times:?}");
}

/// One that was there before does not have to wait for a window of the new program.
#[test]
fn an_early_window_does_not_put_off_the_regular_one() {
    let regular = |with_new: bool| {
        let mut machine = machine_running(16 * GIB, program_with_walk_share(64, 0.0));
        if with_new {
            machine.add_program_at(seconds(20.0), program_with_walk_share(64, 0.0));
        }
        let manager = run_manager_of(machine, "hawkeye", Settings::default(), seconds(40.0));
        let sampled = sampling_times_of_first_process(&manager);
        sampled.iter().map(Duration::as_secs).collect::<Vec<_>>()
    };
    assert_eq!(regular(true), regular(false));
}

/// A compiler grows, and ends before or in the early window that is planned for it.
#[test]
fn an_early_window_whose_programs_have_ended_does_not_put_off_the_regular_one() {
    const END: Duration = Duration::from_secs(100);
    for lived_ms in (100..1500).step_by(20) {
        let mut machine = machine_running(16 * GIB, program_with_walk_share(64, 0.0));
        // Long enough for the program to end between two steps of a window.
        machine.call_duration = seconds(0.1);
        let begun = seconds(20.0);
        let grown = machine.add_program_at(begun, program_with_walk_share(64, 0.0));
        let ended = begun + Duration::from_millis(lived_ms);
        machine.schedule(ended, move |machine| machine.end_program(grown));
        let manager = run_manager_of(machine, "hawkeye", Settings::default(), END);
        assert_sampled_every_period(&manager, END, &format!("it ended after {lived_ms} ms"));
    }
}

/// For minutes, a window would slow the large one down too much.
#[test]
fn an_early_window_of_a_program_that_may_not_be_sampled_does_not_put_off_the_regular_one() {
    const END: Duration = Duration::from_secs(110);
    let mut machine = machine_running(64 * GIB, program_with_walk_share(64, 0.0));
    let mut large = program_with_walk_share(8192, 0.0);
    large.parts = vec![base_page_part(0, 8192, 1.0).using(256)];
    let large = machine.add_program(large);
    machine.schedule(seconds(40.0), move |machine| machine.set_used_pages(large, 0, 512));
    let mut manager = manager_of(machine, "hawkeye", Settings::default());
    let mut shown = 0;
    run_manager_watching(&mut manager, END, |manager| {
        let held = ExhaustedBudget::EarlySampling(SamplingDelayReason::ProgramSlowdown);
        shown += usize::from(manager.budget_waits().any(|wait| wait.budget == held));
    });
    assert!(shown > 0, "the wait is named");
    assert_sampled_every_period(&manager, END, "it grew at 40 s");
    // It is read before regular windows, near 30, 60 and 90 s. Reads in between show nothing new.
    let reads: Vec<Duration> = manager.machine().call_times("read").collect();
    assert!(!reads.is_empty());
    let in_vain = reads.iter().filter(|at| (seconds(42.0)..seconds(55.0)).contains(*at));
    assert_eq!(in_vain.count(), 0, "{reads:?}");
}

fn delays(manager: &ScriptedManager) -> usize {
    let entries = manager.journal().entries();
    entries.filter(|entry| matches!(entry.event, Event::Stretched { .. })).count()
}

/// Memory of the large program costs 5 ms a window to clear and read, which with half of 0.1 % of a
/// core moves windows 10 s apart. The small one costs next to nothing.
#[test]
fn a_delay_after_windows_that_came_in_time_is_written_down_again() {
    let large = || program_of_parts(&[base_page_part(0, 400, 0.0)]);
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 4, 0.0)]);
    let first = machine.add_program(large());
    machine.schedule(seconds(12.0), move |machine| machine.end_program(first));
    machine.add_program_at(seconds(40.0), large());
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_cpu_percent(0.1));
    run_manager_until(&mut manager, seconds(39.0));
    assert_eq!(delays(&manager), 1);
    run_manager_until(&mut manager, seconds(80.0));
    assert_eq!(delays(&manager), 2);
}

/// The next program is to come later.
#[test]
fn a_wait_for_a_budget_is_over_when_the_window_had_nothing_to_sample() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 400, 0.0)]);
    machine.schedule(seconds(5.0), |machine| machine.end_program(FIRST_PROCESS));
    machine.add_program_at(seconds(100.0), program_of_parts(&[base_page_part(0, 4, 0.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_cpu_percent(0.1));
    run_manager_until(&mut manager, seconds(3.0));
    assert!(manager.budget_waits().next().is_some());
    run_manager_until(&mut manager, seconds(30.0));
    run_manager_watching(&mut manager, seconds(50.0), |manager| {
        assert_eq!(manager.budget_waits().next(), None);
    });
}

/// A process that was there before, and runs once more at 200 s.
#[test]
fn a_process_that_does_nothing_is_not_read_again_until_it_runs() {
    let mut machine = machine_running(16 * GIB, program_with_walk_share(64, 0.0));
    machine.cpu_times.insert(FIRST_PROCESS, seconds(1.0));
    machine.schedule(seconds(200.0), |machine| {
        machine.cpu_times.insert(FIRST_PROCESS, seconds(2.0));
    });
    let manager = run_manager_of(machine, "hawkeye", Settings::default(), seconds(290.0));
    let (before, after): (Vec<_>, Vec<_>) =
        sampling_times(&manager).into_iter().partition(|at| *at < seconds(200.0));
    // Each time once more, when it was idle.
    assert_eq!((before.len(), after.len()), (2, 2), "{before:?} {after:?}");
    assert!(after[0] < seconds(232.0), "{after:?}");
    let measured = |from, until| {
        let times = manager.machine().call_times("footprint");
        times.filter(|at| (seconds(from)..seconds(until)).contains(at)).count()
    };
    assert_eq!(measured(10.0, 200.0), 0);
    assert!((1..=3).contains(&measured(200.0, 202.5)));
    assert_eq!(measured(204.0, 290.0), 0);
    // It counts all the same.
    let footprint = manager.last_samples().footprint(FIRST_PROCESS);
    assert_eq!(footprint.map(|it| it.rss_bytes), Some(128 * MIB));
}

#[test]
fn policies_that_average_coverage_sample_processes_that_do_nothing() {
    let mut machine = machine_running(16 * GIB, program_with_walk_share(64, 0.0));
    machine.cpu_times.insert(FIRST_PROCESS, seconds(1.0));
    let manager = run_manager_of(machine, "hawkeye-g", Settings::default(), seconds(290.0));
    assert!(sampling_times(&manager).len() >= 8);
}
