use super::*;
use proptest::prelude::*;

const CYCLES: WalkEventSet = WalkEventSet::of_cycles("cycles in walks", 1, 2);
const WALKS: WalkEventSet = WalkEventSet::of_walks("walks", 1);

fn counts(loads: u64, stores: u64, cycles: u64) -> EventCounts {
    EventCounts { loads, stores, cycles, enabled_ns: cycles, running_ns: cycles }
}

fn percent(overhead: Option<TranslationOverhead>) -> Option<f64> {
    overhead.map(|o| (o.percent * 1000.0).round() / 1000.0)
}

/// The lower bound, the overhead and the upper bound of a first reading.
fn bounds<const N: usize>(threads: [(u32, EventCounts); N], events: &WalkEventSet) -> [f64; 3] {
    let overhead = OverheadMeter::default().overhead_since_last_counts(threads.into(), events);
    let overhead = overhead.expect("the overhead was measured");
    [overhead.low_percent, overhead.percent, overhead.high_percent]
}

#[test]
fn threads_come_and_go_and_their_ids_are_used_again() {
    let mut meter = OverheadMeter::default();
    let first = [(1, counts(0, 0, 1000)), (2, counts(500, 0, 1000))];
    meter.overhead_since_last_counts(first.into(), &CYCLES);
    let now = [(1, counts(100, 0, 2000)), (3, counts(400, 0, 1000))];
    assert_eq!(percent(meter.overhead_since_last_counts(now.into(), &CYCLES)), Some(25.0));
    // Thread 1 is another thread now.
    let again = [(1, counts(10, 0, 100))];
    assert_eq!(percent(meter.overhead_since_last_counts(again.into(), &CYCLES)), Some(10.0));
}

#[test]
fn multiplexed_counters_are_scaled() {
    let half = EventCounts { enabled_ns: 1000, ..counts(100, 0, 500) };
    // 200 of 2000 cycles; nothing was counted for a quarter of the time.
    let threads = [(1, half), (2, counts(0, 0, 1000))];
    assert_eq!(bounds(threads, &CYCLES), [7.5, 10.0, 12.5]);
}

#[test]
fn counted_walks_are_an_estimate() {
    assert_eq!(bounds([(1, counts(4, 0, 1000))], &WALKS), [7.0, 14.0, 28.0]);
}

/// Made-up counts of half a minute, in the form of a recording.
#[test]
fn overhead_follows_a_recording_of_counters() {
    let text = include_str!("../../../../tests/fixtures/counters.json");
    let recorded: Vec<ThreadCounts> = serde_json::from_str(text).expect("the fixture is valid");
    let mut meter = OverheadMeter::default();
    let series: Vec<_> = recorded
        .into_iter()
        .map(|read| percent(meter.overhead_since_last_counts(read, &CYCLES)))
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
            if let Some(o) = meter.overhead_since_last_counts(read, &CYCLES) {
                prop_assert!((0.0..=100.0).contains(&o.percent), "{:?}", o);
                prop_assert!(o.low_percent <= o.percent && o.percent <= o.high_percent, "{:?}", o);
            }
        }
    }
}
