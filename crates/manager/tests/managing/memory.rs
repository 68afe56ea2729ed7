//! Watermarks, pressure, groups and recovery.

use hawkeye_manager::{Event, Machine, MachineError, Settings};
use hawkeye_policy::{Errno, PromotionBlockReason, RegionAddr, policies};
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::ScriptedMachine;
use std::collections::HashSet;
use std::time::Duration;

#[test]
fn above_the_high_watermark_memory_is_recovered_until_below_the_low_one() {
    for policy in policies::policy_names() {
        // 712 of 809 MiB are in use: 88 %.
        let total = 809 * MIB;
        let machine = machine_running_parts(
            total,
            &[bloated_part(0, 256, 10.0), base_page_part(300, 100, 90.0)],
        );
        let mut manager = manager_of(machine, policy, frequent_sampling_settings());
        let mut below_low_at = None;
        run_manager_watching(&mut manager, seconds(60.0), |manager| {
            if used_bytes(manager) * 100 < total * 70 {
                below_low_at = below_low_at.or(Some(manager.machine().now()));
            }
        });
        let recovered = recoveries(&manager);
        // 412 pages of each are free. 91 huge pages bring 88 % to 70 %; the batch may finish what
        // it began.
        let count = recovered.len();
        assert!((90..100).contains(&count), "{policy}: {count}");
        let promoted = promotions(&manager);
        let later = |at| below_low_at.is_some_and(|low| at >= low);
        assert!(promoted.iter().all(|(at, ..)| later(*at)));
        let split: HashSet<RegionAddr> = recovered.iter().map(|(.., r)| *r).collect();
        let split_again = promoted.iter().any(|(.., r)| split.contains(r));
        assert!(!split_again, "{policy}");
        assert_eq!(promoted.is_empty(), ["guard", "none"].contains(&policy));
        let bytes = manager.journal().totals().recovered_bytes;
        assert_eq!(bytes, recovered.len() as u64 * 412 * 4096);
    }
}

#[test]
fn who_only_measures_looks_and_does_nothing_however_short_memory_is() {
    // 88 % are in use, as above, or only a few per cent.
    for total in [809 * MIB, 8 * GIB] {
        let machine = machine_running_parts(
            total,
            &[bloated_part(0, 256, 10.0), base_page_part(300, 100, 90.0)],
        );
        let mut settings = frequent_sampling_settings();
        settings.measure_only = true;
        let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(60.0));
        let totals = manager.journal().totals();
        assert!(totals.samples >= 8, "{totals:?}");
        assert_eq!((totals.promoted, totals.split, totals.scanned), (0, 0, 0));
        let (_, footprint) = manager.last_samples().footprints()[0];
        assert_eq!(footprint.huge_bytes, 512 * MIB);
    }
}

/// Regions that are fully present take no memory when promoted. The papers' kernels don't hold them
/// back.
#[test]
fn memory_that_is_short_holds_back_full_regions_unless_told_otherwise() {
    for hold_full in [true, false] {
        // 400 of 440 MiB are in use.
        let machine = machine_running_parts(
            440 * MIB,
            &[base_page_part(0, 100, 90.0), base_page_part(300, 100, 90.0)],
        );
        let mut settings = frequent_sampling_settings();
        settings.hold_full = hold_full;
        let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(30.0));
        let count = promotions(&manager).len();
        assert_eq!(count, if hold_full { 0 } else { 200 });
        let held = manager.memory().held.as_ref();
        assert!(matches!(held, Some(PromotionBlockReason::AboveHigh { .. })), "{held:?}");
    }
}

/// A process that is missing from an observation counts as gone, unless it could not be read.
#[test]
fn recovered_regions_are_promoted_again_once_populated_and_used() {
    let mut machine = machine_running_parts(4 * GIB, &[bloated_part(0, 64, 1.0)]);
    machine.schedule(seconds(12.0), |machine| machine.other_bytes = 7 * GIB / 2);
    machine.schedule(seconds(40.0), |machine| machine.other_bytes = 0);
    machine.schedule(seconds(60.0), |machine| {
        let unreadable = |_| MachineError::Other("it cannot be sampled".to_owned());
        machine.sample_errors = vec![unreadable as fn(_) -> _; 1000].into();
    });
    machine.schedule(seconds(70.0), |machine| machine.sample_errors.clear());
    machine.schedule(seconds(140.0), |machine| machine.set_used_pages(FIRST_PROCESS, 0, 480));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(40.0));
    assert_eq!(recoveries(&manager).len(), 64);
    assert_eq!(rss_bytes_of(&manager, FIRST_PROCESS), 64 * 100 * 4096);
    run_manager_until(&mut manager, seconds(140.0));
    assert_eq!(promotions(&manager), []);
    run_manager_until(&mut manager, seconds(200.0));
    assert_eq!(promotions(&manager).len(), 64);
    assert_eq!(rss_bytes_of(&manager, FIRST_PROCESS), 128 * MIB);
}

