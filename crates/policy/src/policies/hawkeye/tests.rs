mod file_mappers;

use super::*;
use crate::machine_page_properties::MachinePageProperties;
use crate::observation::{CoverageSource, MemoryOutsideRegions, ProcessSample, RegionSample};
use crate::page::PageOrderSet;
use crate::test_support::{
    at_second, cost_with_ready_page, huge_sample, next_proposal, observation_with_overheads,
    process, region, sample,
};
use crate::translation_overhead::{TranslationOverhead, TranslationOverheadSource};
use proptest::prelude::*;
use std::collections::HashMap;

fn walking(index: u64, walks_per_s: u32) -> RegionSample {
    RegionSample { walks_per_s, ..sample(index, 512) }
}

fn round(processes: &[(Option<f64>, Vec<RegionSample>)]) -> Observation {
    observation_with_overheads(processes, TranslationOverheadSource::WalkRate)
}

fn drain(policy: &mut Hawkeye) -> Vec<(u32, RegionAddr)> {
    let all = crate::test_support::all_proposals(policy).into_iter();
    all.map(|p| (p.process.pid, p.region)).collect()
}

fn policy() -> Hawkeye {
    Hawkeye::new(CoverageAveraging::default(), PromotionFloor::default())
}

fn seen(percent: f64, regions: Vec<RegionSample>) -> Hawkeye {
    let mut policy = policy();
    see(&mut policy, percent, regions, |_| {});
    policy
}

fn see(
    policy: &mut Hawkeye,
    percent: f64,
    regions: Vec<RegionSample>,
    more: impl FnOnce(&mut ProcessSample),
) {
    let mut observation = round(&[(Some(percent), regions)]);
    more(&mut observation.processes[0]);
    policy.observe(&observation);
}

fn cost(policy: &mut Hawkeye, cost: Duration) {
    for _ in 0..100 {
        policy.on_promotion_result(process(9), region(0), cost_with_ready_page(cost));
    }
}

#[test]
fn the_region_that_saves_most_comes_first() {
    let mut regions: Vec<_> = (1..).zip([10, 3000, 200, 0]).map(|(i, w)| walking(i, w)).collect();
    regions.push(huge_sample(5, true));
    let mut policy = seen(30.0, regions);
    // 10 of 3210 walks are 0.09 % of a core: they pay within five minutes. But by then the
    // remaining overhead is under 0.5 %.
    assert_eq!(drain(&mut policy), [(1, region(2)), (1, region(3))]);
}

#[test]
fn overhead_of_unsampled_walks_does_not_count_as_saved() {
    let promoted = |seen| {
        let mut policy = policy();
        let regions = (0..100).map(|i| walking(i, 1000)).collect();
        see(&mut policy, 30.0, regions, |sample| {
            sample.walks_seen = seen;
        });
        drain(&mut policy).len()
    };
    // After 99 of the 100, under 0.5 % of 30 are left. Where there may be 100 more, 15 are left
    // after all known ones.
    assert_eq!(promoted(1.0), 99);
    assert_eq!(promoted(0.5), 100);
}

#[test]
fn regions_not_sampled_yet_follow_where_the_sampled_ones_are_alike() {
    let promoted = |walks: &dyn Fn(u64) -> u32, present| {
        let mut policy = policy();
        let regions = (0..200).map(|i| RegionSample {
            present: if i < 100 { 512 } else { present },
            ..walking(i, if i < 100 { walks(i) } else { 0 })
        });
        see(&mut policy, 30.0, regions.collect(), |sample| {
            sample.walks_seen = 0.5;
        });
        let regions = drain(&mut policy).into_iter();
        let (sampled, others): (Vec<_>, Vec<_>) =
            regions.partition(|(_, promoted)| *promoted < region(100));
        (sampled.len(), others.len())
    };
    let alike = |i: u64| 1000 + u32::try_from(i).expect("a small number");
    let (sampled, others) = promoted(&alike, 512);
    assert!(sampled > 80 && others == 100, "{sampled} and {others}");
    // Their promotion would add memory.
    assert_eq!(promoted(&alike, 511), (100, 0));
    // A fifth of the sampled ones is cold, so a fifth of the others may be.
    assert_eq!(promoted(&|i| if i < 80 { 1000 } else { 0 }, 512), (80, 0));
}

