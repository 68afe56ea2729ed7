//! Both models give the same counts where they model the same things.

use super::{BEGIN, FULL, TestResult, random, region};
use hawkeye_sim::mmu::translation::{
    Access, LeafSize, Mappings, ProgramWork, Translator, TranslatorSpec,
};
use hawkeye_sim::mmu::{AccessPattern, CoalescedPageGroups, PROCESSORS, PatternRun, ProcessorSpec};

#[test]
fn strided_reads_hit_and_walk_as_in_the_exact_model() -> TestResult {
    for processor in PROCESSORS {
        let grouped = processor.groups != CoalescedPageGroups::NONE;
        for size in [LeafSize::Base, LeafSize::Huge] {
            for backed_by in [None, Some(LeafSize::Base), Some(LeafSize::Huge)] {
                for stride in [512u64, 4096, 16_384, 65_536, 131_072 + 4096] {
                    count_both(&processor, size, backed_by, false, stride)?;
                    if grouped {
                        count_both(&processor, size, backed_by, true, stride)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// `bytes` of memory in the fast model, mapped by pages of one size, in groups or not. A host maps
/// it by pages of one size.
fn mapped(
    processor: &ProcessorSpec,
    bytes: u64,
    size: LeafSize,
    in_groups: bool,
    backed_by: Option<LeafSize>,
) -> TestResult<Mappings> {
    let mut mappings = Mappings::with_groups(processor.groups)?;
    for region in (0..bytes >> 21).map(region) {
        if let Some(pages) = backed_by {
            mappings.set_host_page_size(region, pages)?;
        }
        match (size, in_groups) {
            (LeafSize::Base, _) => mappings.map_pages(region, FULL)?,
            (_, false) => mappings.map_huge(region)?,
            (_, true) => mappings.map_huge_group(region)?,
        }
        if in_groups {
            mappings.set_groups(region, u128::MAX);
        }
    }
    Ok(mappings)
}

/// Strided reads in both models, natively or in a guest, in groups or not. The host maps the
/// guest's memory and tables by pages of one size.
fn count_both(
    processor: &ProcessorSpec,
    size: LeafSize,
    backed_by: Option<LeafSize>,
    in_groups: bool,
    stride: u64,
) -> TestResult {
    let (bytes, laps) = (64u64 << 20, 3);
    let pattern = AccessPattern::Stride { bytes: stride, instructions: 4 };
    let mut exact = PatternRun::new(processor, pattern, bytes, size, 1)?;
    if in_groups {
        exact = exact.in_largest_tlb_groups(processor);
    }
    let mut spec = TranslatorSpec::native(processor);
    if let Some(pages) = backed_by {
        exact = exact.in_guest(processor, pages);
        spec = TranslatorSpec::nested(processor, pages);
    }
    let lap = (0..bytes).step_by(stride as usize);
    let lap: Vec<_> = lap.map(|at| Access::load(BEGIN + at)).collect();
    exact.run_accesses(laps * lap.len() as u64);
    let exact = exact.counters();

    let mut mappings = mapped(processor, bytes, size, in_groups, backed_by)?;
    let mut fast = Translator::new(&spec)?;
    for _ in 0..laps {
        let done = fast.translate(&mut mappings, &lap, ProgramWork::default());
        assert_eq!(done.fault, None);
    }
    let counters = fast.counters();
    let what = format!(
        "{}, {size:?} pages, in groups: {in_groups}, every {stride} bytes, host: {backed_by:?}",
        processor.name
    );
    assert_eq!(counters.accesses, exact.accesses, "{what}");
    assert_eq!(counters.l2_hits(), exact.l2_tlb_hits, "{what}");
    assert_eq!(counters.walks(), exact.walks, "{what}");
    let [fast_loads, exact_loads] =
        [&counters.walk_loads[..], &exact.walk_loads[..]].map(|loads| loads.iter().sum::<u64>());
    assert_eq!(fast_loads, exact_loads, "{what}");
    Ok(())
}

/// Each model draws its own random reads: shares agree, and walks take about the same time.
#[test]
fn random_walks_are_as_long_as_in_the_exact_model() -> TestResult {
    for processor in PROCESSORS {
        for gib in [1, 16] {
            count_random(&processor, gib, false)?;
        }
        if processor.groups.base.is_some() {
            count_random(&processor, 1, true)?;
        }
    }
    Ok(())
}

/// Random reads over `gib` GiB of base pages in both models, in groups or not.
fn count_random(processor: &ProcessorSpec, gib: u64, in_groups: bool) -> TestResult {
    let accesses = 400_000;
    let mut exact = PatternRun::new(processor, AccessPattern::CHASE, gib << 30, LeafSize::Base, 1)?;
    if in_groups {
        exact = exact.in_largest_tlb_groups(processor);
    }
    exact.run_accesses(accesses);
    let exact = exact.run_and_count_accesses(accesses);

    let mut mappings = mapped(processor, gib << 30, LeafSize::Base, in_groups, None)?;
    let mut fast = Translator::new(&TranslatorSpec::native(processor))?;
    let random = random(3).map(|n| Access::load(BEGIN + (n >> 16) % (gib << 30)));
    let batch: Vec<_> = random.take(2 * accesses as usize).collect();
    let (warm, measured) = batch.split_at(accesses as usize);
    fast.translate(&mut mappings, warm, ProgramWork::default());
    let before = fast.counters();
    fast.translate(&mut mappings, measured, ProgramWork::default());
    let counters = fast.counters().since(&before);

    let what = format!("{}, {gib} GiB, in groups: {in_groups}", processor.name);
    let walks = counters.walks() as f64 / exact.walks as f64;
    assert!((0.99..1.01).contains(&walks), "{what}: {walks} times the walks");
    let exact_cycles = exact.walk_pending_cycles / exact.walks as f64;
    let cycles = counters.walk_cycles() as f64 / counters.walks() as f64;
    let length = cycles / exact_cycles;
    assert!((0.8..1.2).contains(&length), "{what}: {length} times as long");
    Ok(())
}
