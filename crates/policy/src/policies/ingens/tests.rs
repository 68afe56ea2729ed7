//! Ingens's order, in fixed and random cases.

use super::*;
use crate::test_support::{
    assert_reason_text_and_json, huge_sample, next_proposal, observation, process, region, sample,
    spread_of,
};
use proptest::prelude::*;
use std::collections::HashSet;

fn present(index: u64, present: u16) -> RegionSample {
    RegionSample { present, ..sample(index, 0) }
}

fn full(regions: std::ops::Range<u64>) -> Vec<RegionSample> {
    regions.map(|i| present(i, 512)).collect()
}

fn unfragmented(processes: &[(u32, Vec<RegionSample>)]) -> Observation {
    Observation { fmfi: Some(0.1), ..observation(processes) }
}

fn policy() -> Ingens {
    Ingens::new(IngensSettings::default())
}

fn take(policy: &mut Ingens, n: usize) -> Vec<Promotion> {
    std::iter::from_fn(|| next_proposal(policy)).take(n).collect()
}

fn indices(policy: &mut Ingens) -> Vec<u64> {
    next_indices(policy, usize::MAX)
}

fn next_indices(policy: &mut Ingens, n: usize) -> Vec<u64> {
    let next = take(policy, n);
    next.iter().map(|p| p.region.start() >> 21).collect()
}

fn count(promotions: &[Promotion]) -> HashMap<u32, u64> {
    let mut count = HashMap::new();
    for promotion in promotions {
        *count.entry(promotion.process.pid).or_default() += 1;
    }
    count
}

#[test]
fn ranges_of_the_settings() {
    for (utilisation, switch) in
        [(0.0, 0.5), (100.1, 0.5), (f64::NAN, 0.5), (90.0, -0.1), (90.0, 1.1), (90.0, f64::NAN)]
    {
        let made = IngensSettings::new(utilisation, switch);
        assert!(made.is_err(), "{utilisation} {switch}");
    }
    let usual = IngensSettings::new(90.0, 0.5);
    assert_eq!(usual, Ok(IngensSettings::default()));
}

/// 90 % of 512 are 460.8, and 50 % are 256.
#[test]
fn fragmentation_decides_how_much_must_be_present() -> Result<(), SettingError> {
    let samples = vec![
        present(0, 0),
        present(1, 1),
        present(2, 256),
        present(3, 460),
        present(4, 461),
        huge_sample(5, true),
    ];
    let strict = IngensSettings::default();
    let half = IngensSettings::new(50.0, 0.0)?;
    let cases: [(IngensSettings, Option<f64>, &[u64]); 6] = [
        (strict, Some(0.0), &[1, 2, 3, 4]),
        (strict, Some(0.49), &[1, 2, 3, 4]),
        (strict, Some(0.5), &[4]),
        (strict, Some(1.0), &[4]),
        (strict, None, &[4]),
        (half, Some(0.0), &[2, 3, 4]),
    ];
    for (settings, fmfi, expected) in cases {
        let mut policy = Ingens::new(settings);
        policy.observe(&Observation { fmfi, ..observation(&[(1, samples.clone())]) });
        assert_eq!(indices(&mut policy), expected, "{settings:?} {fmfi:?}");
    }
    Ok(())
}

/// 461 pages of 512 are enough.
#[test]
fn in_the_order_in_which_faults_filled_them_then_as_a_scan_finds_them() {
    let mut policy = policy();
    let round = |pages: &[u16]| {
        let samples = (1..).zip(pages);
        let samples = samples.map(|(i, pages)| present(i, *pages)).collect();
        observation(&[(1, samples)])
    };
    policy.observe(&round(&[100, 461, 512, 100, 0]));
    assert_eq!(indices(&mut policy), [2, 3]);
    // 1 and 5 are full only now; 2 has grown and keeps its place.
    policy.observe(&round(&[500, 512, 512, 100, 512]));
    assert_eq!(indices(&mut policy), [2, 3, 1, 5]);
    // After a failed promotion a region leaves the queue until it grows again; 4 is full only now.
    policy.on_promotion_result(process(1), region(1), None);
    policy.on_promotion_result(process(1), region(2), None);
    policy.observe(&round(&[501, 512, 512, 511, 512]));
    assert_eq!(indices(&mut policy), [3, 5, 1, 4, 2]);
    // 3 is emptied and gone; later it is filled anew.
    policy.observe(&round(&[501, 512, 100, 511, 512]));
    assert_eq!(indices(&mut policy), [5, 1, 4, 2]);
    policy.observe(&round(&[501, 512, 512, 511, 512]));
    assert_eq!(indices(&mut policy), [5, 1, 4, 3, 2]);
}