#[test]
fn coverage_from_before_walks_were_seen_does_not_count_as_walks() {
    let mut policy = policy();
    // Loaded and idle at first: all of it was accessed, and no walks were seen.
    let regions = |walks: u32| -> Vec<_> {
        (0..100).map(|i| walking(i, if i < 20 { walks } else { 0 })).collect()
    };
    policy.observe(&round(&[(None, regions(0))]));
    policy.observe(&round(&[(Some(30.0), regions(2440))]));
    let promoted = drain(&mut policy);
    let hot = promoted.iter().filter(|(_, promoted)| *promoted < region(20)).count();
    // Each saves 1.5 of the 30 %.
    assert_eq!((hot, promoted.len()), (20, 20), "{promoted:?}");
}

#[test]
fn a_process_with_unsampled_regions_is_explained_once_the_others_are_promoted() {
    let mut policy = policy();
    let regions = (0..100).map(|i| walking(i, if i < 40 { 1000 } else { 0 }));
    see(&mut policy, 30.0, regions.collect(), |sample| {
        sample.walks_seen = 0.5;
    });
    assert_eq!(policy.why_process_not_promoted(process(1)), None);
    drain(&mut policy);
    assert_eq!(
        policy.why_process_not_promoted(process(1)).as_deref(),
        Some("what was sampled is promoted; about 50 regions wait for their sample")
    );
}

/// 21 % over 100 regions.
fn hundred_regions(floor: PromotionFloor) -> Hawkeye {
    let mut policy = Hawkeye::new(CoverageAveraging::default(), floor);
    see(&mut policy, 21.0, (0..100).map(|i| walking(i, 1000)).collect(), |_| {});
    policy
}

#[test]
fn the_minimum_decides_whether_a_process_is_promoted_and_the_floor_where_that_ends() {
    // 2.1 % are left after 90 regions, and 0.63 % after 97.
    let promoted = |floor| drain(&mut hundred_regions(floor)).len();
    assert_eq!(promoted(PromotionFloor::Minimum), 91);
    assert_eq!(promoted(PromotionFloor::Low), 98);
    assert_eq!(drain(&mut seen(1.9, vec![walking(1, 1000)])), []);
    // A lower minimum of its rule is the floor, too.
    assert_eq!(PromotionFloor::Low.percent(0.1), 0.1);
    let mut policy = hundred_regions(PromotionFloor::Low);
    drain(&mut policy);
    let why = policy.why_process_not_promoted(process(1));
    let end = "what promotions can still save, 0.4 % of its CPU time, is under the 0.5 % at which they end";
    assert_eq!(why.as_deref(), Some(end));
}

/// A process is worth it by what its page walks would cost without the promotions so far.
#[test]
fn what_promotions_have_saved_counts_until_their_huge_pages_are_gone() {
    let next_window = |huge: bool| {
        let mut policy = hundred_regions(PromotionFloor::Low);
        for _ in 0..95 {
            let region = next_proposal(&mut policy).expect("another one pays").region;
            let done = cost_with_ready_page(Duration::from_micros(400));
            policy.on_promotion_result(process(1), region, done);
        }
        let promoted = |i| if huge { huge_sample(i, true) } else { sample(i, 0) };
        let regions = (0..95).map(promoted).chain((95..100).map(|i| walking(i, 1000)));
        see(&mut policy, 1.0, regions.collect(), |_| {});
        drain(&mut policy).len()
    };
    assert!(next_window(true) > 0);
    assert_eq!(next_window(false), 0);
}

#[test]
fn equal_programs_gain_alike() {
    let mut policy = policy();
    // Estimates differ slightly.
    let program = |percent, walks| (Some(percent), (0..8).map(|i| walking(i, walks)).collect());
    policy.observe(&round(&[program(40.0, 1000), program(43.0, 1100), program(38.0, 900)]));
    let mut promoted = [0u32; 4];
    for _ in 0..18 {
        let next = next_proposal(&mut policy).expect("another promotion is due");
        promoted[next.process.pid as usize] += 1;
    }
    let alike = promoted[1..].iter().all(|n| (5..=7).contains(n));
    assert!(alike, "{promoted:?}");
}

#[test]
fn a_stream_beside_random_access_gets_nothing() {
    let mut policy = policy();
    let random = (0..6).map(|i| walking(i, 8000)).collect();
    let stream = (0..6).map(|i| walking(i, 900)).collect();
    policy.observe(&round(&[(Some(0.8), stream), (Some(41.0), random)]));
    let promoted = drain(&mut policy);
    assert_eq!(promoted.len(), 6);
    assert!(promoted.iter().all(|(pid, _)| *pid == 2));
    let why = policy.why_process_not_promoted(process(1));
    let low = "its overhead of 0.8 % is under the minimum of 2 % for promotion";
    assert_eq!(why.as_deref(), Some(low));
    assert_eq!(policy.why_process_not_promoted(process(2)), None);
}