#[test]
fn well_used_huge_pages_are_not_split() {
    let machine = machine_running_parts(100 * MIB, &[bloated_part(0, 45, 1.0).using(449)]);
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(90.0));
    assert_eq!(recoveries(&manager), []);
    assert_eq!(huge_bytes_of(&manager, FIRST_PROCESS), 90 * MIB);
    assert!(manager.journal().totals().scanned >= 45);
}

#[test]
fn what_somebody_held_on_to_is_recovered_soon_after() {
    // Even all of it is not enough to get below the low watermark.
    let mut machine = machine_running_parts(
        240 * MIB,
        &[bloated_part(0, 10, 10.0), base_page_part(300, 100, 90.0)],
    );
    machine.recovery_errors = [Errno::EBUSY; 3].into();
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    // A huge page that is not worth a split rests for a minute.
    run_manager_until(&mut manager, seconds(20.0));
    let totals = manager.journal().totals();
    assert_eq!((totals.split, totals.scanned), (10, 13));
    assert_eq!(totals.errors.get(&Errno::EBUSY), Some(&3));
}

#[test]
fn recovery_that_does_not_work_is_tried_once_a_second() {
    let mut machine = machine_running_parts(300 * MIB, &[bloated_part(0, 128, 1.0)]);
    machine.recovery_impossible = true;
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(20.0));
    let tries = manager.machine().call_times("recover").count();
    assert!((5..=20).contains(&tries), "{tries}");
}

#[test]
fn recovery_that_does_not_work_holds_no_promotion_between_the_watermarks() {
    let mut machine = machine_running_parts(GIB, &[bloated_part(0, 300, 1.0)]);
    machine.recovery_impossible = true;
    machine.other_bytes = 300 * MIB;
    machine.schedule(seconds(10.0), |machine| machine.other_bytes = 140 * MIB);
    let other = machine.add_program(program_of_parts(&[base_page_part(1000, 20, 1.0)]));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(40.0));
    assert_eq!(count_promotions_of(&manager, other), 20);
}

#[test]
fn a_process_without_swap_is_left_alone_and_others_are_recovered() {
    let mut machine = ScriptedMachine::new(GIB);
    // Its huge pages are idle and hold almost nothing, so they come before those of the other one.
    let idle = bloated_part(0, 128, 0.0).using(10);
    let without = machine.add_program(program_of_parts(&[idle]));
    let other = machine.add_program(program_of_parts(&[bloated_part(0, 128, 1.0)]));
    machine.without_swap = [without].into();
    // From 82 % to 88 %, slowly, so that memory is in no danger.
    machine.other_bytes = 330 * MIB;
    for second in 31..=40 {
        machine.schedule(seconds(f64::from(second)), |machine| machine.other_bytes += 6 * MIB);
    }
    let manager = run_manager_of(machine, "hawkeye", frequent_sampling_settings(), seconds(60.0));
    assert!(rss_bytes_of(&manager, other) < 200 * MIB);
    assert_eq!(huge_bytes_of(&manager, without), 256 * MIB);
    let tries = manager.machine().call_times("recover").count();
    assert!(tries <= recoveries(&manager).len() + 1, "{tries}");
}

#[test]
fn pressure_holds_promotion() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 32, 1.0)]);
    machine.pressure_percent = 10.5;
    machine.schedule(seconds(40.0), |machine| machine.pressure_percent = 9.5);
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(40.0));
    assert_eq!(promotions(&manager), []);
    assert!(manager.memory().held.is_some());
    assert!(manager.journal().totals().samples > 0);
    run_manager_until(&mut manager, seconds(60.0));
    assert_eq!(promotions(&manager).len(), 32);
    assert_eq!(manager.memory().held.as_ref(), None);
}

#[test]
fn a_full_group_gives_back_only_its_own_members_memory() {
    let mut machine = ScriptedMachine::new(16 * GIB);
    machine.groups = [("/full", 290 * MIB), ("/roomy", 2 * GIB)].into();
    let alike = &[bloated_part(0, 64, 1.0)];
    // 256 of 290 MiB: 88 %.
    let members = [0, 1].map(|_| machine.add_program(program_in_group("/full", alike)));
    let others = [program_in_group("/roomy", alike), program_of_parts(alike)]
        .map(|it| machine.add_program(it));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    assert!(!recoveries(&manager).is_empty());
    let of_members = |(_, process, _): &(_, _, _)| members.contains(process);
    assert!(recoveries(&manager).iter().all(of_members));
    // Memory is read again only after a batch of 50 ms, in which some 95 huge pages are split.
    let percent = manager.machine().memory_use(Some("/full")).used_percent();
    assert!((68.0..70.0).contains(&percent), "{percent} %");
    for process in others {
        assert_eq!(huge_bytes_of(&manager, process), 128 * MIB);
    }
}