/// The scan of one round ends at 3: the next one begins after it.
#[test]
fn a_scan_goes_on_where_it_was() {
    let mut policy = policy();
    let all_huge: Vec<_> = (1..6).map(|i| huge_sample(i, true)).collect();
    policy.observe(&observation(&[(1, all_huge)]));
    let split: Vec<_> = (1..6).map(|i| present(i, 480)).collect();
    policy.observe(&observation(&[(1, split.clone())]));
    assert_eq!(next_indices(&mut policy, 3), [1, 2, 3]);
    policy.observe(&observation(&[(1, split)]));
    assert_eq!(next_indices(&mut policy, 9), [4, 5, 1, 2, 3]);
}

/// Memory of 60, 30 and 30 regions. The first promotions have the metrics 60 / 0.25 = 240 and
/// 30 / 0.25 = 120, the second of the first process 60 / (0.25 * 2) = 120: 2 to 1 to 1.
#[test]
fn huge_pages_in_proportion_to_memory() {
    let mut policy = policy();
    let processes = [(1, full(0..60)), (2, full(0..30)), (3, full(0..30))];
    policy.observe(&unfragmented(&processes));
    let promotions = take(&mut policy, 40);
    let order: Vec<u32> = promotions.iter().map(|p| p.process.pid).take(5).collect();
    assert_eq!(order, [1, 1, 2, 3, 1]);
    let shares = HashMap::from([(1, 20), (2, 10), (3, 10)]);
    assert_eq!(count(&promotions), shares);
}

/// Equal memory. The weight of 2 makes the third's claim equal to that of the others together.
#[test]
fn weight_is_a_claim_to_more() {
    let mut policy = policy();
    let mut round = unfragmented(&[(1, full(0..30)), (2, full(0..30)), (3, full(0..30))]);
    round.processes[2].terms.weight = 2.0;
    policy.observe(&round);
    let shares = count(&take(&mut policy, 40));
    assert_eq!(shares, HashMap::from([(1, 10), (2, 10), (3, 20)]));
}

/// Both hold 100 regions, 10 of them huge: idle ones in the first process, used ones in the second.
/// With one more the divisors are 10 + 0.25 = 10.25 and 0.25 * 11 = 2.75. The second falls to the
/// first's metric when 0.25 * (10 + n + 1) = 10.25, after n = 30.
#[test]
fn idle_huge_pages_cost_four_times_as_much() {
    let with = |accessed| {
        let mut samples: Vec<_> = (0..10).map(|i| huge_sample(i, accessed)).collect();
        samples.extend(full(10..100));
        samples
    };
    let mut policy = policy();
    policy.observe(&unfragmented(&[(1, with(false)), (2, with(true))]));
    let pids: Vec<u32> = take(&mut policy, 33).iter().map(|p| p.process.pid).collect();
    let mut expected = vec![2; 30];
    // 9.76 each, first come, first served; then 10 + 0.5 against 10.25.
    expected.extend([1, 2, 1]);
    assert_eq!(pids, expected);
}

#[test]
fn a_reason_and_an_expectation_are_given() {
    let mut policy = policy();
    policy.observe(&unfragmented(&[(1, vec![present(3, 384)])]));
    // 384 of 512 pages are 0.75 of a region: 0.75 / 0.25 = 3.
    let reason = Reason::new(UtilisationReason { present: 384, fmfi: Some(0.1), importance: 3.0 });
    let text = "384 of 512 base pages present with a fragmentation of 0.10, importance 3.00";
    let json = r#"{"rule":"utilisation","present":384,"fmfi":0.1,"importance":3.0}"#;
    assert_reason_text_and_json(&reason, text, json);
    let expected = Promotion::to_huge_page(process(1), region(3), 384, None, reason);
    assert_eq!(take(&mut policy, 9), [expected]);
}

#[test]
fn a_refused_region_comes_back_and_a_gone_process_does_not() {
    let mut policy = policy();
    let round = unfragmented(&[(1, full(0..2)), (2, full(0..2))]);
    policy.observe(&round);
    for promotion in take(&mut policy, usize::MAX) {
        policy.on_promotion_result(promotion.process, promotion.region, None);
    }
    assert_eq!(take(&mut policy, 1), []);
    policy.observe(&unfragmented(&[(2, full(0..2))]));
    assert_eq!(count(&take(&mut policy, 9)), HashMap::from([(2, 2)]));
    let mut unread = unfragmented(&[(1, full(0..2))]);
    unread.unread = vec![process(2)];
    policy.observe(&round);
    policy.observe(&unread);
    let both = HashMap::from([(1, 2), (2, 2)]);
    assert_eq!(count(&take(&mut policy, 9)), both, "known candidates stay");
}

#[test]
fn unsorted_and_duplicate_samples_do_no_harm() {
    let mut policy = policy();
    let samples = vec![present(2, 9), present(1, 9), present(2, 9)];
    policy.observe(&unfragmented(&[(1, samples)]));
    assert_eq!(indices(&mut policy), [1, 2]);
}

