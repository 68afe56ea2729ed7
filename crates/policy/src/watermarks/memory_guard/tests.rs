//! Tests of the decisions in the module above.

use super::*;
use crate::observation::{CgroupMemory, MemoryUse};
use crate::test_support::{at_second, process};
use crate::watermarks::Watermarks;
use proptest::prelude::*;

mod fast_fills;

fn usage(percent: u64) -> MemoryUse {
    MemoryUse { used_bytes: percent * 10, total_bytes: 1000 }
}

fn machine(percent: u64) -> MemoryState {
    MemoryState {
        machine: usage(percent),
        groups: Vec::new(),
        limits_unknown: Vec::new(),
        pressure_percent: None,
        fmfi: None,
    }
}

fn group(name: &str, percent: u64, members: &[u32]) -> CgroupMemory {
    CgroupMemory {
        name: name.to_owned(),
        usage: usage(percent),
        pressure_percent: None,
        members: members.iter().copied().map(process).collect(),
    }
}

/// Memory use out of 2 GiB.
fn gib(used_mib: u64) -> MemoryUse {
    MemoryUse { used_bytes: used_mib << 20, total_bytes: 2 << 30 }
}

fn in_group(name: &str, usage: MemoryUse, members: &[u32]) -> MemoryState {
    let group = CgroupMemory { usage, ..group(name, 0, members) };
    MemoryState { groups: vec![group], ..machine(10) }
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn assert_held(promotion: Result<(), PromotionBlockReason>, why: &str) {
    assert_eq!(promotion.expect_err("promotion is held").to_string(), why);
}

fn held(guard: &MemoryGuard) -> Result<(), PromotionBlockReason> {
    guard.may_promote(process(1), 0)
}

fn guard() -> MemoryGuard {
    let limit = MemoryGuard::DEFAULT_PRESSURE_LIMIT_PERCENT;
    MemoryGuard::new(Watermarks::default(), limit).expect("the limit is in range")
}

#[test]
fn memory_ahead_of_demand_ends_at_the_nearest_low_watermark() {
    let mut guard = guard();
    assert_eq!(guard.room_bytes_for_process(process(1)), 0, "nothing is known yet");
    let mut state = machine(40);
    state.groups = vec![group("/small", 60, &[1])];
    assert_eq!(guard.assess(at_second(0), &state), Ok(()));
    // The low watermark is at 70 % of 1000 bytes.
    assert_eq!(guard.room_bytes_for_process(process(1)), 100);
    assert_eq!(guard.room_bytes_for_process(process(2)), 300);
    // What it was given does not start a recovery, which would make room for more of the same.
    guard.add_used_bytes(at_second(0), process(1), 100);
    assert_eq!(guard.room_bytes_for_process(process(1)), 0);
    assert_eq!(held(&guard), Ok(()));
}

#[test]
fn a_process_with_limits_that_are_unknown_gets_no_memory_and_others_do() {
    let mut guard = guard();
    let state = MemoryState { limits_unknown: vec![process(1)], ..machine(40) };
    assert_eq!(guard.assess(at_second(0), &state), Ok(()));
    assert_eq!(held(&guard), Err(PromotionBlockReason::LimitsUnknown));
    assert_eq!(guard.room_bytes_for_process(process(1)), 0);
    assert_eq!(guard.may_promote(process(2), 0), Ok(()));
    assert_eq!(guard.room_bytes_for_process(process(2)), 300);
    assert_eq!(guard.assess(at_second(1), &machine(40)), Ok(()));
    assert_eq!(held(&guard), Ok(()));
}

#[test]
fn nothing_is_promoted_before_memory_was_looked_at() {
    let mut guard = guard();
    assert_eq!(held(&guard), Err(PromotionBlockReason::Unknown));
    assert_eq!(guard.assess(at_second(0), &machine(50)), Ok(()));
    assert_eq!(held(&guard), Ok(()));
    guard.mark_memory_unknown();
    assert_eq!(held(&guard), Err(PromotionBlockReason::Unknown));
}

#[test]
fn a_group_holds_and_gives_back_only_its_own() {
    let mut guard = guard();
    let mut state = machine(50);
    state.groups = vec![group("/db", 90, &[1, 2]), group("/web", 80, &[3])];
    assert_eq!(guard.assess(at_second(0), &state), Ok(()));
    let shortage =
        MemoryShortage { used_percent: 90.0, start_percent: 85.0, growth_bytes_per_s: 0 };
    assert_eq!(guard.shortage_for_process(process(1)), Some(shortage));
    assert_held(
        guard.may_promote(process(2), 0),
        "cgroup /db uses 90.0 % of its memory, over the high watermark of 85 %",
    );
    assert_eq!(guard.may_promote(process(3), 0), Ok(()));
    assert_eq!(guard.shortage_for_process(process(3)), None);

    state.groups = vec![group("/db", 75, &[1, 2]), group("/web", 80, &[3])];
    assert_eq!(guard.assess(at_second(0), &state), Ok(()));
    assert!(matches!(held(&guard), Err(PromotionBlockReason::Recovering { .. })));

    // After it was gone and came back, it starts anew.
    state.groups.remove(0);
    let _ = guard.assess(at_second(0), &state);
    assert!(!guard.is_recovering());
    state.groups = vec![group("/db", 75, &[1, 2])];
    let _ = guard.assess(at_second(0), &state);
    assert!(!guard.is_recovering());
    assert_eq!(held(&guard), Ok(()));
}

#[test]
fn a_full_machine_holds_every_promotion() {
    let mut guard = guard();
    let mut state = machine(95);
    state.groups = vec![group("/", 96, &[1]), group("/db", 99, &[1])];
    let _ = guard.assess(at_second(0), &state);
    assert!(guard.watched.iter().all(|watched| watched.recovering));
    let percent = |p| guard.shortage_for_process(process(p)).map(|s| s.used_percent);
    assert_eq!(percent(1), Some(99.0));
    assert_eq!(percent(7), Some(95.0));
}

#[test]
fn pressure_holds_promotion_but_recovers_nothing() {
    let mut guard = guard();
    let pressed = |percent| MemoryState { pressure_percent: percent, ..machine(50) };
    assert_eq!(guard.assess(at_second(0), &pressed(Some(10.0))), Ok(()));
    assert_held(
        guard.assess(at_second(0), &pressed(Some(12.34))),
        "tasks of the machine waited for memory 12.3 % of the last 10 s, more than 10 %",
    );
    assert!(!guard.is_recovering());
    assert_eq!(guard.assess(at_second(0), &pressed(None)), Ok(()));
}

#[test]
fn pressure_in_a_cgroup_holds_its_promotions() {
    let mut guard = guard();
    let mut state = machine(50);
    state.groups = vec![group("/a", 50, &[1]), group("/b", 60, &[1, 2])];
    state.groups[0].pressure_percent = Some(20.0);
    assert_eq!(guard.assess(at_second(0), &state), Ok(()));
    assert!(matches!(held(&guard), Err(PromotionBlockReason::Pressure { .. })));
    assert_eq!(guard.may_promote(process(2), 0), Ok(()));
}

#[test]
fn a_promotion_does_not_cross_the_mark_itself() {
    let mut guard = guard();
    let mut state = machine(84);
    state.groups = vec![group("/a", 80, &[1])];
    assert_eq!(guard.assess(at_second(0), &state), Ok(()));
    assert_eq!(guard.may_promote(process(1), 10), Ok(()));
    let crosses = PromotionBlockReason::WouldCross {
        scope: MemoryScope::Machine,
        used_percent: 84.0,
        bytes: 11,
        start_percent: 85.0,
    };
    assert_eq!(guard.may_promote(process(1), 11), Err(crosses));
    // Memory taken counts at once, in the group too.
    state.machine = usage(10);
    let _ = guard.assess(at_second(0), &state);
    guard.add_used_bytes(at_second(0), process(1), 50);
    assert!(guard.may_promote(process(1), 1).is_err());
    assert_eq!(guard.may_promote(process(2), 1), Ok(()));
    guard.add_used_bytes(at_second(0), process(1), -1);
    assert_eq!(guard.may_promote(process(1), 1), Ok(()));
}

/// A group of 2 GiB with these uses in MiB, read every 50 ms.
fn fill(guard: &mut MemoryGuard, used_mib: impl Iterator<Item = u64>) {
    for (look, used) in (0..).zip(used_mib) {
        let _ = guard.assess(ms(look * 50), &in_group("/a", gib(used), &[1]));
    }
}

#[test]
fn fast_growth_has_recovery_start_early_and_slow_growth_does_not() {
    for (mib_per_look, early) in [(2, false), (10, false), (60, true)] {
        let mut guard = guard();
        fill(&mut guard, (600..1639).step_by(mib_per_look));
        assert_eq!(guard.is_recovering(), early, "{mib_per_look} MiB in 50 ms");
        assert_eq!(guard.will_be_full_within_seconds(), early);
        assert_eq!(matches!(held(&guard), Err(PromotionBlockReason::FillingUp { .. })), early);
    }
}

#[test]
fn the_growth_of_a_group_is_its_own() {
    let mut guard = guard();
    for (second, used_mib) in [(0, 100), (1, 1124)] {
        let _ = guard.assess(at_second(second), &in_group("/app", gib(used_mib), &[1]));
    }
    let growth = |scope| guard.growth_bytes_per_s(&scope);
    assert!(growth(MemoryScope::Group("/app".to_owned())) > 1 << 29);
    assert_eq!(growth(MemoryScope::Machine), 0);
    assert_eq!(growth(MemoryScope::Group("/other".to_owned())), 0);
}

#[test]
fn a_slow_recovery_has_to_start_earlier() {
    let mut guard = guard();
    // 8 MiB/s here.
    (0..200).for_each(|_| guard.record_recovery_speed(1 << 20, ms(125)));
    fill(&mut guard, (600..1600).step_by(10));
    assert!(guard.is_recovering());
}

#[test]
fn a_group_searched_through_does_not_end_the_recovery_of_another() {
    let mut guard = guard();
    let mut state = in_group("/a", gib(1800), &[1]);
    let listed = |guard: &mut MemoryGuard, time| {
        guard.take_processes_due_for_listing(ms(time), &[process(1), process(2)], false)
    };
    let _ = guard.assess(ms(0), &state);
    assert_eq!(listed(&mut guard, 0), [process(1)]);
    assert_eq!(listed(&mut guard, 50), []);
    // Another group runs short; its huge pages are not listed yet.
    state.groups.push(CgroupMemory { usage: gib(1900), ..group("/b", 0, &[2]) });
    let _ = guard.assess(ms(100), &state);
    guard.on_search_exhausted(ms(100), false);
    assert_eq!(guard.shortage_for_process(process(1)), None);
    assert!(guard.shortage_for_process(process(2)).is_some());
    assert_eq!(listed(&mut guard, 150), [process(2)]);
    guard.on_search_exhausted(ms(150), false);
    assert!(!guard.is_recovering());
}

#[test]
fn huge_pages_are_listed_again_when_there_can_be_new_ones() {
    let mut guard = guard();
    let listed = |guard: &mut MemoryGuard, time, used| {
        let _ = guard.assess(ms(time), &in_group("/a", gib(used), &[1]));
        !guard.take_processes_due_for_listing(ms(time), &[process(1)], false).is_empty()
    };
    assert!(listed(&mut guard, 0, 1800));
    assert!(!listed(&mut guard, 100, 1800));
    assert!(!listed(&mut guard, 200, 1831));
    assert!(listed(&mut guard, 300, 1832));
    // Taken back and filled again equally fast.
    guard.add_used_bytes(ms(300), process(1), -(32 << 20));
    assert!(listed(&mut guard, 400, 1832));
    assert!(!listed(&mut guard, 500, 1832));
    assert!(listed(&mut guard, 10_400, 1832));
    // Another process moved in.
    let state = in_group("/a", gib(1832), &[1, 2]);
    let _ = guard.assess(ms(10_500), &state);
    let everyone = [process(1), process(2)];
    let listed = guard.take_processes_due_for_listing(ms(10_500), &everyone, false);
    assert_eq!(listed, everyone);
    // One ended, which brings no huge pages.
    let _ = guard.assess(ms(10_600), &in_group("/a", gib(1832), &[2]));
    assert_eq!(guard.take_processes_due_for_listing(ms(10_600), &everyone, false), []);
}

#[test]
fn recovery_ends_after_a_listing_that_took_longer_than_a_list_stays_valid() {
    let mut guard = guard();
    let _ = guard.assess(ms(0), &in_group("/a", gib(1800), &[1]));
    assert!(!guard.take_processes_due_for_listing(ms(0), &[process(1)], false).is_empty());
    // Meanwhile memory has grown, too.
    let _ = guard.assess(ms(15_000), &in_group("/a", gib(1850), &[1]));
    guard.on_listing_done(ms(15_000));
    guard.on_search_exhausted(ms(15_000), false);
    assert!(!guard.is_recovering());
}

#[test]
fn only_groups_of_which_every_member_was_read_count_as_listed() {
    let mut guard = guard();
    let mut state = in_group("/a", gib(1800), &[1, 2]);
    state.groups.push(CgroupMemory { usage: gib(1900), ..group("/b", 0, &[3]) });
    state.machine = usage(90);
    let _ = guard.assess(ms(0), &state);
    // An early window of one process leaves out all others.
    guard.record_huge_pages_listed(ms(0), &[process(2)]);
    guard.on_search_exhausted(ms(0), false);
    let recovering: Vec<bool> = guard.watched.iter().map(|watched| watched.recovering).collect();
    assert_eq!(recovering, [true, true, false], "the machine, /a, /b");
    guard.record_huge_pages_listed(ms(0), &[]);
    guard.on_search_exhausted(ms(0), false);
    assert!(!guard.is_recovering());
}

/// A group with this use in a machine of which nothing is used.
fn assess_group_of_a_large_machine(guard: &mut MemoryGuard, usage: MemoryUse) -> MemoryScope {
    let mut state = in_group("/a", usage, &[1]);
    state.machine = MemoryUse { used_bytes: 0, total_bytes: 64 << 30 };
    let _ = guard.assess(ms(0), &state);
    MemoryScope::Group("/a".to_owned())
}

#[test]
fn nearly_full_memory_is_checked_between_looks() {
    let mut guard = guard();
    let scope = assess_group_of_a_large_machine(&mut guard, gib(1900));
    assert_eq!(guard.next_memory_read_at(), Some(ms(40)));
    assert_eq!(guard.scopes_due_to_read(ms(39)), []);
    let due = guard.scopes_due_to_read(ms(40));
    assert_eq!(due, std::slice::from_ref(&scope));
    guard.record_scope_use(ms(40), &scope, gib(2000));
    assert!(guard.is_recovering());
    assert_eq!(guard.next_memory_read_at(), Some(ms(80)));
    guard.mark_memory_unknown();
    assert_eq!(guard.next_memory_read_at(), None);
}

/// Group `/a` fills up within seconds, `/b` is only over its mark. Both hold `process(3)`.
fn danger_in_one_of_two_groups(guard: &mut MemoryGuard, from_ms: u64) {
    for (look, used) in (0..).zip((600..1639).step_by(60)) {
        let mut state = in_group("/a", gib(used), &[1, 3]);
        state.groups.push(CgroupMemory { usage: gib(1800), ..group("/b", 0, &[2, 3]) });
        let _ = guard.assess(ms(from_ms + look * 50), &state);
    }
}

#[test]
fn only_the_group_in_danger_is_urgent_and_pays() {
    let mut guard = guard();
    danger_in_one_of_two_groups(&mut guard, 0);
    let urgent = [1, 2, 3].map(|pid| guard.is_urgent_for_process(process(pid)));
    assert_eq!(urgent, [true, false, true]);
    let payers = [1, 2, 3].map(|pid| guard.payers_of_urgent_work(process(pid)));
    assert_eq!((&payers[0], &payers[1]), (&payers[2], &None));
    let everyone = [1, 2, 3].map(process);
    let listed = guard.take_processes_due_for_listing(at_second(1), &everyone, true);
    assert_eq!(listed, [process(1), process(3)]);
    guard.on_search_exhausted(at_second(1), true);
    let recovering = [1, 2].map(|pid| guard.is_recovering_from(process(pid)));
    assert_eq!(recovering, [false, true], "the other one was not searched");
}

#[test]
fn a_group_that_used_up_its_urgent_work_rests_and_others_do_not() {
    let mut guard = guard();
    danger_in_one_of_two_groups(&mut guard, 0);
    let payers = guard.payers_of_urgent_work(process(1)).expect("danger");
    guard.record_urgent_work(at_second(1), &payers, Duration::from_millis(4900));
    assert!(guard.is_urgent_for_process(process(1)));
    guard.record_urgent_work(at_second(1), &payers, Duration::from_millis(200));
    assert!(!guard.will_be_full_within_seconds());
    let recovering = [1, 2, 3].map(|pid| guard.is_recovering_from(process(pid)));
    assert_eq!(recovering, [false, true, true]);
    assert_held(
        guard.may_promote(process(1), 0),
        "cgroup /a uses 79.1 % of its memory and fills it as fast as it is recovered; recovery has used up its CPU time there and goes on in 5 s",
    );
    // 1.1 s are missing.
    danger_in_one_of_two_groups(&mut guard, 4000);
    assert!(!guard.is_recovering_from(process(1)));
    danger_in_one_of_two_groups(&mut guard, 5500);
    assert!(guard.is_urgent_for_process(process(1)));
}

#[test]
fn a_group_that_used_up_its_urgent_work_goes_on_when_its_limit_is_raised() {
    let mut guard = guard();
    danger_in_one_of_two_groups(&mut guard, 0);
    let payers = guard.payers_of_urgent_work(process(1)).expect("danger");
    guard.record_urgent_work(at_second(1), &payers, ms(5_100));
    assert!(!guard.is_recovering_from(process(1)));
    // 5.1 of 64 s are used up.
    let usage = MemoryUse { used_bytes: 60 << 30, total_bytes: 64 << 30 };
    let group = CgroupMemory { usage, ..group("/a", 0, &[1, 3]) };
    let _ = guard.assess(at_second(1), &MemoryState { groups: vec![group], ..machine(10) });
    assert!(guard.is_recovering_from(process(1)));
}

#[test]
fn groups_that_used_up_their_shared_urgent_work_are_recovered_like_others() {
    let mut guard = guard();
    danger_in_one_of_two_groups(&mut guard, 0);
    // What all share, and the reserve.
    for work in [10_500, 5_500] {
        guard.record_urgent_work(at_second(1), &UrgentWorkPayers(Vec::new()), ms(work));
    }
    assert!(!guard.will_be_full_within_seconds());
    assert!(!guard.is_urgent_for_process(process(1)));
    assert_eq!(guard.payers_of_urgent_work(process(1)), None);
    let everyone = [1, 2, 3].map(process);
    assert_eq!(guard.take_processes_due_for_listing(at_second(1), &everyone, true), []);
    assert!(everyone.iter().all(|process| guard.is_recovering_from(*process)));
    assert_eq!(guard.take_processes_due_for_listing(at_second(1), &everyone, false), everyone);
    // 1.5 s are missing.
    danger_in_one_of_two_groups(&mut guard, 2900);
    assert!(!guard.will_be_full_within_seconds());
    danger_in_one_of_two_groups(&mut guard, 4100);
    assert!(guard.is_urgent_for_process(process(1)));
}

#[test]
fn a_machine_in_danger_does_not_depend_on_the_limit_of_groups() {
    let mut guard = guard();
    for (look, used) in (0..).zip((600..1639).step_by(60)) {
        let _ = guard.assess(ms(look * 50), &MemoryState { machine: gib(used), ..machine(0) });
    }
    guard.record_urgent_work(at_second(1), &UrgentWorkPayers(Vec::new()), at_second(60));
    assert!(guard.will_be_full_within_seconds());
    assert!(guard.is_urgent_for_process(process(1)));
    let listed = guard.take_processes_due_for_listing(at_second(1), &[process(1)], true);
    assert_eq!(listed, [process(1)]);
}

/// CPU time of a minute's urgent work for groups that fill as fast as they are recovered. `name`
/// of each group, by its only process and the second.
fn urgent_work_in_a_minute(
    guard: &mut MemoryGuard,
    groups: u32,
    name: impl Fn(u32, u64) -> String,
) -> Duration {
    let (look_every, mut worked) = (ms(50), Duration::ZERO);
    for look in 0..1200 {
        let now = look_every * look;
        let full =
            |pid| CgroupMemory { usage: gib(1700), ..group(&name(pid, now.as_secs()), 0, &[pid]) };
        let groups: Vec<_> = (1..=groups).map(full).collect();
        let members: Vec<_> = groups.iter().flat_map(|group| group.members.clone()).collect();
        let _ = guard.assess(now, &MemoryState { groups, ..machine(10) });
        for member in members {
            if let Some(payers) = guard.payers_of_urgent_work(member) {
                guard.record_urgent_work(now, &payers, look_every);
                worked += look_every;
            }
            guard.add_used_bytes(now, member, -(60 << 20));
        }
    }
    worked
}

#[test]
fn many_groups_in_danger_share_a_limit() {
    let worked = urgent_work_in_a_minute(&mut guard(), 8, |pid, _| format!("/{pid}"));
    // Half of a core, and 10 s at once.
    assert!(worked <= ms(40_050), "{worked:?}");
    assert!(worked > ms(35_000), "{worked:?}");
}

#[test]
fn a_new_group_is_urgent_after_others_have_used_up_what_all_share() {
    let mut guard = guard();
    urgent_work_in_a_minute(&mut guard, 8, |pid, _| format!("/{pid}"));
    let look = |guard: &mut MemoryGuard, time_ms, used| {
        let group = |pid| CgroupMemory { usage: gib(used), ..group(&format!("/{pid}"), 0, &[pid]) };
        let state = MemoryState { groups: (1..=9).map(group).collect(), ..machine(10) };
        let _ = guard.assess(ms(time_ms), &state);
    };
    look(&mut guard, 60_000, 1640);
    look(&mut guard, 60_050, 1700);
    let urgent = [1, 8, 9].map(|pid| guard.is_urgent_for_process(process(pid)));
    assert_eq!(urgent, [false, false, true]);
    assert!(guard.will_be_full_within_seconds());
    let everyone = [1, 8, 9].map(process);
    let listed = guard.take_processes_due_for_listing(ms(60_050), &everyone, true);
    assert_eq!(listed, [process(9)]);
    assert_held(
        guard.may_promote(process(1), 0),
        "cgroup /1 uses 83.0 % of its memory and would be full soon; cgroups have used up the CPU time of urgent recovery, so for 1 s it is recovered like others",
    );
    // After 1 s of its own it is recovered like others.
    let payers = guard.payers_of_urgent_work(process(9)).expect("danger");
    guard.record_urgent_work(ms(60_050), &payers, ms(1_050));
    assert!(!guard.is_urgent_for_process(process(9)));
    assert!(guard.is_recovering_from(process(9)));
}

#[test]
fn new_names_give_groups_no_way_around_the_shared_limit() {
    for groups in [1, 20] {
        let name = |pid, second| format!("/{pid}/{second}");
        let worked = urgent_work_in_a_minute(&mut guard(), groups, name);
        // 0.6 of a core, and 15 s at once.
        assert!(worked <= ms(51_100), "{groups}: {worked:?}");
    }
}

#[test]
fn reads_that_cost_much_come_seldom_but_do_not_end() {
    let mut guard = guard();
    let state = in_group("/a", gib(1900), &[1]);
    let _ = guard.assess(ms(0), &state);
    // 5 ms on average, which is 0.25 % of 2 s.
    guard.record_read_cost(ms(0), ms(25));
    assert_eq!(guard.next_memory_read_at(), Some(ms(2000)));
    // Looks go on.
    let _ = guard.assess(ms(1000), &state);
    assert_eq!(guard.next_memory_read_at(), Some(ms(2000)));
    let _ = guard.assess(ms(2000), &state);
    assert_eq!(guard.next_memory_read_at(), Some(ms(2040)));
}

#[test]
fn memory_is_read_as_often_while_the_machine_grows_fast_as_while_a_group_changes() {
    let mut guard = guard();
    let state = |used_mib| MemoryState { machine: gib(used_mib), ..machine(10) };
    let _ = guard.assess(ms(0), &state(1000));
    // 5 ms on average, which is 0.05 % of 10 s, and 0.25 % of 2 s.
    guard.record_read_cost(ms(0), ms(25));
    assert_eq!(guard.next_memory_read_at(), Some(ms(10_000)));
    let _ = guard.assess(ms(1000), &state(1200));
    assert_eq!(guard.next_memory_read_at(), Some(ms(2000)), "an assessment shows growth");
    guard.record_scope_use(ms(2000), &MemoryScope::Machine, gib(1400));
    guard.record_read_cost(ms(2000), ms(5));
    assert_eq!(guard.next_memory_read_at(), Some(ms(4000)), "a read shows growth");
    guard.record_scope_use(ms(20_000), &MemoryScope::Machine, gib(1400));
    guard.record_read_cost(ms(20_000), ms(5));
    assert_eq!(guard.next_memory_read_at(), Some(ms(30_000)), "it grows no more");
}

#[test]
fn marks_can_be_changed() -> Result<(), SettingError> {
    let mut guard = guard();
    let state = in_group("/a", gib(1500), &[1]);
    let _ = guard.assess(ms(0), &state);
    assert!(!guard.is_recovering());
    guard.set_watermarks(Watermarks::new(60.0, 50.0)?);
    let _ = guard.assess(ms(10), &state);
    assert!(guard.is_recovering());
    Ok(())
}

proptest! {
    /// It depends on the last crossing of a mark, for the machine and each group.
    #[test]
    fn hysteresis(
        percents in prop::collection::vec((0u64..=110, 0u64..=110), 1..100),
        high in 2u64..=100,
        low_share in 1u64..100,
    ) {
        let low = (high * low_share / 100).max(1).min(high - 1);
        let mut guard = MemoryGuard::new(Watermarks::new(high as f64, low as f64)?, 100.0)?;
        let expected = |course: &[u64]| {
            course.iter().rev().find(|p| **p > high || **p < low).is_some_and(|p| *p > high)
        };
        let (mut on_machine, mut in_group) = (Vec::new(), Vec::new());
        for (m, g) in percents {
            on_machine.push(m);
            in_group.push(g);
            let mut state = machine(m);
            state.groups = vec![group("/g", g, &[1])];
            let (machine, group) = (expected(&on_machine), expected(&in_group));
            prop_assert_eq!(guard.assess(at_second(0), &state).is_err(), machine);
            prop_assert_eq!(guard.is_recovering(), machine || group);
            prop_assert_eq!(guard.may_promote(process(1), 0).is_err(), machine || group);
            prop_assert_eq!(guard.may_promote(process(2), 0).is_err(), machine);
            let covers = |p| guard.shortage_for_process(process(p)).is_some();
            prop_assert_eq!(covers(1), machine || group);
            prop_assert_eq!(covers(2), machine);
        }
    }

    /// After any history, constant use changes nothing once growth is forgotten, and above the high
    /// mark there is recovery.
    #[test]
    fn constant_use_does_not_flap(
        course in prop::collection::vec((1u64..2000, 0u64..=2048), 1..40),
        used in 0u64..=2048,
    ) {
        let mut guard = guard();
        let mut now = 0;
        for (step, used) in course {
            now += step;
            let _ = guard.assess(ms(now), &in_group("/a", gib(used), &[1]));
            if used * 100 > 2048 * 85 {
                prop_assert!(guard.shortage_for_process(process(1)).is_some());
            }
            // A quarter of the way between the marks below the earliest start, 35 %.
            if used * 100 < 2048 * 31 {
                prop_assert!(guard.shortage_for_process(process(1)).is_none());
            }
        }
        let mut states = Vec::new();
        for _ in 0..300 {
            now += 250;
            let _ = guard.assess(ms(now), &in_group("/a", gib(used), &[1]));
            states.push(guard.is_recovering());
        }
        states.dedup();
        prop_assert!(states.len() <= 2, "{:?}", states);
        prop_assert!(!guard.will_be_full_within_seconds());
    }
}