#[test]
fn a_machine_that_fills_up_by_itself_is_watched_between_two_looks_too() {
    let mut machine = machine_running_parts(GIB, &[bloated_part(0, 256, 1.0)]);
    // 50 % of the machine at first, then 90 %. Looks come at full seconds.
    machine.schedule(seconds(30.3), |machine| machine.other_bytes = 410 * MIB);
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(30.0));
    assert_eq!(rss_bytes_of(&manager, FIRST_PROCESS), 512 * MIB);
    run_manager_until(&mut manager, seconds(60.0));
    let first = recoveries(&manager).first().map(|(at, ..)| *at);
    let soon = first.is_some_and(|at| at > seconds(30.3) && at < seconds(30.5));
    assert!(soon, "{first:?}");
    assert!(used_bytes(&manager) * 100 < GIB * 70);
}

/// When promotion began to be held (`true`), and when it went on, by the journal.
fn holds(manager: &ScriptedManager) -> Vec<(Duration, bool)> {
    let entries = manager.journal().entries();
    let holds = entries.filter_map(|entry| match &entry.event {
        Event::Held { hold } => Some((entry.at, hold.is_some())),
        _ => None,
    });
    let mut holds: Vec<_> = holds.collect();
    // A hold for another reason follows.
    holds.dedup_by_key(|(_, held)| *held);
    holds
}

/// Its start is seen between two looks. Recovery ends it, or the program that took the memory.
#[test]
fn the_journal_has_the_start_and_the_end_of_each_hold() {
    let bloated = &[bloated_part(0, 256, 1.0)];
    let used = &[base_page_part(0, 256, 0.0)];
    for (parts, given_back_at) in [(bloated, 60.0), (used, 33.3)] {
        let mut machine = machine_running_parts(GIB, parts);
        // 50 % of the machine at first, then 90 %. Looks come at full seconds.
        machine.schedule(seconds(30.3), |machine| machine.other_bytes = 410 * MIB);
        machine.schedule(seconds(given_back_at), |machine| machine.other_bytes = 0);
        let settings = frequent_sampling_settings();
        let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(50.0));
        let holds = holds(&manager);
        let [(begun, true), (ended, false)] = holds[..] else {
            panic!("{holds:?}");
        };
        assert!(begun > seconds(30.3) && begun < seconds(30.5), "{holds:?}");
        assert!(ended > begun && ended < seconds(35.0), "{holds:?}");
        assert_eq!(manager.memory().held, None);
    }
}

/// Without sleep the loop would make more steps than a run may.
#[test]
fn the_loop_sleeps_while_a_listing_of_huge_pages_pauses() {
    let mut machine = machine_running_parts(GIB, &[bloated_part(0, 256, 1.0)]);
    machine.call_duration = seconds(0.1);
    machine.call_pause = seconds(0.05);
    machine.schedule(seconds(30.3), |machine| machine.other_bytes = 410 * MIB);
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(40.0));
    let slices = manager.machine().call_times("list").count();
    assert!(slices > 1, "{slices}");
    assert!(!recoveries(&manager).is_empty());
}

/// The huge pages of the first process bring 88 % of use to 80 %. Those of the other one are not
/// known until a tenth of a second later.
#[test]
fn recovery_goes_on_when_the_listing_of_huge_pages_ends() {
    const TOTAL_BYTES: u64 = 809 * MIB;
    let mut machine = machine_running_parts(TOTAL_BYTES, &[bloated_part(0, 40, 1.0)]);
    machine
        .add_program(program_of_parts(&[bloated_part(0, 216, 1.0), base_page_part(300, 100, 1.0)]));
    machine.call_duration = seconds(0.1);
    let manager = run_manager_of(machine, "none", frequent_sampling_settings(), seconds(20.0));
    let used = used_bytes(&manager);
    assert!(used * 100 < TOTAL_BYTES * 70, "{used}");
}

#[test]
fn every_full_group_is_recovered_whatever_becomes_of_the_others() {
    let mut machine = ScriptedMachine::new(16 * GIB);
    machine.groups = [("/used", 130 * MIB), ("/bloated", 140 * MIB)].into();
    // Nothing can be recovered from one of them, and it stays over its watermark.
    let full = bloated_part(0, 64, 1.0).using(512);
    let used = machine.add_program(program_in_group("/used", &[full]));
    let bloated = machine.add_program(program_in_group("/bloated", &[bloated_part(0, 64, 1.0)]));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(20.0));
    assert!(recoveries(&manager).iter().all(|(_, p, _)| *p == bloated));
    assert_eq!(huge_bytes_of(&manager, used), 128 * MIB);
    let left = manager.machine().memory_use(Some("/bloated"));
    assert!(left.used_percent() < 70.0, "{left:?}");
}

