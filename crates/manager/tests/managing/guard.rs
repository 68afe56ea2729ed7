//! The order in which recovery splits huge pages, what it knows in advance, and what it leaves.

use hawkeye_manager::{Machine, Settings};
use hawkeye_policy::{Errno, HUGE_PAGE_BYTES, ProcessId, RegionAddr};
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::{ProgramPart, ScriptedMachine};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bloated huge pages that are not accessed.
fn idle(first: u32, regions: u32) -> ProgramPart {
    bloated_part(first, regions, 0.0)
}

fn splits_by_process(manager: &ScriptedManager, of: ProcessId) -> usize {
    recoveries(manager).iter().filter(|(_, process, _)| *process == of).count()
}

#[test]
fn guard_promotes_nothing_and_knows_what_is_unused_before_memory_is_short() {
    let parts = [bloated_part(0, 64, 1.0), idle(100, 32), base_page_part(300, 100, 1.0)];
    let machine = machine_running_parts(16 * GIB, &parts);
    let manager = run_manager_of(machine, "guard", frequent_sampling_settings(), seconds(60.0));
    let bloat = manager.bloat().bloat_totals(FIRST_PROCESS, manager.machine().now());
    let bytes = (bloat.unused_bytes, bloat.recoverable_bytes);
    assert_eq!(bytes, (96 * 412 * 4096, 96 * 412 * 4096));
    assert_eq!(bloat.never_accessed_bytes, 32 * HUGE_PAGE_BYTES);
    let totals = manager.journal().totals();
    assert_eq!((totals.promoted, totals.split), (0, 0));
    // Not again and again.
    assert_eq!(totals.scanned, 96);
}

#[test]
fn huge_pages_of_a_process_that_does_nothing_are_listed_and_split_when_memory_is_short() {
    let mut machine = machine_running_parts(GIB, &[idle(0, 64)]);
    machine.cpu_times.insert(FIRST_PROCESS, seconds(1.0));
    machine.schedule(seconds(100.0), |machine| machine.other_bytes = 800 * MIB);
    let manager = run_manager_of(machine, "guard", frequent_sampling_settings(), seconds(130.0));
    let calls = |name: &'static str| manager.machine().call_times(name);
    let idle = seconds(60.0)..seconds(100.0);
    assert_eq!(calls("read").filter(|at| idle.contains(at)).count(), 0);
    let listed = calls("list").find(|at| *at >= seconds(100.0)).expect("they are listed");
    let split = calls("recover").next().expect("they are split");
    assert!(listed <= split, "{listed:?} {split:?}");
    assert!(recoveries(&manager).len() > 50);
}

#[test]
fn searches_in_advance_leave_the_cpu_budget_to_others() {
    let machine = machine_running_parts(64 * GIB, &[bloated_part(0, 8000, 1.0)]);
    let manager = run_manager_of(machine, "guard", settings_with_cpu_percent(2.0), seconds(120.0));
    let scanned = manager.journal().totals().scanned;
    // 2 ms a second, at 30 us each.
    assert!((1000..=8100).contains(&scanned), "{scanned}");
    let bloat = manager.bloat().bloat_totals(FIRST_PROCESS, manager.machine().now());
    assert!(bloat.unused_bytes > 0);
    let percent = manager.limits().cpu.percent_of_core_used_in_minute(seconds(120.0));
    assert!(percent < 1.0, "{percent}");
}

#[test]
fn guard_recovers_a_full_cgroup_and_a_full_machine() {
    for limit in [290 * MIB, 16 * GIB] {
        let mut machine = ScriptedMachine::new(if limit > GIB { 290 * MIB } else { 16 * GIB });
        machine.groups.insert("/box", limit);
        machine.add_program(program_in_group("/box", &[bloated_part(0, 128, 1.0)]));
        let manager = run_manager_of(machine, "guard", frequent_sampling_settings(), seconds(60.0));
        assert!(!recoveries(&manager).is_empty());
        assert_eq!(promotions(&manager), []);
        let used = manager.machine().memory_use(Some("/box")).used_bytes;
        assert!(used < 290 * MIB * 70 / 100, "{used}");
    }
}

