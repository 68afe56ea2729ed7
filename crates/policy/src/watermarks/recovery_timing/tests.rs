use super::*;
use proptest::prelude::*;

const GB: f64 = 1e9;
const GIB: u64 = 1 << 30;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn a_rise_shows_at_once_and_is_forgotten_slowly() {
    let mut growth = MemoryGrowth::default();
    growth.record_use(at(0.0), GIB);
    assert_eq!(growth.bytes_per_s(), 0.0);
    growth.record_use(at(1.0), 2 * GIB);
    assert!(growth.bytes_per_s() > 0.99 * GIB as f64);
    growth.record_use(at(2.0), 2 * GIB);
    assert!(growth.bytes_per_s() > 0.6 * GIB as f64);
    growth.record_use(at(60.0), 2 * GIB);
    assert_eq!(growth.bytes_per_s(), 0.0);
    assert_eq!(growth.total_growth_bytes(), GIB as f64);
}

#[test]
fn the_managers_own_changes_do_not_count_as_growth() {
    let mut growth = MemoryGrowth::default();
    growth.record_use(at(0.0), GIB);
    growth.record_manager_use(GIB as i64);
    growth.record_use(at(1.0), 2 * GIB);
    assert_eq!(growth.bytes_per_s(), 0.0);
    // Given back and filled again: the program grew.
    growth.record_manager_use(-(GIB as i64));
    growth.record_use(at(2.0), 2 * GIB);
    assert!(growth.bytes_per_s() > 0.9 * GIB as f64);
    assert_eq!(growth.total_growth_bytes(), GIB as f64);
}

#[test]
fn a_stopped_clock_gives_no_growth() {
    let mut growth = MemoryGrowth::default();
    growth.record_use(at(5.0), GIB);
    growth.record_use(at(5.0), 2 * GIB);
    growth.record_use(at(4.0), 3 * GIB);
    assert_eq!(growth.bytes_per_s(), 0.0);
    growth.record_use(at(6.0), 2 * GIB);
    assert!(growth.bytes_per_s() > 0.9 * GIB as f64);
}

#[test]
fn recovery_in_a_container_of_2_gib_starts_by_its_growth() {
    let marks = Watermarks::default();
    let starts = |earliest| {
        let start = |g| recovery_start_percent(marks, earliest, 2 * GIB, g * GB, GB).round();
        [0.0, 0.1, 0.4, 0.5, 1.0, 2.0, 4.0, 8.0].map(start)
    };
    let of_group = starts(earliest_start_of_group(marks));
    assert_eq!(of_group, [85.0, 85.0, 85.0, 82.0, 73.0, 64.0, 57.0, 55.0]);
    let of_machine = starts(earliest_start_of_machine(marks));
    assert_eq!(of_machine, [85.0, 85.0, 85.0, 82.0, 74.0, 74.0, 74.0, 74.0]);
}

#[test]
fn recovery_that_starts_early_ends_as_early() {
    let end = |start| recovery_end_percent(Watermarks::default(), start);
    assert_eq!([85.0, 73.75, 64.0, 57.0].map(end), [70.0, 70.0, 60.25, 53.25]);
}

#[test]
fn searches_without_result_do_not_change_the_speed() {
    let mut speed = RecoverySpeed::default();
    speed.record_recovery(0, at(1.0));
    assert_eq!(speed.bytes_per_s, DEFAULT_SPEED);
    (0..200).for_each(|_| speed.record_recovery(1 << 20, at(0.01)));
    assert!((speed.bytes_per_s / f64::from(100 << 20) - 1.0).abs() < 0.01);
}

#[test]
fn urgent_work_without_end_takes_a_quarter_of_a_core() {
    let mut limit = UrgentWorkLimit::of_group(2 * GIB);
    let (mut now, mut worked, mut rests) = (at(100.0), Duration::ZERO, 0);
    while now < at(1000.0) {
        limit.update(now);
        if limit.rests_until().is_some() {
            rests += 1;
            now += Duration::from_secs(1);
        } else {
            let piece = Duration::from_millis(10);
            now += piece;
            worked += piece;
            limit.record_work(now, piece);
        }
        let most = URGENT_AT_ONCE_S + 0.02 + (now - at(100.0)).as_secs_f64() * URGENT_CORES;
        assert!(worked.as_secs_f64() <= most, "{worked:?} by {now:?}");
    }
    assert!(worked > at(200.0), "{worked:?}");
    assert!(rests > 500, "{rests}");
}

#[test]
fn a_large_group_may_be_recovered_once_as_a_whole() {
    let mut limit = UrgentWorkLimit::of_group(64 * GIB);
    for (work_s, rests) in [(63.0, false), (2.0, true)] {
        limit.record_work(at(1.0), at(work_s));
        assert_eq!(limit.rests_until().is_some(), rests, "{work_s}");
    }
}

