use super::super::facts::{
    CgroupFacts, ProcessForecast, RunningHawkeye, TranslationCost, ZeroPageFacts,
};
use super::*;
use crate::allocator_env_plan::glibc_plan;
use hawkeye_linux::processes::file_mappers::MappedFile;
use hawkeye_linux::processes::huge_page_context::{HugePageContext, ThpSettings};
use hawkeye_linux::processes::program_text::KernelTextRule;
use hawkeye_linux::processes::shared_mappings::{SharedMemoryKind, SharedMemoryObstacle};
use hawkeye_policy::{CgroupForecast, MemoryUse, ProcessAttributes, TranslationOverheadSource};

const START: u64 = 0x7f00_0000_0000;

const HALF_ZEROS: ZeroPageFacts =
    ZeroPageFacts { searched: 100, zero_pages: 100 * 256, bloated: 50 };

fn mapping_group(regions: u64, advice: HugePageAdvice) -> MappingGroup {
    MappingGroup {
        start: START,
        end: START + regions * HUGE_PAGE_BYTES,
        what: "anonymous".into(),
        resident_bytes: regions * HUGE_PAGE_BYTES,
        advice,
        ..MappingGroup::default()
    }
}

/// Shared memory without resident memory.
fn shared(regions: u64, obstacle: Option<SharedMemoryObstacle>) -> SharedMapping {
    SharedMapping {
        start: START + 0x3000,
        end: START + 0x3000 + regions * HUGE_PAGE_BYTES,
        file_offset: 0x1000,
        device: (0, 1),
        inode: 7,
        what: "/memfd:guest (deleted)".into(),
        kind: SharedMemoryKind::Internal,
        resident_bytes: 0,
        huge_bytes: 0,
        obstacle,
    }
}

/// A random reader of 2 GiB: a tenth of its regions accounts for nine tenths of its walks.
pub(in super::super) fn facts() -> AdviceFacts {
    let count = 1000;
    let region = |n: u64| BaseRegionFacts {
        start: START + n * HUGE_PAGE_BYTES,
        present: 500,
        swapped: 0,
        contiguous: false,
        share: if n < 100 { 0.009 } else { 0.1 / 900.0 },
        ranked: true,
    };
    AdviceFacts {
        pid: 4711,
        seconds: 30.0,
        cost: Ok(TranslationCost {
            overhead: TranslationOverhead {
                low_percent: 30.0,
                high_percent: 50.0,
                at_least: true,
                ..TranslationOverhead::new_without_error(40.0, TranslationOverheadSource::WalkRate)
            },
            huge_percent: 0.0,
            windows_percent: [38.0, 44.0],
            windows: 15,
            cpu_cores: 1.0,
        }),
        regions: (0..count).map(region).collect(),
        huge_regions: 0,
        zeros: ZeroPageFacts::default(),
        recovery_possible: true,
        manager: None,
        surroundings: HugePageContext {
            identity: ProcessAttributes {
                command: "reader".into(),
                ..ProcessAttributes::default()
            },
            places: vec![mapping_group(count, HugePageAdvice::None)],
            settings: ThpSettings {
                enabled: Some("madvise".into()),
                enabled_file: "/sys/kernel/mm/transparent_hugepage/enabled".into(),
                ..ThpSettings::default()
            },
            ..HugePageContext::default()
        },
        first_touch: glibc_plan(),
        memory: MemoryUse { used_bytes: 4 << 30, total_bytes: 24 << 30 },
        cgroup: None,
        forecast: Some(ProcessForecast {
            added_bytes: 1000 * 12 * 4096,
            cgroup: Some(CgroupForecast {
                cgroup: "/system.slice/reader.service".into(),
                limit_bytes: Some(2 << 30),
                always_added_bytes: 64 << 20,
                always_percent_of_limit: Some(103.4),
                guard_added_bytes: 12 << 20,
                guard_least_added_bytes: 4 << 20,
                guard_percent_of_limit: Some(100.6),
                ..CgroupForecast::default()
            }),
        }),
    }
}