/// The process with the lowest overhead uses its bloated memory; that of the other one is idle.
#[test]
fn idle_memory_of_a_busy_process_goes_before_hot_memory_of_one_without_overhead() {
    for (policy, idle_first) in [("hawkeye", true), ("guard", true), ("hawkeye-g", false)] {
        let mut machine = ScriptedMachine::new(GIB);
        let hot = machine.add_program(program_of_parts(&[bloated_part(0, 128, 1.0)]));
        let busy = [idle(0, 128), base_page_part(300, 60, 1.0)];
        let busy = machine.add_program(program_of_parts(&busy));
        // 632 MiB, then 90 % of the machine. 200 MiB must be given back: 127 huge pages.
        machine.schedule(seconds(30.3), |machine| machine.other_bytes = 290 * MIB);
        let settings = settings_with_max_promotions(0);
        let manager = run_manager_of(machine, policy, settings, seconds(60.0));
        let first = if idle_first { busy } else { hot };
        let (of_first, all) = (splits_by_process(&manager, first), recoveries(&manager).len());
        assert!((120..=132).contains(&all), "{policy}: {all}");
        assert!(of_first * 100 >= all * 95, "{policy}: {of_first} of {all}");
    }
}

#[test]
fn two_equal_programs_lose_alike_under_orders_that_are_fair() {
    for policy in ["hawkeye", "guard", "emd"] {
        let mut machine = ScriptedMachine::new(GIB);
        let parts = &[bloated_part(0, 200, 1.0)];
        let twins = [0, 1].map(|_| machine.add_program(program_of_parts(parts)));
        machine.schedule(seconds(30.3), |machine| machine.other_bytes = 150 * MIB);
        let manager = run_manager_of(machine, policy, frequent_sampling_settings(), seconds(60.0));
        let [one, other] = twins.map(|twin| splits_by_process(&manager, twin));
        assert!(one > 50 && one.abs_diff(other) <= 2, "{policy}: {one}, {other}");
    }
}

#[test]
fn a_program_that_fills_again_what_was_given_back_is_recognised() {
    let mut machine = machine_running_parts(300 * MIB, &[bloated_part(0, 128, 1.0)]);
    machine.schedule(seconds(20.0), |machine| machine.set_used_pages(FIRST_PROCESS, 0, 512));
    let manager = run_manager_of(machine, "hawkeye", frequent_sampling_settings(), seconds(40.0));
    let split = recoveries(&manager);
    assert!(!split.is_empty());
    assert!(manager.bloat().refilled_share(FIRST_PROCESS) > 0.5);
    let now = manager.machine().now();
    let held = split.iter().filter(|(_, process, region)| {
        manager.bloat().hold_of_region(*process, *region, now).is_some()
    });
    assert_eq!(held.count(), split.len());
}

#[test]
fn what_is_filled_again_after_each_split_is_split_ever_less_often() {
    let mut machine = machine_running_parts(300 * MIB, &[bloated_part(0, 128, 1.0)]);
    // From time to time all of its regions are huge and bloated again.
    for second in (20..900).step_by(20) {
        machine.schedule(seconds(f64::from(second)), |machine| {
            machine.set_regions(FIRST_PROCESS, 0, 0);
            machine.set_regions(FIRST_PROCESS, 0, 128);
        });
    }
    let mut manager = manager_of(machine, "guard", frequent_sampling_settings());
    while manager.machine().now() < seconds(900.0) {
        manager.run_due_work_and_wait();
    }
    let mut splits: BTreeMap<RegionAddr, Vec<Duration>> = BTreeMap::new();
    for (at, _, region) in recoveries(&manager) {
        splits.entry(region).or_default().push(at);
    }
    for times in splits.values() {
        for (pair, least) in times.windows(2).zip([240.0, 480.0, 960.0]) {
            assert!(pair[1] - pair[0] >= seconds(least), "{times:?}");
        }
    }
    assert!(splits.values().any(|times| times.len() >= 2), "the memory is tried again");
}