/// 200 MiB are in use in a cgroup, and its limit is briefly 220 MiB. The next sample comes after
/// 30 s.
#[test]
fn promotion_goes_on_after_a_brief_hold_of_a_group() {
    let mut machine = ScriptedMachine::new(16 * GIB);
    machine.groups.insert("/db", GIB);
    machine.add_program(program_in_group("/db", &[base_page_part(0, 100, 1.0)]));
    for (at_s, limit) in [(3.2, 220 * MIB), (5.2, GIB)] {
        machine.schedule(seconds(at_s), move |machine| {
            machine.groups.insert("/db", limit);
        });
    }
    let settings = Settings { period: seconds(30.0), ..settings_with_promotion_rate(10.0) };
    let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(25.0));
    let promoted = promotions(&manager);
    assert!(promoted.windows(2).any(|pair| pair[1].0 - pair[0].0 > seconds(1.0)), "not held");
    assert_eq!(promoted.len(), 100);
    assert_eq!(manager.journal().totals().samples, 1);
}

#[test]
fn promotion_leaves_cpu_time_for_recovery() {
    // 60 ms a minute: about 130 promotions, and there are 600 regions to promote.
    let mut machine = machine_running_parts(1776 * MIB, &[bloated_part(0, 128, 1.0)]);
    machine.add_program(program_of_parts(&[base_page_part(1000, 600, 1.0)]));
    // From 82 % to 88 %, slowly, so that memory is in no danger.
    for second in 9..=20 {
        machine.schedule(seconds(f64::from(second)), |machine| machine.other_bytes += 6 * MIB);
    }
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_cpu_percent(0.1), seconds(25.0));
    assert!(!promotions(&manager).is_empty());
    let recovered = recoveries(&manager);
    assert!(recovered.len() >= 20, "{}", recovered.len());
    assert!(recovered.iter().all(|(_, p, _)| *p == FIRST_PROCESS));
}

/// Times of looks at programs, in seconds. Each has 4 MiB, in a cgroup of its own.
fn times_of_looks_s(cgroups: usize, change: impl Fn(&mut ScriptedMachine)) -> Vec<f64> {
    let mut machine = ScriptedMachine::new(64 * GIB);
    for number in 0..cgroups {
        let name: &'static str = Box::leak(format!("/box{number:02}").into_boxed_str());
        machine.groups.insert(name, 64 * MIB);
        machine.add_program(program_in_group(name, &[base_page_part(0, 2, 0.0)]));
    }
    change(&mut machine);
    let manager = run_manager_of(machine, "guard", Settings::default(), seconds(20.5));
    let mut times: Vec<f64> =
        manager.machine().call_times("footprint").map(|at| at.as_secs_f64().floor()).collect();
    times.dedup();
    times
}

#[test]
fn many_cgroups_in_which_memory_stands_still_are_looked_at_every_five_seconds() {
    let every_second: Vec<f64> = (0..=20).map(f64::from).collect();
    assert_eq!(times_of_looks_s(49, |_| ()), every_second);
    // New programs are looked at more often.
    let seldom = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0];
    assert_eq!(times_of_looks_s(60, |_| ()), seldom);
    // A change of the machine shows within a second. Then memory stands still again.
    let grown = |machine: &mut ScriptedMachine| {
        machine.schedule(seconds(11.5), |machine| machine.other_bytes += MIB);
    };
    let after_growth = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 12.0, 13.0, 18.0];
    assert_eq!(times_of_looks_s(60, grown), after_growth);
    let grows = |machine: &mut ScriptedMachine| {
        for at_s in 0..30 {
            machine.schedule(seconds(f64::from(at_s) + 0.5), |machine| machine.other_bytes += MIB);
        }
    };
    assert_eq!(times_of_looks_s(60, grows), every_second);
    // Neither where something waits for memory, nor where a cgroup is over its low watermark.
    let waits = |machine: &mut ScriptedMachine| machine.pressure_percent = 0.5;
    assert_eq!(times_of_looks_s(60, waits), every_second);
    let is_full = |machine: &mut ScriptedMachine| {
        machine.groups.insert("/box07", 5 * MIB);
    };
    assert_eq!(times_of_looks_s(60, is_full), every_second);
    // A program that joins or ends is noticed within a second.
    let joins = |machine: &mut ScriptedMachine| {
        let program = program_of_parts(&[base_page_part(0, 2, 0.0)]);
        let process = machine.add_program_at(seconds(11.5), program);
        machine.schedule(seconds(16.5), move |machine| machine.end_program(process));
    };
    let looks = times_of_looks_s(60, joins);
    assert!(looks.contains(&12.0) && looks.contains(&17.0) && looks.len() < 18, "{looks:?}");
}
