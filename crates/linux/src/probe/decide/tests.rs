//! Tests of the decisions in the module above.

use super::super::facts::PageMark;
use super::super::host::Host;
use super::super::prezeroing::PrezeroingFacts;
use super::super::small_pages::tests::size;
use super::*;
use crate::memory::prezeroing::Prezeroed;

fn capable() -> Facts {
    let works = || Checked::Works;
    Facts {
        host: Host {
            kernel: "6.18.0".into(),
            missing_capabilities: vec![],
            container: None,
            lockdown: Lockdown::None,
            thp_enabled: Some("madvise".into()),
            own_thp_disabled: false,
            cgroup: Some("version 2".into()),
            psi: true,
            swap_bytes: 1 << 30,
        },
        page_table_walk: works(),
        page_table_levels: Some(4),
        access_bits: works(),
        first_touch_ns: 10,
        collapse: works(),
        split: works(),
        zero_page_remap: works(),
        soft_dirty: PageMark::Kept,
        write_protection: PageMark::Kept,
        page_out: works(),
        fault_ahead_collapse: works(),
        fault_ahead_read: works(),
        first_touches: works(),
        counters: works(),
        damon: works(),
        page_idle: works(),
        prezeroing: PrezeroingFacts::There(Prezeroed {
            active: true,
            module: None,
            zones: Vec::new(),
        }),
        small_pages: vec![size(4, works(), [2, 3, 9])],
    }
}

fn fails() -> Checked {
    Checked::Fails("EINVAL".into())
}

#[test]
fn a_capable_host_uses_the_best_of_everything() {
    let decision = decide(&capable());
    assert!(decision.can_manage);
    assert_eq!(decision.sampler, SamplerKind::AccessBits);
    assert_eq!(decision.recovery, RecoveryMethod::SplitRemaps);
    assert!(decision.capabilities.iter().all(|c| c.available));
    assert!(decision.notes.is_empty(), "{:?}", decision.notes);
}

#[test]
fn without_access_bits_damon_estimates_and_without_it_population_remains() {
    let facts = Facts {
        access_bits: fails(),
        ..capable()
    };
    assert_eq!(decide(&facts).sampler, SamplerKind::Damon);
    let facts = Facts {
        damon: fails(),
        ..facts
    };
    let decision = decide(&facts);
    assert_eq!(decision.sampler, SamplerKind::Population);
    assert!(decision.can_manage);
    assert!(
        decision.verdict.contains("accesses can't be seen"),
        "{}",
        decision.verdict
    );
}

#[test]
fn a_sampler_that_was_not_seen_to_work_is_refused_in_a_sentence() {
    let facts = Facts {
        damon: Checked::NotTried("DAMON is in use by somebody else".into()),
        ..capable()
    };
    let with = |kind| decide_with(kind, &facts);
    let refused = with(SamplerKind::Damon).expect_err("in use");
    assert_eq!(
        refused.to_string(),
        "HAWKEYE_SAMPLER=damon can't be had: not tried: DAMON is in use by somebody else"
    );
    let decision = with(SamplerKind::Population).expect("needs nothing");
    assert_eq!(decision.sampler, SamplerKind::Population);
    assert_eq!(decision.first_touch_cost, Duration::ZERO);
    assert!(
        decision.verdict.contains("accesses can't be seen"),
        "{}",
        decision.verdict
    );
    assert_eq!(SamplerKind::by_name("idle-pages"), None);
}

#[test]
fn without_the_remap_recovery_takes_swap_and_without_both_there_is_none() {
    let facts = Facts {
        zero_page_remap: fails(),
        ..capable()
    };
    assert_eq!(decide(&facts).recovery, RecoveryMethod::SplitAndPageOut);
    let facts = Facts {
        page_out: Checked::NotTried("no swap".into()),
        ..facts
    };
    let decision = decide(&facts);
    assert_eq!(decision.recovery, RecoveryMethod::None);
    assert!(decision.can_manage);
}