#[test]
fn a_container_that_fills_at_4_gb_per_s_is_recovered_before_it_is_full() {
    let mut machine = ScriptedMachine::new(64 * GIB);
    machine.groups.insert("/box", 2 * GIB);
    let process = machine.add_program(program_in_group("/box", &[idle(0, 0)]));
    // It would take 2.4 GiB.
    for ms in 0..600 {
        machine.schedule(seconds(2.0 + f64::from(ms) / 1000.0), move |machine| {
            machine.set_regions(process, 0, 2 * ms as usize + 2);
            let usage = machine.memory_use(Some("/box"));
            assert!(usage.used_bytes < usage.total_bytes, "{usage:?} after {ms} ms");
        });
    }
    let manager = run_manager_of(machine, "guard", frequent_sampling_settings(), seconds(10.0));
    assert!(recoveries(&manager).len() > 300);
    let percent = manager.machine().memory_use(Some("/box")).used_percent();
    assert!(percent < 70.0, "{percent}");
}

#[test]
fn only_in_danger_are_huge_pages_split_together() {
    for (grown_in_ms, together) in [(600, true), (60_000, false)] {
        let mut machine = ScriptedMachine::new(64 * GIB);
        machine.splits_per_call = 4;
        machine.groups.insert("/box", GIB);
        let grows = machine.add_program(program_in_group("/box", &[idle(0, 0)]));
        machine.add_program(program_in_group("/box", &[idle(10_000, 50)]));
        for regions in 0..400 {
            let at = Duration::from_millis(2000 + regions * grown_in_ms / 400);
            machine.schedule(at, move |machine| machine.set_regions(grows, 0, regions as usize));
        }
        let manager = run_manager_of(machine, "guard", frequent_sampling_settings(), seconds(70.0));
        let split = recoveries(&manager).len();
        let calls = manager.machine().call_times("split call").count();
        assert!(split > 50, "{split}");
        let most = if together { split / 3 } else { split };
        assert!(calls <= most && (together || calls == split), "{calls} calls for {split}");
    }
}

