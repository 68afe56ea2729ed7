//! Tests of the decisions in the module above.

use super::super::mthp_sizes::tests::size;
use super::super::prezeroing::PrezeroingFacts;
use super::*;

fn with(change: impl FnOnce(&mut KernelFacts)) -> KernelFacts {
    let mut facts = KernelFacts::all_work();
    change(&mut facts);
    facts
}

fn fails() -> KernelCheckResult {
    KernelCheckResult::Fails("EINVAL".into())
}

#[test]
fn a_capable_host_uses_the_best_of_everything() {
    let decision = decide_with_best_sampler(&KernelFacts::all_work());
    assert!(decision.can_manage);
    assert_eq!(decision.sampler, SamplerKind::AccessBits);
    assert_eq!(decision.recovery, RecoveryMethod::SplitRemaps);
    assert!(decision.capabilities.iter().all(|c| c.available));
    assert!(decision.notes.is_empty(), "{:?}", decision.notes);
}

#[test]
fn without_access_bits_damon_estimates_and_without_it_population_remains() {
    let mut facts = with(|facts| facts.access_bits = fails());
    assert_eq!(decide_with_best_sampler(&facts).sampler, SamplerKind::Damon);
    facts.damon = fails();
    let decision = decide_with_best_sampler(&facts);
    assert_eq!(decision.sampler, SamplerKind::Population);
    assert!(decision.can_manage);
    assert!(decision.verdict.contains("accesses cannot be measured"));
}

#[test]
fn a_sampler_that_does_not_work_is_refused_with_the_reason() {
    let in_use = KernelCheckResult::NotTried("DAMON is in use by another program".into());
    let facts = with(|facts| facts.damon = in_use);
    let by = |kind| decide_with_sampler(kind, &facts);
    let refused = by(SamplerKind::Damon).expect_err("DAMON in use is refused");
    let why =
        "HAWKEYE_SAMPLER=damon cannot be used here: not tried: DAMON is in use by another program";
    assert_eq!(refused.to_string(), why);
    let decision = by(SamplerKind::Population).expect("population is always available");
    assert_eq!(decision.sampler, SamplerKind::Population);
    assert_eq!(decision.first_touch_cost, Duration::ZERO);
    assert!(decision.verdict.contains("accesses cannot be measured"));
    assert!("idle-pages".parse::<SamplerKind>().is_err());
}

#[test]
fn without_the_remap_recovery_takes_swap_and_without_both_there_is_none() {
    let mut facts = with(|facts| facts.zero_page_remap = fails());
    assert_eq!(decide_with_best_sampler(&facts).recovery, RecoveryMethod::SplitAndPageOut);
    facts.page_out = KernelCheckResult::NotTried("no swap".into());
    let decision = decide_with_best_sampler(&facts);
    assert_eq!(decision.recovery, RecoveryMethod::None);
    assert!(decision.can_manage);
}

#[test]
fn a_kernel_that_gives_nothing_back_cannot_guard_and_says_why() {
    let why = |facts: &KernelFacts| {
        let decision = decide_with_best_sampler(facts);
        assert_eq!(decision.notes.last(), decision.cannot_guard.as_ref());
        decision.cannot_guard
    };
    assert_eq!(why(&KernelFacts::all_work()), None);
    let no_swap = KernelCheckResult::NotTried("there is no swap and no zram".into());
    let without = |split, soft_dirty, zero_page_remap: KernelCheckResult| KernelFacts {
        split,
        soft_dirty,
        zero_page_remap,
        page_out: no_swap.clone(),
        ..KernelFacts::all_work()
    };
    use KernelCheckResult::Works;
    let lost = KernelCheckResult::Fails("for a test".into());
    for (facts, cause) in [
        (without(Works, Works, fails()), "there is no swap and no zram"),
        (without(fails(), Works, fails()), "cannot be split: EINVAL"),
        (without(Works, lost, Works), "marks that other tools rely on"),
    ] {
        let why = why(&facts).unwrap_or_default();
        assert!(why.starts_with("The profile guard cannot") && why.contains(cause), "{why}");
    }
}

