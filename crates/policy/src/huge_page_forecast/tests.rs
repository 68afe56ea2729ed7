use super::*;
use crate::page::PageOrder;
use crate::test_support::{huge_sample, sample};
use crate::watermarks::Watermarks;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const I_MIB: i64 = 1 << 20;

/// A region with `present` base pages.
fn region(index: u64, present: u16) -> RegionSample {
    RegionSample { present, ..sample(index, 0) }
}

/// Of a process that was not forked, with recovery at its default threshold.
fn growth(regions: &[RegionSample]) -> HugePageGrowth {
    growth_in_family(regions, 1)
}

fn growth_in_family(regions: &[RegionSample], family: usize) -> HugePageGrowth {
    let nothing_read = ZeroFilledSample::default();
    HugePageGrowth::of_process(regions, &nothing_read, family, Some(BloatThreshold::default()))
}

fn pages(growth: HugePageGrowth) -> (u64, u64) {
    (growth.added_bytes / BASE_PAGE_BYTES, growth.recoverable_bytes / BASE_PAGE_BYTES)
}

#[test]
fn a_region_grows_by_its_empty_pages_if_it_holds_anything() {
    assert_eq!(pages(growth(&[region(0, 1), region(1, 512)])), (511, 511));
    // One empty page less than recovery splits for, and the number from which on it splits.
    assert_eq!(pages(growth(&[region(0, 449), region(1, 448)])), (63 + 64, 64));
    assert_eq!(pages(growth(&[huge_sample(0, true)])), (0, 0));
    let swapped = RegionSample { swapped: 100, ..region(0, 200) };
    assert_eq!(pages(growth(&[swapped])), (212, 212));
    let only_read = RegionSample { zero_mapped: 512, ..region(0, 0) };
    assert_eq!(pages(growth(&[only_read])), (0, 0));
    let huge_zero_page = RegionSample { order: PageOrder::HUGE, ..only_read };
    assert_eq!(pages(growth(&[huge_zero_page])), (0, 0));
    let nothing_read = ZeroFilledSample::default();
    let impossible = HugePageGrowth::of_process(&[region(0, 1)], &nothing_read, 1, None);
    assert_eq!(pages(impossible), (511, 0));
}

#[test]
fn zero_filled_pages_count_in_regions_that_would_be_split_and_for_those_not_read() {
    let zero_filled_pages = |read: &[(RegionSample, u16)], family, threshold| {
        let sample = ZeroFilledSample { regions: read.to_vec(), regions_each: 2.5 };
        let growth = HugePageGrowth::of_process(&[], &sample, family, threshold);
        assert_eq!(pages(growth), (0, 0));
        growth.zero_filled_bytes as f64 / BASE_PAGE_BYTES as f64
    };
    let by_default = Some(BloatThreshold::default());
    // 63 in a full region are too few to split, and 64 are enough, also with those never touched.
    let read = [(region(0, 512), 63), (region(1, 512), 64), (region(2, 500), 52)];
    assert_eq!(zero_filled_pages(&read, 1, by_default), 116.0 * 2.5);
    assert_eq!(zero_filled_pages(&read, 1, None), 0.0);
    let shared = RegionSample { maybe_shared: 1, ..region(0, 512) };
    assert_eq!(zero_filled_pages(&[(shared, 400)], 4, by_default), 100.0 * 2.5);
}

#[test]
fn forks_count_a_shared_region_once_in_all() {
    let shared = RegionSample { maybe_shared: 12, ..region(0, 112) };
    let own = region(1, 112);
    let one = growth_in_family(&[shared, own], 4);
    assert_eq!(pages(one), (100 + 400, 500));
    assert_eq!(pages(growth_in_family(&[shared], 0)), (400, 400));
}

fn group(cgroup: &str, used_mib: u64, limit_mib: u64, added_mib: u64) -> CgroupPopulation {
    let usage = MemoryUse { used_bytes: used_mib * MIB, total_bytes: limit_mib * MIB };
    CgroupPopulation {
        cgroup: cgroup.into(),
        usage: (limit_mib > 0).then_some(usage),
        anonymous_bytes: used_mib * MIB,
        processes: 1,
        growth: HugePageGrowth {
            added_bytes: added_mib * MIB,
            recoverable_bytes: added_mib * MIB * 3 / 4,
            ..HugePageGrowth::default()
        },
    }
}

/// MiB with `always` and under `guard`.
fn added(populations: &[CgroupPopulation]) -> Vec<(u64, u64)> {
    let forecasts = forecast_cgroups(populations, &WatermarkTable::default());
    let mib = forecasts.iter().map(|f| (f.always_added_bytes / MIB, f.guard_added_bytes / MIB));
    mib.collect()
}

