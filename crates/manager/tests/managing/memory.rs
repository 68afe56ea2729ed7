//! Watermarks, pressure, groups and recovery.

use hawkeye_manager::Machine;
use hawkeye_policy::{Errno, RegionAddr, policies};
use hawkeye_test_support::builders::*;
use hawkeye_test_support::machine::ScriptedChange;
use std::collections::HashSet;

#[test]
fn above_the_high_watermark_memory_is_recovered_until_below_the_low_one() {
    for policy in policies::policy_names() {
        // 712 of 809 MiB are in use: 88 %.
        let total = 809 * MIB;
        let machine = running(total, &[bloated(0, 256, 10.0), base(300, 100, 90.0)]);
        let mut manager = manager_of(machine, policy, frequent_sampling());
        let mut below_low_at = None;
        run_watching(&mut manager, s(60.0), |manager| {
            let machine = manager.machine();
            if machine.used_bytes() * 100 < total * 70 {
                below_low_at = below_low_at.or(Some(machine.now()));
            }
        });
        let recovered = recovered(&manager);
        // 412 pages of each are free. 91 huge pages bring 88 % to 70 %; the batch may finish what
        // it began.
        let count = recovered.len();
        assert!((90..100).contains(&count), "{policy}: {count}");
        let promoted = promoted(&manager);
        let later = |at| below_low_at.is_some_and(|low| at >= low);
        assert!(promoted.iter().all(|(at, ..)| later(*at)));
        let split: HashSet<RegionAddr> = recovered.iter().map(|(.., r)| *r).collect();
        let split_again = promoted.iter().any(|(.., r)| split.contains(r));
        assert!(!split_again, "{policy}");
        assert_eq!(promoted.is_empty(), policy == "none");
        let bytes = manager.journal().totals().recovered_bytes;
        assert_eq!(bytes, recovered.len() as u64 * 412 * 4096);
    }
}

#[test]
fn who_only_measures_looks_and_does_nothing_however_short_memory_is() {
    // 88 % are in use, as above, or only a few per cent.
    for total in [809 * MIB, 8 * GIB] {
        let machine = running(total, &[bloated(0, 256, 10.0), base(300, 100, 90.0)]);
        let mut settings = frequent_sampling();
        settings.measure_only = true;
        let manager = managed(machine, "hawkeye-g", settings, s(60.0));
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
        let machine = running(440 * MIB, &[base(0, 100, 90.0), base(300, 100, 90.0)]);
        let mut settings = frequent_sampling();
        settings.hold_full = hold_full;
        let manager = managed(machine, "hawkeye-g", settings, s(30.0));
        let count = promoted(&manager).len();
        assert_eq!(count, if hold_full { 0 } else { 200 });
    }
}

#[test]
fn recovered_regions_are_promoted_again_once_populated_and_used() {
    let (mut machine, process) = with_program(4 * GIB, program(&[bloated(0, 64, 1.0)]));
    machine.schedule(s(12.0), ScriptedChange::OtherMemory(7 * GIB / 2));
    machine.schedule(s(40.0), ScriptedChange::OtherMemory(0));
    machine.schedule(s(140.0), ScriptedChange::Use(process, 0, 480));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling());
    run(&mut manager, s(40.0));
    assert_eq!(recovered(&manager).len(), 64);
    assert_eq!(rss(&manager, process), 64 * 100 * 4096);
    run(&mut manager, s(140.0));
    assert_eq!(promoted(&manager), []);
    run(&mut manager, s(200.0));
    assert_eq!(promoted(&manager).len(), 64);
    assert_eq!(rss(&manager, process), 128 * MIB);
}

#[test]
fn well_used_huge_pages_are_not_split() {
    let mut machine = machine(100 * MIB);
    let mut full = bloated(0, 45, 1.0);
    full.used_pages = 449;
    let process = machine.start(program(&[full]));
    let manager = managed(machine, "hawkeye-g", frequent_sampling(), s(90.0));
    assert_eq!(recovered(&manager), []);
    assert_eq!(huge(&manager, process), 90 * MIB);
    assert!(manager.journal().totals().scanned >= 45);
}

#[test]
fn what_somebody_held_on_to_is_recovered_soon_after() {
    // Even all of it is not enough to get below the low watermark.
    let mut machine = running(240 * MIB, &[bloated(0, 10, 10.0), base(300, 100, 90.0)]);
    machine.schedule(s(0.0), ScriptedChange::FailRecoveries(3, Errno::EBUSY));
    let mut manager = manager_of(machine, "none", frequent_sampling());
    // A huge page that is not worth a split rests for a minute.
    run(&mut manager, s(20.0));
    let totals = manager.journal().totals();
    assert_eq!((totals.split, totals.scanned), (10, 13));
    assert_eq!(totals.errors.get(&Errno::EBUSY), Some(&3));
}