#[test]
fn no_page_is_split_where_a_split_loses_marks_of_other_programs() {
    let lost = || KernelCheckResult::Fails("for a test".into());
    let unknown = || KernelCheckResult::NotTried("for a test".into());
    let absent = || KernelCheckResult::NotNeeded("for a test".into());
    let marked = |soft_dirty, write_protection| {
        with(|facts| (facts.soft_dirty, facts.write_protection) = (soft_dirty, write_protection))
    };
    for facts in [
        marked(lost(), KernelCheckResult::Works),
        marked(KernelCheckResult::Works, lost()),
        marked(unknown(), KernelCheckResult::Works),
        marked(absent(), unknown()),
    ] {
        let decision = decide_with_best_sampler(&facts);
        assert_eq!(decision.recovery, RecoveryMethod::None, "{facts:?}");
        assert!(decision.can_manage);
        let missing = decision.capabilities.iter().find(|c| !c.available);
        let missing = missing.expect("the capability is listed");
        assert!(missing.lost.contains("bloat recovery"), "{missing:?}");
        assert!(missing.remedy.contains("6.18"), "{missing:?}");
    }
    let harmless = marked(absent(), absent());
    assert_eq!(decide_with_best_sampler(&harmless).recovery, RecoveryMethod::SplitRemaps);
    // A kernel that remaps no pages loses no marks.
    let mut facts = marked(unknown(), unknown());
    facts.zero_page_remap = fails();
    assert_eq!(decide_with_best_sampler(&facts).recovery, RecoveryMethod::SplitAndPageOut);
}

#[test]
fn without_promotion_nothing_is_managed_and_the_cause_is_named() {
    let mut facts = with(|facts| facts.collapse = fails());
    let decision = decide_with_best_sampler(&facts);
    assert!(!decision.can_manage);
    assert!(decision.verdict.contains("EINVAL"), "{}", decision.verdict);

    facts.host.missing_capabilities = vec!["CAP_SYS_PTRACE".into()];
    assert!(decide_with_best_sampler(&facts).verdict.contains("CAP_SYS_PTRACE"));

    facts.host.thp_enabled = None;
    assert!(decide_with_best_sampler(&facts).verdict.contains("no transparent huge pages"));
}

#[test]
fn kernels_with_other_page_sizes_are_refused_and_the_sizes_named() {
    for (base_kib, huge_mib) in [(16, 32), (64, 512)] {
        let facts = with(|facts| {
            facts.host.base_page_bytes = base_kib << 10;
            facts.host.huge_page_bytes = Some(huge_mib << 20);
        });
        let decision = decide_with_best_sampler(&facts);
        assert!(!decision.can_manage);
        let sizes = format!("base pages have {base_kib} KiB and its huge pages {huge_mib} MiB");
        assert!(decision.verdict.contains(&sizes), "{}", decision.verdict);
        let found = facts.host.unmanaged_page_sizes().map(|sizes| sizes.pages_per_huge_page());
        assert_eq!(found, Some((huge_mib << 10) / base_kib));
        // As on such a kernel, where nothing is tried.
        let cannot = decide_with_best_sampler(&KernelFacts {
            split: fails(),
            zero_page_remap: fails(),
            page_out: fails(),
            ..facts
        });
        assert!(cannot.cannot_guard.is_some_and(|why| why.contains(&sizes)));
    }
    assert_eq!(KernelFacts::all_work().host.unmanaged_page_sizes(), None);
    // A size that cannot be read is not taken for the usual one.
    let decision = decide_with_best_sampler(&with(|facts| facts.host.huge_page_bytes = None));
    assert!(!decision.can_manage);
    let reason = "size of this kernel's huge pages is unknown";
    assert!(decision.verdict.contains(reason), "{}", decision.verdict);
    // A kernel without huge pages is refused for that reason.
    let mut facts =
        with(|facts| (facts.host.huge_page_bytes, facts.host.thp_enabled) = (None, None));
    assert!(decide_with_best_sampler(&facts).verdict.contains("no transparent huge pages"));
    assert_eq!(facts.host.unsupported_page_sizes(), None);
    facts.host.base_page_bytes = 16 << 10;
    let why = facts.host.unsupported_page_sizes().unwrap_or_default();
    assert!(why.contains("base pages have 16 KiB, but"), "{why}");
    assert_eq!(facts.host.unmanaged_page_sizes(), None);
}