#[test]
fn what_fits_under_the_high_watermark_stays_and_what_is_not_split_stays_even_above() {
    // Room for everything; for 150 MiB (85 % of 1000); for less than the 100 MiB that stay.
    assert_eq!(added(&[group("/a", 100, 1000, 400)]), [(400, 400)]);
    assert_eq!(added(&[group("/a", 700, 1000, 400)]), [(400, 150)]);
    assert_eq!(added(&[group("/a", 840, 1000, 400)]), [(400, 100)]);
    assert_eq!(added(&[group("/a", 990, 1000, 400)]), [(400, 100)]);
    assert_eq!(added(&[group("/a", 990, 0, 400)]), [(400, 400)]);
    let forecast = forecast_cgroups(&[group("/a", 700, 1000, 400)], &WatermarkTable::default());
    let percent = (forecast[0].always_percent_of_limit, forecast[0].guard_percent_of_limit);
    assert_eq!(percent, (Some(110.0), Some(85.0)));
    let unlimited = forecast_cgroups(&[group("/a", 9, 0, 4)], &WatermarkTable::default());
    assert_eq!((unlimited[0].limit_bytes, unlimited[0].always_percent_of_limit), (None, None));
}

#[test]
fn a_cgroup_includes_those_below_it_with_their_limits() {
    let tree = [
        group("/", 2000, 10_000, 8),
        group("/pods", 1000, 0, 0),
        group("/pods/one", 700, 1000, 400),
        group("/pods/one/db", 100, 0, 40),
        group("/podsx", 10, 0, 4),
    ];
    let expected = [(8 + 440 + 4, 8 + 150 + 4), (440, 150), (440, 150), (40, 40), (4, 4)];
    assert_eq!(added(&tree), expected);
    let all = forecast_cgroups(&tree, &WatermarkTable::default());
    assert_eq!((all[0].processes, all[1].processes), (5, 3));
    assert_eq!(all[1].anonymous_bytes, 1800 * MIB);
}

#[test]
fn the_machine_and_each_cgroup_have_their_own_watermarks() {
    let marks = WatermarkTable {
        machine: Watermarks::new(50.0, 40.0).unwrap_or_default(),
        groups: Watermarks::new(90.0, 80.0).unwrap_or_default(),
        ..WatermarkTable::default()
    };
    let tree = [group("/", 400, 1000, 0), group("/a", 700, 1000, 800)];
    let left = forecast_cgroups(&tree, &marks).into_iter().map(|f| f.guard_added_bytes / MIB);
    // The cgroup's watermark leaves 200 MiB, which is also what is not split.
    assert_eq!(left.collect::<Vec<_>>(), [200, 200]);
}

#[test]
fn the_least_is_at_the_low_watermark_and_without_what_programs_may_have_given_back() {
    let least_mib = |group: CgroupPopulation, given_back_mib: u64| {
        let growth = group.growth.with_given_back(given_back_mib * MIB);
        let tree = [CgroupPopulation { growth, ..group }];
        let forecast = &forecast_cgroups(&tree, &WatermarkTable::default())[0];
        (forecast.guard_least_added_bytes / I_MIB, forecast.guard_added_bytes / MIB)
    };
    assert_eq!(least_mib(group("/a", 100, 1000, 400), 120), (280, 400));
    // It is no more than recovery would split.
    assert_eq!(least_mib(group("/a", 100, 1000, 400), 900), (100, 400));
    // Recovery begins, because only 150 MiB fit under the high watermark. It goes on to the low
    // one, or until only the 100 MiB are left that it does not split.
    assert_eq!(least_mib(group("/a", 700, 1000, 400), 0), (100, 150));
    assert_eq!(least_mib(group("/a", 550, 1000, 400), 0), (150, 300));
    assert_eq!(least_mib(group("/a", 550, 1000, 400), 270), (130, 300));
    // Recovery of a cgroup may take it all from one below.
    let tree = [group("/a", 550, 1000, 0), group("/a/b", 100, 0, 400)];
    let forecasts = forecast_cgroups(&tree, &WatermarkTable::default());
    let ranges = forecasts.iter().map(|f| (f.guard_least_added_bytes, f.guard_added_bytes));
    let ranges_mib = ranges.map(|(least, most)| (least / I_MIB, most / MIB));
    assert_eq!(ranges_mib.collect::<Vec<_>>(), [(150, 300), (100, 400)]);
    let unguarded = group("/a", 0, 0, 4).growth.with_given_back(MIB).without_recovery();
    assert_eq!((unguarded.recoverable_bytes, unguarded.given_back_bytes), (0, 0));
    assert_eq!(unguarded.added_bytes, 4 * MIB);
}