#[test]
fn a_group_with_another_limit_may_use_what_that_limit_allows_and_keeps_its_debt() {
    let mut limit = UrgentWorkLimit::of_group(2 * GIB);
    let now = at(1.0);
    limit.record_work(now, at(6.0));
    assert!(limit.rests_until().is_some());
    // 58 s are left of 64 s.
    limit.set_group_limit(now, 64 * GIB);
    limit.update(now);
    assert_eq!(limit.rests_until(), None);
    for (work_s, rests) in [(57.0, false), (2.0, true)] {
        limit.record_work(now, at(work_s));
        assert_eq!(limit.rests_until().is_some(), rests, "{work_s}");
    }
    let rests_until = limit.rests_until();
    limit.set_group_limit(now, 2 * GIB);
    limit.update(now);
    assert_eq!(limit.rests_until(), rests_until);
    // A limit that goes up and down gives no more.
    limit.set_group_limit(now, 64 * GIB);
    limit.update(now);
    assert_eq!(limit.rests_until(), rests_until);
}

fn usage(used_mib: u64, total_mib: u64) -> MemoryUse {
    MemoryUse { used_bytes: used_mib << 20, total_bytes: total_mib << 20 }
}

#[test]
fn memory_is_checked_more_often_the_less_is_left() {
    assert_eq!(wanted_read_interval(usage(4096, 24 << 10), 0.0), SELDOM);
    let half = wanted_read_interval(usage(1024, 2048), 0.0);
    assert!(half > OFTEN && half < SELDOM / 5, "{half:?}");
    assert_eq!(wanted_read_interval(usage(1800, 2048), 0.0), OFTEN);
    assert_eq!(wanted_read_interval(usage(3000, 2048), 0.0), OFTEN);
    assert!(wanted_read_interval(usage(1024, 2048), 8e9) < half);
}

#[test]
fn checks_of_memory_stay_cheap() {
    let mut pace = MemoryReadRateLimit::default();
    assert_eq!(pace.ready_at(), Duration::ZERO);
    let mut pause_after_reads_of = |cost| {
        for _ in 0..50 {
            pace.record_change();
            pace.record_cost(at(100.0), cost);
        }
        pace.ready_at().as_secs_f64() - 100.0
    };
    assert!(pause_after_reads_of(Duration::from_micros(50)) < OFTEN.as_secs_f64());
    // A hundred groups: 2 ms a read.
    let pause_s = pause_after_reads_of(Duration::from_millis(2));
    assert!((pause_s - 0.8).abs() < 0.02, "{pause_s}");
    // The share holds for thousands of groups too.
    let pause_s = pause_after_reads_of(Duration::from_millis(100));
    assert!((pause_s - 40.0).abs() < 0.2, "{pause_s}");
}

#[test]
fn memory_is_read_less_often_while_no_use_changes() {
    let mut pace = MemoryReadRateLimit::default();
    let pause_s = |pace: MemoryReadRateLimit| pace.ready_at().as_secs_f64() - 100.0;
    (0..50).for_each(|_| pace.record_cost(at(100.0), Duration::from_millis(1)));
    assert!((pause_s(pace) - 2.0).abs() < 0.02, "{}", pause_s(pace));
    pace.record_change();
    assert!((pause_s(pace) - 0.4).abs() < 0.02, "at once: {}", pause_s(pace));
    pace.record_cost(at(100.0), Duration::from_millis(1));
    assert!((pause_s(pace) - 0.4).abs() < 0.02, "also after that read");
    pace.record_cost(at(100.0), Duration::from_millis(1));
    assert!((pause_s(pace) - 2.0).abs() < 0.02, "it is quiet again");
    // A few groups, beside whatever else a read does.
    (0..50).for_each(|_| pace.record_cost(at(100.0), Duration::from_micros(200)));
    assert!(pause_s(pace) < 0.081, "{}", pause_s(pace));
}

proptest! {
    #[test]
    fn recovery_starts_earlier_with_faster_growth_and_by_the_high_mark(
        total in 1u64..1 << 42,
        low in 1.0..98.0f64,
        gap in 0.5..50.0f64,
        g in 0.0..1e11f64,
        more in 0.0..1e11f64,
        r in 1.0..1e11f64,
    ) {
        let marks = Watermarks::new((low + gap).min(100.0), low)?;
        for earliest in [earliest_start_of_group(marks), earliest_start_of_machine(marks)] {
            let start = |g, r| recovery_start_percent(marks, earliest, total, g, r);
            prop_assert!(start(g, r) <= marks.high_percent());
            prop_assert!(start(g, r) >= earliest && earliest >= low / 2.0);
            prop_assert!(start(g + more, r) <= start(g, r) + 1e-9);
            prop_assert_eq!(start(0.0, r), marks.high_percent());
            let end = recovery_end_percent(marks, start(g, r));
            let fits = 0.0 < end && end < start(g, r) && end <= marks.low_percent();
            prop_assert!(fits, "{}", end);
        }
    }

    /// Constant use ends as no growth, whatever came before.
    #[test]
    fn constant_use_is_no_growth(
        course in prop::collection::vec((0.01..2.0f64, 0u64..1 << 35), 1..20),
        used in 0u64..1 << 35,
    ) {
        let mut growth = MemoryGrowth::default();
        let mut now = 0.0;
        for (step, used) in course {
            now += step;
            growth.record_use(at(now), used);
        }
        for _ in 0..100 {
            now += 1.0;
            growth.record_use(at(now), used);
        }
        prop_assert_eq!(growth.bytes_per_s(), 0.0);
    }
}