#[test]
fn methods_that_were_not_tried_are_not_used() {
    let unknown = || KernelCheckResult::NotTried("for a test".into());
    let facts = with(|facts| facts.collapse = unknown());
    assert!(!decide_with_best_sampler(&facts).can_manage);
    let facts = with(|facts| (facts.access_bits, facts.damon) = (unknown(), unknown()));
    assert_eq!(decide_with_best_sampler(&facts).sampler, SamplerKind::Population);
}

#[test]
fn each_circumstance_has_its_note() {
    let mut facts = KernelFacts::all_work();
    facts.host.lockdown = KernelLockdown::Confidentiality;
    facts.host.missing_capabilities = vec!["CAP_BPF".into()];
    facts.host.container = Some("docker".into());
    facts.host.own_thp_disabled = true;
    let notes = decide_with_best_sampler(&facts).notes;
    for word in ["confidentiality", "CAP_BPF", "docker", "PR_SET_THP_DISABLE"] {
        let about = notes.iter().filter(|n| n.contains(word));
        assert_eq!(about.count(), 1, "{word}: {notes:?}");
    }
}

#[test]
fn a_processor_that_sets_no_access_bits_is_named_with_what_that_costs() {
    let first_touch = |first_touch_ns, first_touch_faults| {
        let decision = decide_with_best_sampler(&with(|facts| {
            (facts.first_touch_ns, facts.first_touch_faults) = (first_touch_ns, first_touch_faults);
        }));
        assert_eq!(decision.first_touch_cost, Duration::from_nanos(first_touch_ns));
        let mut all = decision.capabilities.into_iter();
        let bits = all.find(|c| c.name == "access bits").expect("access bits are listed");
        assert!(bits.available);
        (bits.found, decision.notes)
    };
    let (found, notes) = first_touch(10, false);
    assert_eq!(found, "works; a first touch after a clear costs 10 ns");
    assert!(notes.is_empty());
    let (_, notes) = first_touch(500, false);
    assert!(notes.iter().any(|note| note.contains("hypervisor")), "{notes:?}");
    let (found, notes) = first_touch(1500, true);
    assert!(found.contains("set in page faults"), "{found}");
    assert!(notes.iter().any(|note| note.contains("\"at least\"")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("hypervisor")), "{notes:?}");
}

#[test]
fn one_working_size_is_enough_and_none_is_reported() {
    let found = |small_pages| {
        let decision = decide_with_best_sampler(&with(|facts| facts.small_pages = small_pages));
        let mut all = decision.capabilities.into_iter();
        let capability = all.find(|c| c.name == "small pages").expect("small pages are listed");
        (capability.available, capability.found)
    };
    let some = vec![size(2, fails(), [0; 3]), size(4, KernelCheckResult::Works, [2, 3, 9])];
    assert!(found(some).0);
    let none = vec![size(2, fails(), [0; 3])];
    assert_eq!(found(none), (false, "EINVAL".into()));
    let (available, why) = found(Vec::new());
    assert!(!available && why.contains("no sizes between"), "{why}");
}

#[test]
fn a_stock_kernel_is_managed_without_zeroed_memory() {
    let decision =
        decide_with_best_sampler(&with(|facts| facts.prezeroing = PrezeroingFacts::Absent));
    assert!(decision.can_manage && decision.notes.is_empty());
    let mut missing = decision.capabilities.iter().filter(|c| !c.available);
    let first = missing.next().expect("one capability is missing");
    assert_eq!(missing.next(), None);
    let said = "absent; prefault zeroes memory ahead of streams instead";
    assert!(first.found.starts_with(said), "{first:?}");
    assert!(first.remedy.contains("modprobe prezero"));
}