#[test]
fn pressure_holds_promotion() {
    let mut machine = running(16 * GIB, &[base(0, 32, 1.0)]);
    machine.schedule(s(0.0), ScriptedChange::Pressure(10.5));
    machine.schedule(s(40.0), ScriptedChange::Pressure(9.5));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling());
    run(&mut manager, s(40.0));
    assert_eq!(promoted(&manager), []);
    assert!(manager.promotion_held_by().is_some());
    assert!(manager.journal().totals().samples > 0);
    run(&mut manager, s(60.0));
    assert_eq!(promoted(&manager).len(), 32);
    assert_eq!(manager.promotion_held_by(), None);
}

#[test]
fn a_full_group_gives_back_only_its_own_members_memory() {
    let mut machine = machine(16 * GIB);
    machine.limit_group("/full", 290 * MIB);
    machine.limit_group("/roomy", 2 * GIB);
    let alike = &[bloated(0, 64, 1.0)];
    // 256 of 290 MiB: 88 %.
    let members = [0, 1].map(|_| machine.start(in_group("/full", alike)));
    let others = [in_group("/roomy", alike), program(alike)].map(|it| machine.start(it));
    let manager = managed(machine, "hawkeye-g", frequent_sampling(), s(60.0));
    assert!(!recovered(&manager).is_empty());
    let of_members = |(_, process, _): &(_, _, _)| members.contains(process);
    assert!(recovered(&manager).iter().all(of_members));
    let used = manager.machine().group_used_bytes("/full");
    assert!(used < 290 * MIB * 70 / 100, "{used}");
    for process in others {
        assert_eq!(huge(&manager, process), 128 * MIB);
    }
}

#[test]
fn a_machine_that_fills_up_by_itself_is_watched_between_two_looks_too() {
    let (mut machine, process) = with_program(GIB, program(&[bloated(0, 256, 1.0)]));
    // 50 % of the machine at first, then 90 %. Looks come at full seconds.
    machine.schedule(s(30.3), ScriptedChange::OtherMemory(410 * MIB));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling());
    run(&mut manager, s(30.0));
    assert_eq!(rss(&manager, process), 512 * MIB);
    run(&mut manager, s(60.0));
    let first = recovered(&manager).first().map(|(at, ..)| *at);
    let soon = first.is_some_and(|at| at > s(30.3) && at < s(30.5));
    assert!(soon, "{first:?}");
    assert!(manager.machine().used_bytes() * 100 < GIB * 70);
}

#[test]
fn every_full_group_is_recovered_whatever_becomes_of_the_others() {
    let mut machine = machine(16 * GIB);
    machine.limit_group("/used", 130 * MIB);
    machine.limit_group("/bloated", 140 * MIB);
    // Nothing can be recovered from one of them, and it stays over its watermark.
    let mut full = bloated(0, 64, 1.0);
    full.used_pages = 512;
    let used = machine.start(in_group("/used", &[full]));
    let bloated = machine.start(in_group("/bloated", &[bloated(0, 64, 1.0)]));
    let manager = managed(machine, "hawkeye-g", frequent_sampling(), s(20.0));
    assert!(recovered(&manager).iter().all(|(_, p, _)| *p == bloated));
    assert_eq!(huge(&manager, used), 128 * MIB);
    let left = manager.machine().group_used_bytes("/bloated");
    assert!(left < 140 * MIB * 70 / 100, "{left}");
}

#[test]
fn promotion_leaves_cpu_time_for_recovery() {
    // 60 ms a minute: about 130 promotions, and there are 600 regions to promote.
    let (mut machine, bloat) = with_program(1776 * MIB, program(&[bloated(0, 128, 1.0)]));
    machine.start(program(&[base(1000, 600, 1.0)]));
    // From 82 % to 88 %, slowly, so that memory is in no danger.
    for second in 1..=12u32 {
        let bytes = u64::from(second) * 6 * MIB;
        machine.schedule(s(f64::from(8 + second)), ScriptedChange::OtherMemory(bytes));
    }
    let manager = managed(machine, "hawkeye-g", with_cpu_percent(0.1), s(25.0));
    assert!(!promoted(&manager).is_empty());
    let recovered = recovered(&manager);
    assert!(recovered.len() >= 20, "{}", recovered.len());
    assert!(recovered.iter().all(|(_, p, _)| *p == bloat));
}
