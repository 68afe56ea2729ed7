//! Small cases worked out by hand.

use super::{BEGIN, FULL, Machine, TestResult, region};
use hawkeye_sim::mmu::translation::{
    Access, LeafSize, PageTableLevels, PageTableSetup, ProgramWork, Translator, TranslatorSpec,
};
use hawkeye_sim::mmu::{
    CacheLevelSpec, GiantPages, L1TlbSpec, L2TlbSpec, MmuError, NestedCacheSizes, ProcessorSpec,
    SKYLAKE, SetShape, WalkCacheSizes,
};

const PAGE: u64 = 4096;

/// No walk caches. The second-level cache takes 10 cycles, the last level 40, memory 200.
fn bare() -> ProcessorSpec {
    let none = WalkCacheSizes::new(0, 0, 0);
    let mut processor = SKYLAKE;
    processor.walk_caches = none;
    processor.nested = NestedCacheSizes { tlb: 0, walk_caches: none };
    let [first, mut second, mut last] = processor.memory.caches;
    second.latency_cycles = 10;
    last.latency_cycles = 40;
    processor.memory.caches = [first, second, last];
    processor.memory.latency_ns = 100.0;
    processor.ghz = 2.0;
    processor
}

/// A core, and a region mapped by pages of these sizes, with all access bits clear.
fn mapped(spec: &TranslatorSpec, size: LeafSize, host: LeafSize) -> TestResult<Machine> {
    let mut machine = Machine::new(spec)?;
    let mappings = &mut machine.mappings;
    match size {
        LeafSize::Base => mappings.map_pages(region(0), FULL)?,
        LeafSize::Huge => mappings.map_huge(region(0))?,
        LeafSize::Giant => mappings.map_giant(BEGIN)?,
    }
    mappings.set_host_page_size(region(0), host)?;
    machine.clear();
    Ok(machine)
}

fn native(spec: &TranslatorSpec) -> TestResult<Machine> {
    mapped(spec, LeafSize::Base, LeafSize::Giant)
}

fn loads(spec: &TranslatorSpec, size: LeafSize, host: LeafSize) -> TestResult<u64> {
    let counters = mapped(spec, size, host)?.load(&[0]);
    assert_eq!(counters.walks_of_size(size.min(host)), 1);
    Ok(counters.walk_loads.iter().sum())
}

#[test]
fn a_walk_loads_an_entry_a_level() -> TestResult {
    let four = TranslatorSpec::native(&bare());
    let five = TranslatorSpec { tables: PageTableSetup::Native(PageTableLevels::Five), ..four };
    for (size, expected) in [(LeafSize::Base, 4), (LeafSize::Huge, 3), (LeafSize::Giant, 2)] {
        assert_eq!(loads(&four, size, LeafSize::Giant)?, expected);
        assert_eq!(loads(&five, size, LeafSize::Giant)?, expected + 1);
    }
    Ok(())
}

/// Bhargava et al. (2008), figure 1: (guest + 1) * (host + 1) - 1 loads with as many levels each.
#[test]
fn a_nested_walk_loads_24() -> TestResult {
    let spec = |tables_backed_by| TranslatorSpec::nested(&bare(), tables_backed_by);
    let base = spec(LeafSize::Base);
    assert_eq!(loads(&base, LeafSize::Base, LeafSize::Base)?, 24);
    // Three levels of the guest, each with four of the host, and four for the page.
    assert_eq!(loads(&base, LeafSize::Huge, LeafSize::Base)?, 3 * 5 + 4);
    assert_eq!(loads(&base, LeafSize::Base, LeafSize::Huge)?, 4 * 5 + 3);
    let huge = spec(LeafSize::Huge);
    assert_eq!(loads(&huge, LeafSize::Huge, LeafSize::Huge)?, 3 * 4 + 3);
    let five = TranslatorSpec {
        tables: PageTableSetup::Nested {
            guest: PageTableLevels::Five,
            host: PageTableLevels::Five,
            tables_backed_by: LeafSize::Base,
        },
        ..base
    };
    assert_eq!(loads(&five, LeafSize::Base, LeafSize::Base)?, 35);
    Ok(())
}

#[test]
fn cycles_are_those_of_where_lines_are() -> TestResult {
    let Machine { mut mappings, mut core } = native(&TranslatorSpec::native(&bare()))?;
    // Four lines from memory; then the same four; then, eight pages on, three old ones and a new
    // one.
    let batch = [Access::load(BEGIN), Access::store(BEGIN + PAGE), Access::load(BEGIN + 8 * PAGE)];
    let work = ProgramWork { millicycles_per_access: 2500, waited_permille: 500 };
    core.translate(&mut mappings, &batch, work);
    let counters = core.counters();
    assert_eq!(counters.walk_loads, [7, 0, 5]);
    assert_eq!(counters.load_walk_cycles, 4 * 200 + 3 * 10 + 200);
    assert_eq!(counters.store_walk_cycles, 4 * 10);
    // Half of 1,070 cycles in walks, and 7.5 of work.
    assert_eq!(counters.millicycles, 535_000 + 7_500);
    assert_eq!(core.counters().first_touches, 3);
    Ok(())
}

