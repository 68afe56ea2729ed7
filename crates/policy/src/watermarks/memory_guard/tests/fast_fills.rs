//! Groups that fill within seconds: when they are read, and from when to when recovered.

use super::*;

/// A group of 2 GiB after its use has grown between two readings, at 0 and at 100 ms.
fn after_burst(from_mib: u64, to_mib: u64) -> (MemoryGuard, MemoryScope) {
    let mut guard = guard();
    let scope = assess_group_of_a_large_machine(&mut guard, gib(from_mib));
    guard.record_scope_use(ms(100), &scope, gib(to_mib));
    (guard, scope)
}

#[test]
fn memory_is_read_when_a_fast_fill_reaches_the_start_of_recovery() {
    let (mut guard, scope) = after_burst(200, 450);
    let is_due = |guard: &MemoryGuard, at| guard.scopes_due_to_read(at).contains(&scope);
    // By room alone it would be read after 209 ms. Recovery starts at 717 MiB.
    assert!(!guard.is_recovering());
    let first_due = (100..400).find(|at| is_due(&guard, ms(*at)));
    assert!((260..280).contains(&first_due.unwrap_or(0)), "{first_due:?}");
    // Right before the mark a read follows another after 10 ms.
    guard.record_scope_use(ms(260), &scope, gib(710));
    assert!(!guard.is_recovering());
    let first_due = (260..400).find(|at| is_due(&guard, ms(*at)));
    assert_eq!(first_due, Some(270));
}

/// Lets memory grow from 100 MiB, in a group of 2 GiB or as that of the machine, while recovery
/// gives back `gib_per_s`. Returns its use in MiB where recovery starts.
fn start_mib(in_cgroup: bool, mib_per_10_ms: usize, gib_per_s: f64) -> u64 {
    let mut guard = guard();
    (0..500).for_each(|_| {
        guard.record_recovery_speed(1 << 30, Duration::from_secs_f64(1.0 / gib_per_s));
    });
    let mut course = (100..2048).step_by(mib_per_10_ms).zip((0..).step_by(10));
    let start = course.find(|(used, at)| {
        let state = match in_cgroup {
            true => MemoryState {
                machine: MemoryUse { used_bytes: 0, total_bytes: 64 << 30 },
                ..in_group("/a", gib(*used), &[1])
            },
            false => MemoryState { machine: gib(*used), ..machine(0) },
        };
        let _ = guard.assess(ms(*at), &state);
        guard.is_recovering()
    });
    start.expect("recovery starts").0
}

#[test]
fn recovery_of_a_group_starts_at_half_of_the_low_mark_where_growth_outruns_it() {
    let (half_of_low, early, usual) = (717..760, 1126..1170, 1434..1741);
    assert!(half_of_low.contains(&start_mib(true, 40, 1.0)));
    assert!(half_of_low.contains(&start_mib(true, 40, 3.0)));
    assert!(early.contains(&start_mib(true, 40, 5.0)));
    assert!(usual.contains(&start_mib(true, 5, 1.0)));
    // It outruns recovery, but is no fast fill.
    assert!(usual.contains(&start_mib(true, 4, 0.2)));
    assert!(usual.contains(&start_mib(false, 40, 1.0)));
}

#[test]
fn recovery_that_was_outrun_goes_on_when_its_speed_is_known() {
    let (mut guard, scope) = after_burst(400, 800);
    assert!(guard.is_recovering());
    // Growth is taken for 2.5 GiB/s so far.
    let of_split = Duration::from_secs_f64(0.002 / 3.0);
    (0..500).for_each(|_| guard.record_recovery_speed(2 << 20, of_split));
    // The list of huge pages is up to date, and all are searched.
    guard.record_huge_pages_listed(ms(101), &[]);
    guard.on_search_exhausted(ms(101), false);
    assert!(!guard.is_recovering());
    guard.record_scope_use(ms(140), &scope, gib(900));
    assert!(guard.is_recovering());
    // Recovery is more than twice as fast.
    (0..500).for_each(|_| guard.record_recovery_speed(8 << 20, of_split));
    guard.record_scope_use(ms(180), &scope, gib(1000));
    assert!(!guard.is_recovering());
}

#[test]
fn recovery_of_a_fast_fill_goes_on_while_it_gives_back_as_much_as_the_program_takes() {
    let (mut guard, scope) = after_burst(300, 730);
    assert!(guard.is_recovering());
    // 100 MiB are given back until the next reading. By these alone it would be under its end.
    for at in 101..=140 {
        guard.add_used_bytes(ms(at), process(1), -(2560 << 10));
        assert!(guard.is_recovering(), "{at} ms");
    }
    assert_eq!(guard.next_memory_read_at(), Some(ms(140)));
    guard.record_scope_use(ms(140), &scope, gib(730));
    assert!(guard.is_recovering());
    // It stands still now, which counts after 0.2 s.
    for at in (180..=300).step_by(40) {
        guard.record_scope_use(ms(at), &scope, gib(730));
        assert!(guard.is_recovering(), "{at} ms");
    }
    guard.record_scope_use(ms(340), &scope, gib(730));
    assert!(!guard.is_recovering());
}

#[test]
fn growth_that_is_only_expected_starts_no_recovery() {
    let (mut guard, scope) = after_burst(220, 620);
    // At 4 GB/s it would have 760 MiB by now, over the mark of 717.
    guard.add_used_bytes(ms(135), process(1), 2 << 20);
    assert!(!guard.is_recovering());
    guard.record_scope_use(ms(140), &scope, gib(725));
    assert!(guard.is_recovering());
}