#[test]
fn no_page_is_split_where_a_split_loses_marks_of_other_programs() {
    let lost = || PageMark::Lost("for a test".into());
    let unknown = || PageMark::NotTried("for a test".into());
    let absent = || PageMark::Absent("for a test".into());
    let with = |soft_dirty, write_protection| Facts {
        soft_dirty,
        write_protection,
        ..capable()
    };
    for facts in [
        with(lost(), PageMark::Kept),
        with(PageMark::Kept, lost()),
        with(unknown(), PageMark::Kept),
        with(absent(), unknown()),
    ] {
        let decision = decide(&facts);
        assert_eq!(decision.recovery, RecoveryMethod::None, "{facts:?}");
        assert!(decision.can_manage);
        let missing = decision.capabilities.iter().find(|c| !c.available);
        let missing = missing.expect("is shown");
        assert!(missing.lost.contains("bloat recovery"), "{missing:?}");
        assert!(missing.remedy.contains("6.18"), "{missing:?}");
    }
    let harmless = with(absent(), absent());
    assert_eq!(decide(&harmless).recovery, RecoveryMethod::SplitRemaps);
    // A kernel that remaps nothing loses nothing.
    let facts = Facts {
        zero_page_remap: fails(),
        ..with(unknown(), unknown())
    };
    assert_eq!(decide(&facts).recovery, RecoveryMethod::SplitAndPageOut);
}

#[test]
fn without_promotion_nothing_is_managed_and_the_cause_is_named() {
    let facts = Facts {
        collapse: fails(),
        ..capable()
    };
    let decision = decide(&facts);
    assert!(!decision.can_manage);
    assert!(decision.verdict.contains("EINVAL"), "{}", decision.verdict);

    let mut facts = facts;
    facts.host.missing_capabilities = vec!["CAP_SYS_PTRACE".into()];
    assert!(decide(&facts).verdict.contains("CAP_SYS_PTRACE"));

    facts.host.thp_enabled = None;
    assert!(decide(&facts).verdict.contains("no transparent huge pages"));
}

#[test]
fn what_was_not_tried_is_not_used() {
    let unknown = || Checked::NotTried("for a test".into());
    let facts = Facts {
        collapse: unknown(),
        ..capable()
    };
    assert!(!decide(&facts).can_manage);
    let facts = Facts {
        access_bits: unknown(),
        damon: unknown(),
        ..capable()
    };
    assert_eq!(decide(&facts).sampler, SamplerKind::Population);
}

#[test]
fn each_circumstance_has_a_sentence_of_its_own() {
    let mut facts = capable();
    facts.host.lockdown = Lockdown::Confidentiality;
    facts.host.missing_capabilities = vec!["CAP_BPF".into()];
    facts.host.container = Some("docker".into());
    facts.host.own_thp_disabled = true;
    let notes = decide(&facts).notes;
    for word in ["confidentiality", "CAP_BPF", "docker", "PR_SET_THP_DISABLE"] {
        assert_eq!(
            notes.iter().filter(|n| n.contains(word)).count(),
            1,
            "{word}: {notes:?}"
        );
    }
}

#[test]
fn one_size_that_works_is_enough_and_none_is_said_so() {
    let found = |small_pages| {
        let decision = decide(&Facts {
            small_pages,
            ..capable()
        });
        let mut all = decision.capabilities.into_iter();
        let capability = all.find(|c| c.name == "small pages").expect("is listed");
        (capability.available, capability.found)
    };
    let some = vec![size(2, fails(), [0; 3]), size(4, Checked::Works, [2, 3, 9])];
    assert!(found(some).0);
    assert_eq!(
        found(vec![size(2, fails(), [0; 3])]),
        (false, "EINVAL".into())
    );
    let (available, why) = found(Vec::new());
    assert!(!available && why.contains("no sizes between"), "{why}");
}

#[test]
fn a_stock_kernel_is_managed_without_zeroed_memory() {
    let facts = Facts {
        prezeroing: PrezeroingFacts::Absent,
        ..capable()
    };
    let decision = decide(&facts);
    assert!(decision.can_manage && decision.notes.is_empty());
    let missing: Vec<_> = decision
        .capabilities
        .iter()
        .filter(|c| !c.available)
        .collect();
    assert_eq!(missing.len(), 1);
    let missing = missing[0];
    assert!(
        missing
            .found
            .starts_with("absent; fault-ahead does it for streams")
    );
    assert!(missing.remedy.contains("modprobe prezero"));
}