#[test]
fn lines_that_the_second_level_lost_are_in_the_last() -> TestResult {
    let mut processor = bare();
    // One set of four lines.
    processor.memory.caches[1] = CacheLevelSpec { bytes: 256, ways: 1, latency_cycles: 10 };
    let spec =
        TranslatorSpec { page_table_share_percent: 100, ..TranslatorSpec::native(&processor) };
    // Lines 4321, then 432 again and a new one, which evicts line 1. Line 1 again evicts the one
    // before it.
    assert_eq!(native(&spec)?.load(&[0, 8, 1]).walk_loads, [6, 1, 5]);
    Ok(())
}

#[test]
fn hits_cost_nothing_or_the_second_levels_time() -> TestResult {
    let tlb = L2TlbSpec {
        shape: SetShape::new(1536, 12),
        large: None,
        huge_ways: 12,
        giant: GiantPages::Nowhere,
        hit_cycles: 7,
    };
    let processor = ProcessorSpec {
        l1_tlb: L1TlbSpec::Split {
            base: SetShape::new(4, 1),
            huge: SetShape::new(1, 1),
            giant: SetShape::new(1, 1),
        },
        l2_tlb: tlb,
        ..bare()
    };
    let counters = native(&TranslatorSpec::native(&processor))?.load(&[0, 0, 4, 4, 0, 1]);
    assert_eq!((counters.accesses, counters.l1_misses, counters.walks()), (6, 4, 3));
    assert_eq!(counters.l2_hits(), 1);
    assert_eq!(counters.unhalted_cycles(), 6 + 7 + counters.walk_cycles());
    Ok(())
}

#[test]
fn giant_pages_are_where_the_processor_has_them() -> TestResult {
    let walks = |giant, gibs: u64| -> TestResult<u64> {
        let mut processor = bare();
        processor.l2_tlb.giant = giant;
        let mut machine = Machine::new(&TranslatorSpec::native(&processor))?;
        for gib in 0..gibs {
            machine.mappings.map_giant(BEGIN + (gib << 30))?;
        }
        let lap: Vec<u64> = (0..gibs).map(|gib| gib << 18).collect();
        Ok(machine.load(&lap).walks() + machine.load(&lap).walks())
    };
    assert_eq!(walks(GiantPages::Nowhere, 4)?, 4);
    assert_eq!(walks(GiantPages::Nowhere, 5)?, 10);
    assert_eq!(walks(GiantPages::Own(SetShape::new(16, 4)), 16)?, 16);
    assert_eq!(walks(GiantPages::Own(SetShape::new(16, 4)), 17)?, 17 + 5);
    assert_eq!(walks(GiantPages::Among { ways: 1 }, 128)?, 128);
    // Pieces of 2 MiB at a distance of 1 GiB all map to one set of 12 ways.
    assert_eq!(walks(GiantPages::AsHuge, 12)?, 12);
    assert_eq!(walks(GiantPages::AsHuge, 13)?, 26);
    Ok(())
}

#[test]
fn a_stream_is_walked_for_ahead() -> TestResult {
    let count = |next_page_prefetch| -> TestResult<_> {
        let spec = TranslatorSpec { next_page_prefetch, ..TranslatorSpec::native(&SKYLAKE) };
        let mut machine = native(&spec)?;
        let counters = machine.load(&(0..512).collect::<Vec<u64>>());
        let marked = machine.mappings.accessed(region(0)).map(u64::count_ones);
        Ok((counters.walks(), counters.prefetches, marked.iter().sum::<u32>()))
    };
    assert_eq!(count(false)?, (512, 0, 512));
    // The first two miss; the last one's neighbour is not mapped. Prefetches set no access bits.
    assert_eq!(count(true)?, (2, 510, 2));
    Ok(())
}

#[test]
fn impossible_processors_are_refused() {
    let refused = |spec: TranslatorSpec| match Translator::new(&spec) {
        Err(MmuError::Processor { part, .. }) => part,
        other => panic!("{other:?}"),
    };
    let spec = TranslatorSpec::native(&SKYLAKE);
    let share = TranslatorSpec { page_table_share_percent: 0, ..spec };
    assert_eq!(refused(share), "the share of page tables in its caches");
    let mut two_sets = spec;
    two_sets.processor.l2_tlb.shape = SetShape::new(24, 12);
    assert_eq!(refused(two_sets), "each TLB");
}