pub(in super::super) fn sequential() -> AdviceFacts {
    let mut facts = facts();
    if let Ok(cost) = &mut facts.cost {
        cost.overhead = TranslationOverhead {
            low_percent: 0.2,
            high_percent: 1.1,
            ..TranslationOverhead::new_without_error(0.8, TranslationOverheadSource::WalkRate)
        };
    }
    facts
}

pub(in super::super) fn idle() -> AdviceFacts {
    AdviceFacts { cost: Err(TranslationNotMeasured::Idle), ..facts() }
}

/// Text of `n` times 2 MiB.
pub(in super::super) fn text_mapping(
    n: u64,
    start: u64,
    resident_bytes: u64,
    file_system: &str,
) -> TextMapping {
    TextMapping {
        start,
        end: start + n * HUGE_PAGE_BYTES,
        file_offset: 0,
        path: format!("/usr/bin/tool-{n}"),
        file_system: Some(file_system.into()),
        resident_bytes,
        huge_bytes: 0,
        file: MappedFile { device: (0, 27), inode: n },
        obstacle: None,
    }
}

macro_rules! has {
    ($advice:expr, $kind:pat $(if $so:expr)?) => {
        $advice.findings.iter().any(|finding| matches!(finding, $kind $(if $so)?))
    };
}

#[test]
fn regions_under_contiguous_entries_are_reported() {
    let mut facts = facts();
    assert!(!has!(advice_from_facts(&facts), Finding::Contiguous { .. }));
    facts.regions.iter_mut().take(300).for_each(|region| region.contiguous = true);
    let advice = advice_from_facts(&facts);
    assert!(has!(advice, Finding::Contiguous { regions: 300, of_regions: 1000 }));
}

