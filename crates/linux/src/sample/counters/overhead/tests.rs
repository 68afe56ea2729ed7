use super::*;
use crate::sample::counters::events::{CounterEvents, CpuIdentity, choose};
use proptest::prelude::*;

fn events(model: u32) -> EventSet {
    let cpu = CpuIdentity::Intel { family: 6, model };
    choose(&cpu, CounterEvents::default()).expect("the processor is in the table")
}

fn zen() -> EventSet {
    let cpu = CpuIdentity::Amd {
        family: 0x19,
        model: 0x01,
    };
    choose(&cpu, CounterEvents::default()).expect("the processor is in the table")
}

fn counts(loads: u64, stores: u64, cycles: u64) -> EventCounts {
    EventCounts {
        loads,
        stores,
        cycles,
        enabled_ns: cycles,
        running_ns: cycles,
    }
}

fn percent(overhead: Option<Overhead>) -> Option<f64> {
    overhead.map(|o| (o.percent * 1000.0).round() / 1000.0)
}

#[test]
fn threads_come_and_go_and_their_ids_are_used_again() {
    let mut meter = OverheadMeter::default();
    meter.update(
        ThreadCounts::from([(1, counts(0, 0, 1000)), (2, counts(500, 0, 1000))]),
        &events(0x55),
    );
    let now = ThreadCounts::from([(1, counts(100, 0, 2000)), (3, counts(400, 0, 1000))]);
    assert_eq!(percent(meter.update(now, &events(0x55))), Some(25.0));
    // Thread 1 is another thread now.
    let again = ThreadCounts::from([(1, counts(10, 0, 100))]);
    assert_eq!(percent(meter.update(again, &events(0x55))), Some(10.0));
}

#[test]
fn multiplexed_counters_are_scaled() {
    let half = EventCounts {
        loads: 100,
        stores: 0,
        cycles: 500,
        enabled_ns: 1000,
        running_ns: 500,
    };
    let full = counts(0, 0, 1000);
    let mut meter = OverheadMeter::default();
    let overhead = meter.update(ThreadCounts::from([(1, half), (2, full)]), &events(0x55));
    // 200 of 2000 cycles; nothing was counted for a quarter of the time.
    let overhead = overhead.expect("the overhead was measured");
    assert_eq!(overhead.percent, 10.0);
    assert_eq!((overhead.low_percent, overhead.high_percent), (7.5, 12.5));
}

#[test]
fn counted_walks_are_an_estimate() {
    let mut meter = OverheadMeter::default();
    let overhead = meter.update(ThreadCounts::from([(1, counts(4, 0, 1000))]), &zen());
    let overhead = overhead.expect("the overhead was measured");
    let [low, high] = [overhead.low_percent, overhead.high_percent];
    assert_eq!([low, overhead.percent, high], [7.0, 14.0, 28.0]);
}

/// Recorded counts of half a minute, so that the arithmetic is tested without counters.
#[test]
fn overhead_follows_a_recording_of_counters() {
    let text = include_str!("../../../../tests/fixtures/counters.json");
    let recorded: Vec<ThreadCounts> = serde_json::from_str(text).expect("the fixture is valid");
    let mut meter = OverheadMeter::default();
    let series: Vec<_> = recorded
        .into_iter()
        .map(|read| percent(meter.update(read, &events(0x3f))))
        .collect();
    let expected = [Some(39.0), Some(40.0), Some(12.0), None, Some(2.0)];
    assert_eq!(series, expected);
}

proptest! {
    #[test]
    fn the_overhead_is_always_a_share(reads in prop::collection::vec(
        prop::collection::btree_map(0u32..4, (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()), 0..4), 0..6)
    ) {
        let mut meter = OverheadMeter::default();
        for read in reads {
            let read = read.into_iter().map(|(thread, (loads, stores, cycles, enabled, running))| (thread, EventCounts {
                loads: loads.into(), stores: stores.into(), cycles: cycles.into(),
                enabled_ns: enabled.into(), running_ns: running.into(),
            })).collect();
            if let Some(o) = meter.update(read, &events(0x55)) {
                prop_assert!((0.0..=100.0).contains(&o.percent), "{:?}", o);
                prop_assert!(o.low_percent <= o.percent && o.percent <= o.high_percent, "{:?}", o);
            }
        }
    }
}
