use super::*;
use crate::setting_error::SettingError;
use crate::test_support::{
    all_proposals, assert_reason_text_and_json, at_second, cost_with_ready_page, huge_sample,
    next_proposal, observation, process, region, sample,
};

/// Faster than any of these tests proposes.
fn unlimited() -> LinuxPolicy {
    LinuxPolicy::new(Some(RatePerSecond::new(1e9).expect("a rate")))
}

fn default_with(count: u64) -> LinuxPolicy {
    let mut policy = LinuxPolicy::new(None);
    policy.observe(&observation(&[(1, regions(0..count))]));
    policy
}

/// Takes up to `n` proposals at `now` and reports that all were carried out.
fn take(policy: &mut LinuxPolicy, now: Duration, n: usize) -> Vec<(u32, u64)> {
    let mut taken = Vec::new();
    while taken.len() < n {
        let ready = HugePageReadiness::Ready;
        let Some(p) = policy.pop_next_promotion(now, ready, &HashSet::new()) else {
            break;
        };
        policy.on_promotion_result(
            p.process,
            p.region,
            cost_with_ready_page(Duration::from_micros(400)),
        );
        taken.push((p.process.pid, p.region.start() >> 21));
    }
    taken
}

fn regions(indices: std::ops::Range<u64>) -> Vec<RegionSample> {
    indices.map(|i| sample(i, 0)).collect()
}

#[test]
fn one_process_before_the_next_in_address_order() {
    let mut policy = unlimited();
    policy.observe(&observation(&[(7, regions(1..4)), (3, regions(0..2))]));
    let taken = take(&mut policy, at_second(0), 9);
    assert_eq!(taken, [(7, 1), (7, 2), (7, 3), (3, 0), (3, 1)]);
}

#[test]
fn eight_regions_every_ten_seconds() {
    let mut policy = default_with(30);
    assert_eq!(take(&mut policy, at_second(0), 99).len(), 8);
    assert_eq!(take(&mut policy, at_second(9), 99).len(), 0);
    assert_eq!(take(&mut policy, at_second(10), 99).len(), 8);
    // Idle time is not saved up.
    assert_eq!(take(&mut policy, at_second(100), 99).len(), 8);
}

#[test]
fn only_successes_count() {
    let mut policy = default_with(30);
    for _ in 0..5 {
        let next = next_proposal(&mut policy).expect("only successes may count");
        // Reported twice, counted once.
        policy.on_promotion_result(next.process, next.region, None);
        policy.on_promotion_result(next.process, next.region, None);
    }
    assert_eq!(take(&mut policy, at_second(0), 99).len(), 8);
}

#[test]
fn proposals_under_way_count_until_they_fail() {
    let mut policy = default_with(30);
    let under_way = all_proposals(&mut policy);
    assert_eq!(under_way.len(), 8);
    policy.on_promotion_result(process(1), under_way[3].region, None);
    assert_eq!(take(&mut policy, at_second(1), 99).len(), 1);
}

#[test]
fn a_given_rate_replaces_the_pace() -> Result<(), SettingError> {
    let mut policy = LinuxPolicy::new(Some(RatePerSecond::new(2.0)?));
    policy.observe(&observation(&[(1, regions(0..100))]));
    assert_eq!(take(&mut policy, at_second(0), 99).len(), 2);
    assert_eq!(take(&mut policy, at_second(1), 99).len(), 2);
    Ok(())
}

#[test]
fn one_present_page_is_enough() {
    let present = |index, present| RegionSample { present, ..sample(index, 0) };
    let samples = vec![present(0, 0), present(1, 448), present(2, 1), huge_sample(3, true)];
    let mut policy = unlimited();
    policy.observe(&observation(&[(1, samples)]));
    let taken = next_proposal(&mut policy);
    assert_eq!(taken.as_ref().map(|p| p.region), Some(region(1)));
    let reason = Reason::new(AddressOrderReason { present: 448 });
    let text = "next in address order, 448 base pages present";
    assert_reason_text_and_json(&reason, text, r#"{"rule":"address-order","present":448}"#);
    assert_eq!(taken.map(|p| p.reason), Some(reason));
    assert_eq!(take(&mut policy, at_second(0), 9), [(1, 2)]);
}

#[test]
fn the_scan_goes_on_where_it_was_and_wraps() {
    let mut policy = unlimited();
    let round = observation(&[(1, regions(0..3)), (2, regions(0..3))]);
    policy.observe(&round);
    assert_eq!(take(&mut policy, at_second(0), 2), [(1, 0), (1, 1)]);
    // Assume that these failed: they wait until the scan has been round.
    policy.observe(&round);
    let taken = take(&mut policy, at_second(0), 4);
    assert_eq!(taken, [(1, 2), (2, 0), (2, 1), (2, 2)]);
    policy.observe(&round);
    let once_round = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
    assert_eq!(take(&mut policy, at_second(0), 99), once_round);
}

#[test]
fn the_scan_goes_on_after_a_process_that_is_gone() {
    let mut policy = unlimited();
    policy.observe(&observation(&[(1, regions(0..2)), (2, regions(0..2)), (3, regions(0..2))]));
    assert_eq!(take(&mut policy, at_second(0), 3), [(1, 0), (1, 1), (2, 0)]);
    policy.observe(&observation(&[(1, regions(0..2)), (3, regions(0..2)), (4, regions(0..1))]));
    assert_eq!(take(&mut policy, at_second(0), 3), [(3, 0), (3, 1), (4, 0)]);
    // The last process is gone and there is no new one: from the first again.
    policy.observe(&observation(&[(1, regions(0..2)), (3, regions(0..2))]));
    assert_eq!(take(&mut policy, at_second(0), 1), [(1, 0)]);
    // All are gone except a newcomer.
    policy.observe(&observation(&[(9, regions(0..2))]));
    assert_eq!(take(&mut policy, at_second(0), 9), [(9, 0), (9, 1)]);
}