/// Such a program is always in danger, because it fills memory as fast as recovery empties it.
#[test]
fn a_group_in_danger_for_ever_takes_a_quarter_of_a_core_and_others_are_managed() {
    let mut machine = ScriptedMachine::new(64 * GIB);
    machine.groups.insert("/box", 512 * MIB);
    let process = machine.add_program(program_in_group("/box", &[idle(0, 250)]));
    for step in 0..3000 {
        machine.schedule(seconds(f64::from(step) * 0.02), move |machine| {
            machine.set_regions(process, 0, 0);
            machine.set_regions(process, 0, 250);
        });
    }
    let at = seconds(5.0);
    let other = machine.add_program_at(at, program_of_parts(&[base_page_part(1000, 400, 1.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    while manager.machine().now() < seconds(60.0) {
        manager.run_due_work_and_wait();
    }
    let cpu = manager.machine().management_costs().cpu;
    assert!((seconds(10.0)..seconds(22.0)).contains(&cpu), "{cpu:?}");
    assert_eq!(count_promotions_of(&manager, other), 400);
    let budget = manager.limits().cpu;
    assert!(!budget.is_exhausted(manager.machine().now()));
}

/// Its use swings below its limit, and no huge page can be given back.
fn machine_with_group_in_danger_for_ever() -> ScriptedMachine {
    let mut machine = ScriptedMachine::new(64 * GIB);
    machine.groups.insert("/swings", 512 * MIB);
    let process = machine.add_program(program_in_group("/swings", &[base_page_part(0, 250, 0.0)]));
    for step in 0..3000 {
        let pages = [440, 470, 505][step as usize % 3];
        machine.schedule(seconds(f64::from(step) * 0.02), move |machine| {
            machine.set_used_pages(process, 0, pages);
        });
    }
    machine
}

#[test]
fn a_group_in_danger_for_ever_without_huge_pages_does_not_stop_sampling() {
    for window_s in [1, 12] {
        let mut machine = machine_with_group_in_danger_for_ever();
        let parts = [base_page_part(1000, 400, 1.0)];
        let other = machine.add_program_at(seconds(5.0), program_of_parts(&parts));
        let window = Duration::from_secs(window_s);
        let settings = Settings { window, period: 2 * window, ..frequent_sampling_settings() };
        let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(60.0));
        assert_eq!(count_promotions_of(&manager, other), 400, "{window_s}");
    }
}

#[test]
fn another_group_is_recovered_in_time_although_a_window_is_open() {
    for begin_ms in (0..3000).step_by(250) {
        let mut machine = machine_with_group_in_danger_for_ever();
        machine.groups.insert("/box", 2 * GIB);
        let process = machine.add_program(program_in_group("/box", &[idle(10_000, 0)]));
        let begin = Duration::from_millis(20_000 + begin_ms);
        for ms in 0..600 {
            machine.schedule(begin + Duration::from_millis(ms), move |machine| {
                machine.set_regions(process, 0, 2 * ms as usize + 2);
                let usage = machine.memory_use(Some("/box"));
                assert!(usage.used_bytes < usage.total_bytes, "{usage:?} at {begin:?} + {ms} ms");
            });
        }
        let (window, period) = (seconds(1.0), seconds(2.0));
        let settings = Settings { window, period, ..frequent_sampling_settings() };
        let manager = run_manager_of(machine, "hawkeye-g", settings, begin + seconds(2.0));
        assert!(recoveries(&manager).len() > 300, "{begin:?}");
    }
}

/// A program that gave most of its huge pages back, which stays allocated. Memory is not short.
fn machine_with_freed_parts(errno: Option<Errno>) -> ScriptedMachine {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 64, 0.0)]);
    machine.schedule(seconds(20.0), move |machine| {
        for region in 0..64 {
            machine.freed_parts.insert((FIRST_PROCESS, region_at_index(region)), 400);
        }
        machine.lost_huge_pages.insert(FIRST_PROCESS);
        machine.recovery_errors.extend(errno.into_iter().cycle().take(64));
    });
    machine
}

#[test]
fn what_a_program_gave_back_of_huge_pages_is_freed_although_memory_is_not_short() {
    for policy in ["guard", "hawkeye"] {
        let machine = machine_with_freed_parts(None);
        let manager =
            run_manager_of(machine, policy, settings_with_cpu_percent(2.0), seconds(24.0));
        assert!(manager.machine().freed_parts.is_empty(), "{policy}");
        let totals = manager.journal().totals();
        assert_eq!((totals.split, totals.recovered_bytes), (64, 64 * 400 * 4096), "{policy}");
        // Once, and not at each look.
        assert_eq!(manager.machine().call_times("list").count(), 1, "{policy}");
    }
}

#[test]
fn parts_that_cannot_be_freed_count_nothing_and_rest() {
    let machine = machine_with_freed_parts(Some(Errno::EAGAIN));
    let manager = run_manager_of(machine, "guard", settings_with_cpu_percent(2.0), seconds(28.0));
    assert_eq!(manager.journal().totals().recovered_bytes, 0);
    assert_eq!(manager.machine().call_times("recover").count(), 64);
}

#[test]
fn a_manager_that_only_measures_frees_nothing() {
    let machine = machine_with_freed_parts(None);
    let settings = Settings { measure_only: true, ..settings_with_cpu_percent(2.0) };
    let manager = run_manager_of(machine, "guard", settings, seconds(24.0));
    assert_eq!(manager.machine().freed_parts.len(), 64);
}