#[test]
fn a_lower_bound_is_not_called_too_low() {
    let mut policy = policy();
    let regions = vec![walking(1, 3000)];
    see(&mut policy, 1.4, regions, |sample| {
        sample.overhead = sample.overhead.map(|it| TranslationOverhead { at_least: true, ..it });
    });
    let why = policy.why_process_not_promoted(process(1));
    let unknown = "its overhead is at least 1.4 %: nothing shows that it reaches the minimum of 2 % for promotion";
    assert_eq!(why.as_deref(), Some(unknown));
}

#[test]
fn a_promotion_must_pay_for_itself() {
    let mut policy = policy();
    // 4 % of one core over 8000 regions: 5 us/s each, 1.5 ms in five minutes.
    let many = (0..8000).map(|i| walking(i, 50)).collect();
    let observed = round(&[(Some(4.0), many)]);
    cost(&mut policy, Duration::from_micros(1600));
    policy.observe(&observed);
    assert_eq!(next_proposal(&mut policy), None);
    // Promotions have become cheaper.
    cost(&mut policy, Duration::from_micros(1400));
    policy.observe(&observed);
    assert!(next_proposal(&mut policy).is_some());
}

#[test]
fn one_slow_promotion_does_not_stop_the_others_and_many_stop_them_for_an_hour() {
    let mut policy = policy();
    // 7 % of one core over 1000 regions: 70 us/s each, 21 ms in five minutes.
    let regions = (0..1000).map(|i| walking(i, 50)).collect();
    let mut observed = round(&[(Some(7.0), regions)]);
    let slow = Duration::from_secs(10);
    policy.on_promotion_result(process(9), region(0), cost_with_ready_page(slow));
    policy.observe(&observed);
    assert!(next_proposal(&mut policy).is_some());
    cost(&mut policy, slow);
    assert_eq!(next_proposal(&mut policy), None);
    observed.at = at_second(3600);
    policy.observe(&observed);
    assert!(next_proposal(&mut policy).is_some());
}

#[test]
fn a_process_is_taken_to_go_on_for_half_as_long_as_it_has_been_there() {
    let run = |age_s, weight, cost_ms| {
        let mut policy = policy();
        cost(&mut policy, Duration::from_millis(cost_ms));
        // Half of one core over 10,000 regions: 50 us/s each, which is 5 ms after 100 s. One region
        // pays almost at once.
        let mut regions: Vec<_> = (1..10_000).map(|i| walking(i, 100)).collect();
        regions.push(walking(10_000, weight));
        see(&mut policy, 50.0, regions, |sample| sample.age = at_second(age_s));
        policy
    };
    let promoted = |age_s, weight| drain(&mut run(age_s, weight, 5)).len();
    // A promotion that pays after 50 s, and one after 80 s.
    assert_eq!(promoted(1, 200), 1);
    assert_eq!(promoted(1, 125), 0);
    assert_eq!(promoted(85, 125), 0);
    assert_eq!(promoted(170, 125), 1);
    assert_eq!(promoted(180, 100), 0);
    assert!(promoted(220, 100) > 9000);
    assert!(promoted(1_000_000, 100) > 9000);
    // 18 ms after 360 s, which is longer than any process is given.
    let mut oldest = run(1_000_000, 100, 18);
    assert_eq!(next_proposal(&mut oldest), None);
    let why = oldest.explain_waiting_region(process(1), region(7));
    let why = why.and_then(|waiting| waiting.passed_over);
    let horizon = "its promotion would not pay for itself within 300 s";
    assert_eq!(why.as_deref(), Some(horizon));
}

#[test]
fn idle_programs_save_nothing() {
    let mut policy = policy();
    let mut observed = round(&[(Some(40.0), vec![walking(1, 50)]), (None, vec![walking(1, 50)])]);
    observed.processes[0].cpu_cores = 0.000_002;
    policy.observe(&observed);
    assert_eq!(next_proposal(&mut policy), None);
}

#[test]
fn coverage_decides_without_measurements() {
    let mut policy = policy();
    let mut observed = round(&[(None, vec![sample(1, 40), sample(2, 400), sample(3, 300)])]);
    observed.processes[0].source = CoverageSource::Estimated;
    policy.observe(&observed);
    let order = drain(&mut policy);
    assert_eq!(order[0], (1, region(2)));
    assert_eq!(order[1], (1, region(3)));
}