fn rounds() -> impl Strategy<Value = Vec<Vec<(u16, bool)>>> {
    let pages = prop_oneof![Just(0u16), Just(512u16), 0u16..=512];
    let region = (pages, prop::bool::weighted(0.2));
    prop::collection::vec(prop::collection::vec(region, 0..25), 1..6)
}

proptest! {
    /// The order is that of the rule, computed from the whole history.
    #[test]
    fn each_eligible_region_once_and_in_order(
        rounds in rounds(),
        fmfi in prop::option::of(0.0..=1.0f64),
    ) {
        let enough = if fmfi.is_some_and(|f| f < 0.5) { 1 } else { 461 };
        let mut policy = policy();
        let mut history: HashMap<u64, (u16, Option<usize>)> = HashMap::new();
        let mut scanned: Option<u64> = None;
        for (number, regions) in rounds.iter().enumerate() {
            let samples: Vec<_> = (0u64..)
                .zip(regions)
                .map(|(i, (pages, is_huge))| if *is_huge { huge_sample(i, true) } else { present(i, *pages) })
                .collect();
            let fits = |s: &RegionSample| !s.is_huge() && s.present >= enough;
            let now = (0u64..)
                .zip(&samples)
                .map(|(i, s)| {
                    let before = history.get(&i);
                    let faulted = before.is_none_or(|b| s.present > b.0);
                    let queued = before.and_then(|b| b.1).or(faulted.then_some(number));
                    (i, (s.present, queued.filter(|_| fits(s))))
                })
                .collect();
            history = now;
            let mut expected: Vec<u64> = (0u64..)
                .zip(&samples)
                .filter(|(_, s)| fits(s))
                .map(|(i, _)| i)
                .collect();
            let queued = |i: &u64| history.get(i).and_then(|h| h.1);
            expected.sort_by_key(|i| {
                let behind = queued(i).is_none() && scanned.is_some_and(|to| *i <= to);
                (queued(i).unwrap_or(usize::MAX), behind, *i)
            });
            scanned = expected.iter().copied().rfind(|i| queued(i).is_none()).or(scanned);
            policy.observe(&Observation { fmfi, ..observation(&[(1, samples)]) });
            prop_assert_eq!(indices(&mut policy), expected);
        }
    }

    /// Equal processes get equally many, to within one, however often they are observed on the way.
    #[test]
    fn equals_get_equal_shares(
        processes in 1u32..8,
        turns in 0usize..60,
        observe_every in 1usize..25,
    ) {
        let mut policy = policy();
        let mut promoted: HashSet<(u32, RegionAddr)> = HashSet::new();
        let mut turns_of = vec![0u32; processes as usize];
        for turn in 0..turns {
            if turn % observe_every == 0 {
                let samples = (1..=processes).map(|pid| {
                    let regions = (0..40).map(|i| {
                        let done = promoted.contains(&(pid, region(i)));
                        if done { huge_sample(i, true) } else { present(i, 512) }
                    });
                    (pid, regions.collect())
                });
                let samples: Vec<_> = samples.collect();
                policy.observe(&unfragmented(&samples));
            }
            let Some(promotion) = next_proposal(&mut policy) else { break };
            let pid = promotion.process.pid;
            prop_assert!(promoted.insert((pid, promotion.region)), "proposed twice");
            turns_of[pid as usize - 1] += 1;
            prop_assert!(spread_of(&turns_of) <= Some(1), "{:?}", turns_of);
        }
    }

    #[test]
    fn the_metric_falls_with_each_promotion(
        sizes in prop::collection::vec((1u64..40, 0u64..10, 0u64..10, 0.1..5.0f64), 1..6),
    ) {
        let mut round = unfragmented(&[]);
        for (pid, (base, used, idle, weight)) in (1u32..).zip(&sizes) {
            let mut samples = full(0..*base);
            samples.extend((*base..base + used).map(|i| huge_sample(i, true)));
            samples.extend((base + used..base + used + idle).map(|i| huge_sample(i, false)));
            let mut one = observation(&[(pid, samples)]);
            one.processes.iter_mut().for_each(|p| p.terms.weight = *weight);
            round.processes.append(&mut one.processes);
        }
        let mut policy = policy();
        policy.observe(&round);
        let importances: Vec<f64> = take(&mut policy, usize::MAX)
            .iter()
            .filter_map(|p| p.reason.data::<UtilisationReason>())
            .map(|reason| reason.importance)
            .collect();
        prop_assert_eq!(importances.len() as u64, sizes.iter().map(|s| s.0).sum::<u64>());
        prop_assert!(importances.is_sorted_by(|a, b| a >= b), "{:?}", importances);
    }
}