#[test]
fn recovery_may_take_zero_filled_memory_in_use_back_down_to_the_low_watermark() {
    let range_mib = |used_mib, added_mib, zero_filled_mib| {
        let mut group = group("/a", used_mib, 1000, added_mib);
        group.growth.zero_filled_bytes = zero_filled_mib * MIB;
        let forecast = &forecast_cgroups(&[group], &WatermarkTable::default())[0];
        (forecast.guard_least_added_bytes / I_MIB, forecast.guard_added_bytes / MIB)
    };
    // 40 MiB more do not fit under the high watermark (85 %). The low one is 70 %.
    assert_eq!(range_mib(845, 40, 90), (10 - 90, 10));
    assert_eq!(range_mib(845, 40, 900), (-145, 10));
    assert_eq!(range_mib(845, 40, 0), (10, 10));
    // What stays does not shrink, where there is room.
    assert_eq!(range_mib(700, 40, 900), (40, 40));
    // Use may be a little higher than when it was read.
    assert_eq!(range_mib(838, 0, 90), (0, 0));
    assert_eq!(range_mib(842, 0, 90), (-90, 0));
    let unguarded = HugePageGrowth { zero_filled_bytes: MIB, ..HugePageGrowth::default() };
    assert_eq!(unguarded.without_recovery().zero_filled_bytes, 0);
}

fn any_region() -> impl Strategy<Value = RegionSample> {
    (0..=512u16, 0..=512u16, 0..=512u16, any::<bool>()).prop_map(|(a, b, shared, huge)| {
        let (present, swapped) = (a, b.min(512 - a));
        RegionSample {
            swapped,
            maybe_shared: shared.min(present),
            order: PageOrder::base_or_huge(huge && present == 512),
            ..region(0, present)
        }
    })
}

fn any_group() -> impl Strategy<Value = CgroupPopulation> {
    let path = proptest::sample::select(vec!["/", "/a", "/a/b", "/a/b/c", "/a/d", "/e"]);
    let regions = proptest::collection::vec(any_region(), 0..20);
    let mib = 0..100u64;
    (path, regions, mib.clone(), mib.clone(), mib.clone(), mib).prop_map(
        |(path, regions, used, limit, given, zero_filled)| {
            let mut group = group(path, used, limit, 0);
            group.growth = growth(&regions).with_given_back(given * MIB);
            group.growth.zero_filled_bytes = zero_filled * MIB;
            group
        },
    )
}

proptest! {
    #[test]
    fn growth_is_at_most_the_empty_pages_and_recovery_at_most_the_growth(
        regions in proptest::collection::vec(any_region(), 0..20),
        family in 1..9usize,
    ) {
        let found = growth_in_family(&regions, family);
        let alone = growth(&regions);
        prop_assert!(found.recoverable_bytes <= found.added_bytes);
        prop_assert!(found.added_bytes <= alone.added_bytes);
        prop_assert!(found.added_bytes * family as u64 + 512 * 20 >= alone.added_bytes);
        prop_assert!(alone.added_bytes <= regions.len() as u64 * 511 * BASE_PAGE_BYTES);
    }

    #[test]
    fn guard_adds_no_more_than_always_and_leaves_what_is_not_split(
        mut groups in proptest::collection::vec(any_group(), 1..6),
    ) {
        groups.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        groups.dedup_by(|a, b| a.cgroup == b.cgroup);
        let forecasts = forecast_cgroups(&groups, &WatermarkTable::default());
        for (group, forecast) in groups.iter().zip(&forecasts) {
            let below = groups.iter().filter(|it| Path::new(&it.cgroup).starts_with(&group.cgroup));
            let below: Vec<_> = below.collect();
            let added: u64 = below.iter().map(|it| it.growth.added_bytes).sum();
            let kept: u64 = below.iter().map(|it| it.growth.unrecoverable_bytes()).sum();
            prop_assert_eq!(forecast.always_added_bytes, added);
            prop_assert!(forecast.guard_added_bytes <= added);
            let most = i64_from_u64(forecast.guard_added_bytes);
            prop_assert!(most >= forecast.guard_least_added_bytes);
            let least: i64 = below.iter().map(|it| it.growth.least_bytes()).sum();
            prop_assert!(forecast.guard_least_added_bytes >= least);
            let all = groups.iter().zip(&forecasts);
            let is_listed = |path: &Path| groups.iter().any(|it| Path::new(&it.cgroup) == path);
            let is_inner = |it: &CgroupPopulation| {
                let mut above = Path::new(&it.cgroup).ancestors().skip(1);
                above.find(|path| is_listed(path)) == Some(Path::new(&group.cgroup))
            };
            let inner = all.filter(|(it, _)| is_inner(it));
            let inner_least: i64 = inner.map(|(_, forecast)| forecast.guard_least_added_bytes).sum();
            let own_least = group.growth.least_bytes().min(0);
            prop_assert!(inner_least + own_least <= forecast.guard_least_added_bytes);
            if let Some(percent) = forecast.guard_percent_of_limit {
                let used = group.usage.map_or(0.0, MemoryUse::used_percent);
                let over = forecast.guard_added_bytes > kept && percent > 85.0 + 1e-6;
                prop_assert!(!over, "{} % of the limit, {} % before", percent, used);
            }
        }
    }
}