#[test]
fn a_refused_promotion_gives_back_its_expected_saving() {
    let mut policy = seen(5.0, vec![walking(1, 100), walking(2, 100)]);
    let first = next_proposal(&mut policy).expect("a promotion is due");
    let left = |policy: &Hawkeye| policy.members.get(process(1)).map(|m| m.left_percent);
    assert_eq!(left(&policy), Some(2.5));
    policy.on_promotion_result(process(1), first.region, None);
    assert_eq!(left(&policy), Some(5.0));
}

#[test]
fn overhead_of_huge_memory_is_not_savable() {
    let mut policy = policy();
    let mut seen =
        round(&[(Some(40.0), vec![huge_sample(0, true), walking(1, 300), walking(2, 100)])]);
    let mut with = |huge_percent| {
        for sample in &mut seen.processes {
            sample.overhead = Some(TranslationOverhead {
                huge_percent,
                ..TranslationOverhead::new_without_error(40.0, TranslationOverheadSource::WalkRate)
            });
        }
        policy.observe(&seen);
        let left = policy.members.get(process(1)).map(|m| m.left_percent);
        let first = next_proposal(&mut policy).map(|p| p.region);
        (left, first, policy.why_process_not_promoted(process(1)))
    };
    // What is left after the first is averaged with the result of the next window.
    assert_eq!(with(30.0), (Some(10.0), Some(region(1)), None));
    assert_eq!(with(30.0).0, Some(2.5 + 7.5 * 0.7));
    let (left, first, why) = with(40.0);
    assert!(left.is_some_and(|left| left < 2.0), "{left:?}");
    assert_eq!(first, None);
    let why = why.expect("the process has a reason");
    assert!(why.contains("huge already"), "{why}");
}

#[test]
fn a_reason_has_its_figures() {
    let mut policy = seen(40.0, vec![walking(1, 300), walking(2, 100)]);
    let reason = next_proposal(&mut policy).map(|p| p.reason.to_string());
    let said = "overhead 40.0 %, 300 page walks/s here: 2 MiB saves 300000 us/s, costs 400 us, pays after 0.0 s";
    assert_eq!(reason.as_deref(), Some(said));
}

proptest! {
    /// Within a process the lighter never comes first. None is without walks where any were seen.
    #[test]
    fn promotions_are_in_order_of_saving(
        processes in prop::collection::vec(
            (prop::option::of(0.0..60.0f64),
             prop::collection::vec((0u32..5000, any::<bool>()), 0..20)), 0..6),
    ) {
        let processes: Vec<_> = processes.into_iter().map(|(percent, regions)| {
            let samples = (0u64..).zip(regions)
                .map(|(i, (walks, is_huge))| if is_huge { huge_sample(i, true) } else { walking(i, walks) });
            (percent, samples.collect::<Vec<_>>())
        }).collect();
        let mut policy = policy();
        policy.observe(&round(&processes));
        let mut last: HashMap<u32, u32> = HashMap::new();
        let mut seen = std::collections::HashSet::new();
        for (pid, region) in drain(&mut policy) {
            let (percent, regions) = &processes[pid as usize - 1];
            prop_assert!(percent.is_some_and(|p| p >= 2.0));
            let found = regions.iter().find(|r| r.region == region && !r.is_huge());
            prop_assert!(found.is_some() && seen.insert((pid, region)));
            let walks = found.map_or(0, |r| r.walks_per_s);
            prop_assert!(walks > 0 || regions.iter().all(|r| r.walks_per_s == 0));
            let before = last.insert(pid, walks).unwrap_or(u32::MAX);
            prop_assert!(walks <= before);
        }
    }
}

const K64: PageOrder = PageOrder::CONTIGUOUS;
const M32: PageOrder = PageOrder::HUGE_CONTIGUOUS;

/// Four cores and 16 GiB, with pages of 64 KiB, 2 MiB and 32 MiB.
fn contiguous_machine() -> MachinePageProperties {
    let sizes = PageOrderSet::HUGE.with(K64).with(M32);
    MachinePageProperties {
        tlb: sizes,
        promotable: sizes,
        at_faults: PageOrderSet::NONE.with(K64),
        cores: 4.0,
        memory_bytes: 16 << 30,
        ..MachinePageProperties::default()
    }
}