#[test]
fn a_trickle_after_a_burst_ends_the_early_start() {
    let (mut guard, scope) = after_burst(500, 900);
    assert!(guard.is_recovering());
    // 50 MiB/s; the burst was 60 times as fast.
    for look in 1..=6 {
        guard.record_scope_use(ms(100 + look * 40), &scope, gib(900 + look * 2));
    }
    assert!(!guard.is_recovering());
}

/// It fills at 4 GB/s until it uses this much, in MiB. Returns the time of the last reading.
fn fill_group(guard: &mut MemoryGuard, up_to_mib: u64) -> (MemoryScope, Duration) {
    let scope = assess_group_of_a_large_machine(guard, gib(600));
    let mut now = ms(0);
    for used_mib in (760..=up_to_mib).step_by(160) {
        now += ms(40);
        guard.record_scope_use(now, &scope, gib(used_mib));
    }
    (scope, now)
}

#[test]
fn a_group_that_stops_growing_is_not_recovered_below_its_low_watermark() {
    let mut guard = guard();
    let (scope, now) = fill_group(&mut guard, 1400);
    assert!(guard.is_recovering());
    // One reading may come right after another, or while the program gets no CPU.
    for (after_ms, recovering) in [(1, true), (40, true), (150, true), (200, false)] {
        guard.record_scope_use(now + ms(after_ms), &scope, gib(1400));
        assert_eq!(guard.is_recovering(), recovering, "{after_ms}");
    }
}

#[test]
fn new_huge_pages_are_expected_between_readings_of_a_fast_fill() {
    let mut guard = guard();
    let (scope, now) = fill_group(&mut guard, 1400);
    let is_due = |guard: &mut MemoryGuard, at| {
        !guard.take_processes_due_for_listing(at, &[process(1)], true).is_empty()
    };
    assert!(is_due(&mut guard, now));
    assert!(!is_due(&mut guard, now));
    // 32 MiB at 4 GB/s.
    assert!(is_due(&mut guard, now + ms(20)));
    // Much is expected, but there was little growth.
    assert!(is_due(&mut guard, now + ms(300)));
    guard.record_scope_use(now + ms(300), &scope, gib(1401));
    guard.record_scope_use(now + ms(310), &scope, gib(1440));
    assert!(is_due(&mut guard, now + ms(310)), "39 MiB more than were seen");
}

#[test]
fn a_group_that_cannot_be_read_is_read_again_after_a_pause() {
    let mut guard = guard();
    let (scope, now) = fill_group(&mut guard, 1400);
    let at = guard.next_memory_read_at().expect("it is watched");
    assert!(at > now && guard.scopes_due_to_read(at).contains(&scope));
    guard.record_failed_read(at, &scope);
    assert!(!guard.scopes_due_to_read(at).contains(&scope));
}

/// A group that fills at 1 GiB/s and is emptied again; each read takes 2 ms of CPU time. Returns
/// the times of the reads, in milliseconds.
fn reads_of_group_that_fills_again_and_again(guard: &mut MemoryGuard, until: Duration) -> Vec<u64> {
    let scope = MemoryScope::Group("/a".to_owned());
    let _ = guard.assess(ms(0), &in_group("/a", gib(900), &[1]));
    let mut reads = vec![0];
    let mut now = ms(0);
    while now < until {
        now = guard.next_memory_read_at().expect("a group is watched").max(now + ms(1));
        let used_mib = 900 + now.as_millis() as u64 % 1100;
        guard.record_scope_use(now, &scope, gib(used_mib));
        guard.record_read_cost(now, ms(2));
        reads.push(now.as_millis() as u64);
    }
    reads
}

#[test]
fn reads_in_a_fast_fill_do_not_wait_for_earlier_ones() {
    let reads = reads_of_group_that_fills_again_and_again(&mut guard(), ms(1000));
    // Growth shows at the second one.
    let longest = reads[2..].windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest <= Some(160), "{reads:?}");
    assert!(reads.len() >= 15, "{reads:?}");
}

#[test]
fn reads_in_a_fast_fill_do_not_delay_those_of_other_groups() {
    let mut guard = guard();
    let both = |fills, other| MemoryState {
        groups: vec![
            CgroupMemory { usage: gib(fills), ..group("/fills", 0, &[1]) },
            CgroupMemory { usage: gib(other), ..group("/other", 0, &[2]) },
        ],
        ..machine(10)
    };
    let _ = guard.assess(ms(0), &both(900, 1900));
    let _ = guard.assess(ms(100), &both(1000, 1901));
    guard.record_read_cost(ms(100), ms(5));
    let [fills, other] = ["/fills", "/other"].map(|name| MemoryScope::Group(name.to_owned()));
    // 1 ms on average, which is 0.25 % of 0.4 s.
    for (time_ms, used_mib) in [(250, 1200), (400, 1400)] {
        let due = guard.scopes_due_to_read(ms(time_ms));
        assert_eq!(due, std::slice::from_ref(&fills), "{time_ms}");
        guard.record_scope_use(ms(time_ms), &fills, gib(used_mib));
        guard.record_read_cost(ms(time_ms), ms(1));
    }
    assert!(guard.scopes_due_to_read(ms(500)).contains(&other));
}

#[test]
fn reads_in_endless_fast_fills_keep_to_their_share_of_a_core() {
    let mut guard = guard();
    let reads = reads_of_group_that_fills_again_and_again(&mut guard, at_second(60));
    // 50 ms at once, and twice 0.25 % of a core: reads that waited, and reads that did not.
    let most = (50 + 2 * 150) / 2 + 10;
    assert!((75..=most).contains(&reads.len()), "{}", reads.len());
}