#[test]
fn the_largest_text_is_reported_with_what_the_kernel_allows() {
    let mut facts = facts();
    facts.surroundings.text_rule = KernelTextRule::None;
    facts.surroundings.text = vec![
        text_mapping(3, 16 * HUGE_PAGE_BYTES, 5 << 20, "tmpfs"),
        text_mapping(20, 64 * HUGE_PAGE_BYTES + 0x1000, 9 << 20, "ext4"),
        text_mapping(4, 128 * HUGE_PAGE_BYTES, 1 << 20, "ext4"),
    ];
    let advice = advice_from_facts(&facts);
    let found = advice.findings.iter().filter_map(|finding| match finding {
        Finding::Text { windows, windows_if_aligned, support, .. } => {
            Some((*windows, *windows_if_aligned, *support))
        }
        _ => None,
    });
    let expected = [(0, 20, TextSupport::NoOption), (3, 3, TextSupport::Tmpfs)];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

/// How many regions make up half of the gain, and nine tenths.
fn first_regions(advice: &Advice) -> Vec<u64> {
    let first = advice.findings.iter().map(|finding| match finding {
        Finding::FirstRegions { regions, .. } => Some(*regions),
        _ => None,
    });
    first.flatten().collect()
}

#[test]
fn the_hottest_regions_make_up_half_and_nine_tenths_of_the_gain() {
    let advice = advice_from_facts(&facts());
    assert_eq!(advice.verdict, AdviceVerdict::Gains);
    let first = first_regions(&advice);
    assert_eq!(first.len(), 2);
    let right = (55..=57).contains(&first[0]) && (99..=102).contains(&first[1]);
    assert!(right, "{first:?}");
    assert!(has!(advice, Finding::At { share_percent, .. } if *share_percent > 99.0));
    let (bytes, of_bytes) = (1000 * 12 * 4096, 1000 * 500 * 4096);
    let added = Finding::WouldAdd { bytes, of_bytes };
    assert!(advice.findings.contains(&added));
}

#[test]
fn ranked_regions_stand_for_all_if_at_least_half_are_ranked() {
    let with_rank = |every: usize| {
        let mut facts = facts();
        for (n, region) in facts.regions.iter_mut().enumerate() {
            region.ranked = n % every == 0;
        }
        first_regions(&advice_from_facts(&facts))
    };
    // Half of them are enough.
    let half = with_rank(2)[0];
    assert!((54..=58).contains(&half), "{half}");
    assert!(with_rank(3).is_empty());
}

#[test]
fn below_the_worthwhile_saving_nothing_is_proposed() {
    for (facts, verdict) in
        [(sequential(), AdviceVerdict::GainsNothing), (idle(), AdviceVerdict::Unknown)]
    {
        let advice = advice_from_facts(&facts);
        assert_eq!(advice.verdict, verdict);
        assert!(advice.remedies.is_empty());
        assert!(!has!(advice, Finding::At { .. }));
    }
    assert!(!has!(advice_from_facts(&sequential()), Finding::WouldAdd { .. }));
    let mut doubtful = sequential();
    if let Ok(cost) = &mut doubtful.cost {
        cost.overhead.high_percent = 3.0;
    }
    let advice = advice_from_facts(&doubtful);
    assert_eq!(advice.verdict, AdviceVerdict::MayGain);
    assert_eq!(advice.remedies, []);
}

#[test]
fn memory_that_is_huge_already_gains_nothing() {
    let mut all = facts();
    all.regions.clear();
    all.huge_regions = 1000;
    assert_eq!(advice_from_facts(&all).verdict, AdviceVerdict::HasThem);
    // More huge pages save no walks of memory that is already huge.
    let mut rest = facts();
    rest.huge_regions = 5000;
    if let Ok(cost) = &mut rest.cost {
        cost.huge_percent = 39.0;
        cost.overhead.high_percent = 40.0;
        cost.overhead.at_least = false;
    }
    assert_eq!(advice_from_facts(&rest).verdict, AdviceVerdict::HasThem);
}

#[test]
fn no_second_manager_is_proposed() {
    let commands = |manages| {
        let mut facts = facts();
        facts.huge_regions = 1000;
        facts.zeros = HALF_ZEROS;
        facts.manager = Some(RunningHawkeye { holder: "process 77 (daemon)".into(), manages });
        let advice = super::advice_from_facts(&facts);
        assert!(has!(advice, Finding::ManagerRuns(_)));
        let commands = advice.remedies.into_iter().map(|r| r.command);
        commands.collect::<Vec<_>>()
    };
    for manages in [None, Some(false), Some(true)] {
        let commands = commands(manages);
        assert!(!commands.iter().any(|c| c.contains("attach")));
        let why = commands.iter().any(|c| c == "hawkeye why 4711");
        assert_eq!(why, manages.is_some(), "only a daemon answers");
        let rule = commands.iter().any(|c| c.contains("[[rule]]"));
        assert_eq!(rule, manages != Some(true));
    }
}

#[test]
fn zeros_are_extrapolated_from_the_searched_huge_pages() {
    let mut facts = idle();
    facts.huge_regions = 1000;
    facts.zeros = HALF_ZEROS;
    let advice = advice_from_facts(&facts);
    let half = 500 * HUGE_PAGE_BYTES;
    assert!(advice.findings.contains(&Finding::Wastes {
        searched: 100,
        huge_regions: 1000,
        zero_percent: 50.0,
        bytes: half,
        recoverable_bytes: half,
    }));
    assert_eq!(advice.remedies.len(), 1);
    assert!(advice.remedies[0].command.contains("--policy none"));
    // A kernel before 6.12 gives nothing back without swap.
    facts.recovery_possible = false;
    let advice = super::advice_from_facts(&facts);
    assert!(has!(advice, Finding::Wastes { recoverable_bytes, .. } if *recoverable_bytes == 0));
    assert_eq!(advice.remedies, []);
}

#[test]
fn each_setting_that_prevents_huge_pages_is_found() {
    let with = |change: fn(&mut AdviceFacts)| {
        let mut facts = facts();
        change(&mut facts);
        advice_from_facts(&facts)
    };
    let silent = with(|_| {});
    assert!(has!(silent, Finding::KernelSaysMadvise { .. }));
    let never = with(|f| f.surroundings.settings.enabled = Some("never".into()));
    assert!(has!(never, Finding::KernelSaysNever));
    let always = with(|f| {
        f.surroundings.settings = ThpSettings {
            enabled: Some("always".into()),
            khugepaged_scan_sleep_ms: Some("10000".into()),
            khugepaged_pages_to_scan: Some("4096".into()),
            ..ThpSettings::default()
        };
    });
    // 1000 regions of 512 pages, 4096 every 10 s.
    assert!(has!(always, Finding::KernelSaysAlways { khugepaged_s: Some(s), .. } if *s == 1250.0));
    // What is so already needs no forecast.
    assert!(has!(silent, Finding::Forecast(_)) && !has!(always, Finding::Forecast(_)));
    let disabled = with(|f| f.surroundings.thp_disabled = true);
    assert!(has!(disabled, Finding::ThpDisabled));
    let attach = |advice: &Advice| advice.remedies.iter().any(|r| r.command.contains("attach"));
    // A manager can do nothing about these.
    assert!(attach(&silent) && !attach(&disabled));
    let refused =
        with(|f| f.surroundings.places = vec![mapping_group(1000, HugePageAdvice::NoHuge)]);
    assert!(has!(refused, Finding::NoHugePage { .. }));
    assert_eq!(refused.remedies, [], "only the program can change that");
    let partly = with(|f| {
        let hot = f.surroundings.places[0].clone();
        let cold = MappingGroup {
            start: hot.start + 200 * HUGE_PAGE_BYTES,
            advice: HugePageAdvice::NoHuge,
            ..hot.clone()
        };
        let end = cold.start;
        f.surroundings.places = vec![MappingGroup { end, ..hot }, cold];
    });
    assert!(attach(&partly), "hot memory may be huge");
    let shared = with(|f| {
        let resident_bytes = 500 * HUGE_PAGE_BYTES;
        f.surroundings.shared_memory = vec![SharedMapping { resident_bytes, ..shared(500, None) }];
    });
    assert!(has!(shared, Finding::Shared { .. }));
}

#[test]
fn short_memory_and_a_near_limit_are_found() {
    let mut facts = facts();
    facts.cgroup = Some(CgroupFacts {
        name: "/a".into(),
        usage: MemoryUse { used_bytes: 2 << 30, total_bytes: 2 << 30 },
    });
    let advice = advice_from_facts(&facts);
    assert!(has!(advice, Finding::MemoryShort { cgroup, .. } if cgroup.is_some()));
    assert!(!advice.remedies.iter().any(|r| r.command.contains("attach")));
    facts.cgroup = None;
    facts.memory.used_bytes = facts.memory.total_bytes * 85 / 100 - (10 << 20);
    let near = super::advice_from_facts(&facts);
    assert!(has!(near, Finding::LimitNear { cgroup: None, .. }));
}

#[test]
fn shared_memory_that_cannot_become_huge_is_named_with_its_remedy() {
    let misaligned = Some(SharedMemoryObstacle::Misaligned { by_bytes: 0x2000 });
    let mut facts = facts();
    facts.surroundings.settings.shmem_enabled = Some("never".into());
    facts.surroundings.shared_memory = vec![
        shared(8, misaligned),
        shared(64, Some(SharedMemoryObstacle::Userfaultfd)),
        shared(128, Some(SharedMemoryObstacle::HugeTlb)),
        shared(256, None),
    ];
    let advice = advice_from_facts(&facts);
    let blocked = advice.findings.iter().filter_map(|finding| match finding {
        Finding::SharedBlocked { mapped_bytes, remedy, .. } => {
            Some((mapped_bytes / HUGE_PAGE_BYTES, remedy.is_some()))
        }
        _ => None,
    });
    // Largest first. A monitor that uses userfaultfd has no remedy; hugetlb needs none.
    assert_eq!(blocked.collect::<Vec<_>>(), [(64, false), (8, true)]);
    let text = crate::commands::advise::advice_text::advice_text(&facts, &advice);
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    for part in [
        "0x7f0000003000-0x7f0001003000 (/memfd:guest (deleted), from offset 0x1000), 16 MiB with",
        "not congruent modulo 2 MiB: the address is 0x2000 too high",
        "set shmem_enabled=advise before the program starts",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