fn sizes_of(policy: &mut Hawkeye) -> Vec<(RegionAddr, PageOrder)> {
    let all = crate::test_support::all_proposals(policy).into_iter();
    all.map(|p| (p.region, p.order)).collect()
}

#[test]
fn each_region_gets_the_size_that_suits_it() {
    let mut policy = policy();
    let sparse =
        |index, runs| RegionSample { present: 64, accessed: 64, runs, ..walking(index, 1000) };
    let mut regions = vec![sparse(1, 2), walking(2, 100_000)];
    regions.extend((10..100).map(|i| walking(i, 100_000)));
    let mut observed = round(&[(Some(30.0), regions)]);
    observed.machine = contiguous_machine();
    policy.observe(&observed);
    let sizes = sizes_of(&mut policy);
    let of = |index| sizes.iter().find(|(r, _)| *r == region(index)).map(|f| f.1);
    assert_eq!(of(2), Some(PageOrder::HUGE));
    // 1,000 of nine million walks are 0.00003 cores: not worth 1.75 MiB.
    let waiting = policy.explain_waiting_region(process(1), region(1));
    let waiting = waiting.map(|waiting| waiting.reason);
    let saving = waiting.as_ref().and_then(|it| it.data::<SavingReason>());
    assert!(of(1) == Some(K64) || saving.is_some_and(|it| it.order == K64));
}

#[test]
fn coverage_under_contiguous_entries_counts_in_tlb_entries() {
    let contiguous = RegionSample { order: K64, ..sample(1, 160) };
    let mut observed = round(&[(Some(30.0), vec![contiguous, sample(2, 100)])]);
    let first_to_last = |observed: &Observation| {
        let mut policy = policy();
        policy.observe(observed);
        sizes_of(&mut policy).into_iter().map(|(region, _)| region).collect::<Vec<_>>()
    };
    assert_eq!(first_to_last(&observed), [region(1), region(2)]);
    // 160 pages were marked by ten touches or more, each of one TLB entry.
    observed.machine.tlb = PageOrderSet::HUGE.with(K64);
    assert_eq!(first_to_last(&observed), [region(2), region(1)]);
}

#[test]
fn huge_pages_side_by_side_become_one_larger_page() {
    let mut policy = policy();
    let huge = |index| RegionSample { order: PageOrder::HUGE, ..walking(index, 5000) };
    // Regions 16 to 31 are one aligned block of 32 MiB; of the next block only fifteen are there.
    let regions = (16..47).map(huge).collect();
    let mut observed = round(&[(Some(30.0), regions)]);
    observed.machine = contiguous_machine();
    policy.observe(&observed);
    assert_eq!(sizes_of(&mut policy), [(region(16), M32)]);
    // Without contiguous huge pages there are only pages of 1 GiB.
    observed.machine = MachinePageProperties::default();
    policy.observe(&observed);
    assert_eq!(sizes_of(&mut policy), []);
}

#[test]
fn sizes_at_first_touches_follow_the_observed_faults() {
    let mut policy = policy();
    let mut observed = round(&[(Some(0.5), vec![])]);
    observed.machine = contiguous_machine();
    let mut mapped_bytes = [0; 9];
    mapped_bytes[5] = 64 << 20;
    let program = &mut observed.processes[0];
    program.outside = MemoryOutsideRegions { mapped_bytes, resident_bytes: 64 << 20 };
    let mut seen = |time: Duration, faults| {
        observed.at = time;
        observed.processes[0].faults = Some(faults);
        policy.observe(&observed);
        policy.fault_sizes(process(1))
    };
    let orders = |sizes: Option<FaultSizes>| sizes.map(|sizes| sizes.orders);
    let (base, small) = (Some(PageOrderSet::NONE), Some(PageOrderSet::NONE.with(K64)));
    assert_eq!(seen(at_second(0), 1000), None, "one observation is not enough");
    let chosen = seen(at_second(10), 11_000);
    assert_eq!(orders(chosen.clone()), small);
    // Nothing new was touched, so the decision stays.
    assert_eq!(seen(at_second(20), 11_000), chosen);
    // Larger pages are present as a whole, which gives no information. In the end base pages are
    // tried again.
    let end = at_second(10) + Hawkeye::SIZES_HOLD;
    assert_eq!(seen(end - at_second(1), 20_000), chosen);
    assert_eq!(orders(seen(end, 30_000)), base);
    // Base pages give information.
    assert_eq!(orders(seen(end + at_second(10), 40_000)), small);
}
