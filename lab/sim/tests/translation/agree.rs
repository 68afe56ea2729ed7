//! The fast model and the plain one agree after any operations.

use super::plain::PlainTranslator;
use super::{FULL, random};
use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, EntrySize, LeafSize, Mappings, PageTableLevels, PageTableSetup, ProgramWork,
    Translator, TranslatorSpec,
};
use hawkeye_sim::mmu::{
    CoalescedPageGroup, CoalescedPageGroups, GiantPages, HASWELL, L1TlbSpec, L2TlbSpec,
    NestedCacheSizes, PROCESSORS, ProcessorSpec, SetShape, TlbGroupCondition, WalkCacheSizes,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence::Direct;

/// So small that it evicts all the time.
const TINY: ProcessorSpec = ProcessorSpec {
    name: "tiny",
    source: "none",
    l1_tlb: L1TlbSpec::Split {
        base: SetShape::new(8, 2),
        huge: SetShape::new(4, 1),
        giant: SetShape::new(2, 2),
    },
    l2_tlb: L2TlbSpec {
        shape: SetShape::new(16, 4),
        large: None,
        huge_ways: 2,
        giant: GiantPages::Among { ways: 1 },
        hit_cycles: 7,
    },
    walk_caches: WalkCacheSizes::new(3, 2, 1),
    nested: NestedCacheSizes { tlb: 3, walk_caches: WalkCacheSizes::new(2, 1, 0) },
    ..HASWELL
};

/// The same with groups of these orders, in the first level or not.
fn with_groups(
    processor: ProcessorSpec,
    base: TlbGroupCondition,
    orders: [u32; 2],
    in_l1: bool,
) -> ProcessorSpec {
    let group = |order, condition| Some(CoalescedPageGroup { order, condition, in_l1 });
    ProcessorSpec {
        groups: CoalescedPageGroups {
            base: group(orders[0], base),
            huge: group(orders[1], TlbGroupCondition::Marked),
        },
        ..processor
    }
}

fn processors() -> Vec<ProcessorSpec> {
    let mut large = TINY;
    large.l2_tlb.large = Some(SetShape::new(4, 2));
    let (seen, marked) = (TlbGroupCondition::Contiguous, TlbGroupCondition::Marked);
    let mut all = vec![
        TINY,
        with_groups(TINY, seen, [2, 1], true),
        with_groups(TINY, seen, [3, 4], false),
        with_groups(TINY, marked, [4, 2], true),
        with_groups(TINY, marked, [6, 1], false),
        with_groups(large, seen, [2, 1], true),
        with_groups(large, marked, [4, 4], false),
    ];
    all.extend(PROCESSORS);
    all
}

/// Addresses for mappings: neighbours, another GiB, another 512 GiB, beyond 48 bits.
const REGIONS: [u64; 10] = [
    0x7f00_0000_0000,
    0x7f00_0020_0000,
    0x7f00_0040_0000,
    0x7f00_3fe0_0000,
    0x7f00_4000_0000,
    0x7f00_4020_0000,
    0x5580_0000_0000,
    0x2_0000_0000,
    0x01fe_0000_0000_0000,
    0x01fe_0000_4000_0000,
];
const SIZES: [LeafSize; 3] = [LeafSize::Base, LeafSize::Huge, LeafSize::Giant];
const GROUPS: [u128; 5] = [u128::MAX, 0, 0b0111, 0xffff_0000_ffff_00ff, 1 << 127 | 1 << 31 | 1];

#[derive(Clone, Debug)]
enum MappingStep {
    /// Accesses: region, page in it, store.
    Access(Vec<(usize, u64, bool)>),
    Change(usize, MappingChange),
    InvalidateHost,
}

#[derive(Clone, Debug)]
enum MappingChange {
    MapPages([u64; 8], bool),
    MapGroups(usize),
    SetGroups(usize),
    MapHuge,
    MapHugeGroup,
    MapGiant,
    UnmapPages([u64; 8]),
    Split,
    SetHost(usize),
    ClearAccessed,
}

fn step() -> impl Strategy<Value = MappingStep> {
    let some = proptest::array::uniform8(any::<u64>());
    // Few pages of many, so that some are reused.
    let page = prop_oneof![0u64..12, 500u64..512, (0u64..16).prop_map(|n| n * 32)];
    let access = (0..REGIONS.len(), page, any::<bool>());
    let change = prop_oneof![
        2 => (some, any::<bool>()).prop_map(|(p, w)| MappingChange::MapPages(p, w)),
        2 => Just(MappingChange::MapPages(FULL, false)),
        2 => (0..GROUPS.len()).prop_map(MappingChange::MapGroups),
        1 => (0..GROUPS.len()).prop_map(MappingChange::SetGroups),
        2 => Just(MappingChange::MapHuge),
        2 => Just(MappingChange::MapHugeGroup),
        1 => Just(MappingChange::MapGiant),
        1 => some.prop_map(MappingChange::UnmapPages),
        1 => Just(MappingChange::Split),
        2 => (0..5usize).prop_map(MappingChange::SetHost),
        2 => Just(MappingChange::ClearAccessed),
    ];
    prop_oneof![
        8 => proptest::collection::vec(access, 1..120).prop_map(MappingStep::Access),
        18 => (0..REGIONS.len(), change).prop_map(|(region, change)| MappingStep::Change(region, change)),
        1 => Just(MappingStep::InvalidateHost),
    ]
}

fn tables() -> impl Strategy<Value = PageTableSetup> {
    let levels = || prop_oneof![Just(PageTableLevels::Four), Just(PageTableLevels::Five)];
    let nested = (levels(), levels(), 0..3usize).prop_map(|(guest, host, size)| {
        PageTableSetup::Nested { guest, host, tables_backed_by: SIZES[size] }
    });
    prop_oneof![levels().prop_map(PageTableSetup::Native), nested]
}

struct ModelPair {
    fast: Translator,
    mappings: Mappings,
    plain: PlainTranslator,
}

type PropertyResult = Result<(), TestCaseError>;

const WORK: ProgramWork = ProgramWork { millicycles_per_access: 1700, waited_permille: 400 };

impl ModelPair {
    fn new(spec: &TranslatorSpec) -> Result<Self, Box<dyn std::error::Error>> {
        let mappings = Mappings::with_groups(spec.processor.groups)?;
        Ok(Self { fast: Translator::new(spec)?, mappings, plain: PlainTranslator::new(spec) })
    }

    fn step(&mut self, step: &MappingStep) -> PropertyResult {
        match step {
            MappingStep::Access(accesses) => self.access(accesses)?,
            MappingStep::Change(region, change) => self.change(REGIONS[*region], change)?,
            MappingStep::InvalidateHost => self.invalidate_all_and_host(),
        }
        self.compare()
    }

    fn access(&mut self, accesses: &[(usize, u64, bool)]) -> PropertyResult {
        let access = |(region, page, store): &(usize, u64, bool)| {
            let address = REGIONS[*region] + page * 4096 + 8 * page;
            match store {
                true => Access::store(address),
                false => Access::load(address),
            }
        };
        let accesses: Vec<Access> = accesses.iter().map(access).collect();
        let plain = &mut self.plain;
        let mut makes = |access: &Access| plain.access(access.address(), access.is_store(), WORK);
        let mut rest = &accesses[..];
        loop {
            let done = self.fast.translate(&mut self.mappings, rest, WORK);
            prop_assert!(rest[..done.accesses].iter().all(&mut makes));
            let Some((faulted, after)) = rest[done.accesses..].split_first() else {
                prop_assert_eq!(done.fault, None);
                return Ok(());
            };
            prop_assert!(done.fault.is_some() && !makes(faulted));
            rest = after;
        }
    }

    fn change(&mut self, begin: u64, change: &MappingChange) -> PropertyResult {
        let region = RegionAddr::containing(begin);
        let (fast, plain) = (&mut self.mappings, &mut self.plain);
        let only_known = matches!(
            change,
            MappingChange::SetGroups(_)
                | MappingChange::UnmapPages(_)
                | MappingChange::Split
                | MappingChange::ClearAccessed
        );
        if !only_known {
            plain.number(begin);
        }
        let (fast, plain) = match change {
            MappingChange::MapPages(pages, protect) => {
                plain.map_pages(begin, *pages, *protect);
                let mapped = match protect {
                    true => fast.map_pages_read_only(region, *pages),
                    false => fast.map_pages(region, *pages),
                };
                (mapped.is_ok(), true)
            }
            MappingChange::MapGroups(groups) => {
                plain.map_pages(begin, FULL, false);
                plain.set_groups(begin, GROUPS[*groups]);
                let mapped = fast.map_pages(region, FULL);
                fast.set_groups(region, GROUPS[*groups]);
                (mapped.is_ok(), true)
            }
            MappingChange::SetGroups(groups) => {
                plain.set_groups(begin, GROUPS[*groups]);
                fast.set_groups(region, GROUPS[*groups]);
                (true, true)
            }
            MappingChange::MapHuge => (fast.map_huge(region).is_ok(), plain.map_huge(begin)),
            MappingChange::MapHugeGroup => {
                (fast.map_huge_group(region).is_ok(), plain.map_huge_group(begin))
            }
            MappingChange::MapGiant => {
                (fast.map_giant(begin + 12_345).is_ok(), plain.map_giant(begin))
            }
            MappingChange::UnmapPages(pages) => {
                (fast.unmap_pages(region, *pages).is_ok(), plain.unmap_pages(begin, *pages))
            }
            MappingChange::Split => {
                fast.split_huge_page(region);
                plain.split(begin);
                (true, true)
            }
            MappingChange::SetHost(size) => {
                plain.set_host_page_size(begin, EntrySize::ALL[*size]);
                (fast.set_host_page_size(region, EntrySize::ALL[*size]).is_ok(), true)
            }
            MappingChange::ClearAccessed => {
                fast.clear_accessed(region);
                plain.clear_accessed(begin);
                (true, true)
            }
        };
        prop_assert_eq!(fast, plain);
        match change {
            MappingChange::SetHost(_) => self.invalidate_all_and_host(),
            MappingChange::ClearAccessed => {}
            _ => {
                let end = begin + (2 << 20);
                self.fast.invalidate(&self.mappings, begin..end);
                self.plain.invalidate(begin, end);
            }
        }
        Ok(())
    }

    fn invalidate_all_and_host(&mut self) {
        self.fast.invalidate_all_and_host();
        self.plain.invalidate_all_and_host();
    }

    fn compare(&self) -> PropertyResult {
        prop_assert_eq!(self.fast.counters(), self.plain.counters);
        for begin in REGIONS {
            let region = RegionAddr::containing(begin);
            let accessed = self.plain.accessed_bits(begin);
            prop_assert_eq!(self.mappings.accessed(region), accessed);
            let groups = (
                self.mappings.bit_per_base_page_group(region),
                self.mappings.is_in_huge_group(region),
            );
            prop_assert_eq!(groups, self.plain.groups_of(begin));
        }
        Ok(())
    }
}

fn check(spec: &TranslatorSpec, steps: &[MappingStep]) -> PropertyResult {
    let both = ModelPair::new(spec).map_err(|error| TestCaseError::fail(error.to_string()));
    let mut both = both?;
    steps.iter().try_for_each(|step| both.step(step))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 250,
        ..ProptestConfig::with_failure_persistence(Direct("proptest-regressions/tests/agree.txt"))
    })]

    #[test]
    fn as_the_plain_model(
        processor in proptest::sample::select(processors()),
        tables in tables(),
        next_page_prefetch in any::<bool>(),
        share in 1u32..101,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let spec = TranslatorSpec {
            tables,
            page_table_share_percent: share,
            next_page_prefetch,
            ..TranslatorSpec::native(&processor)
        };
        check(&spec, &steps)?;
    }
}

/// Many pages, so that the larger TLBs and caches of the presets overflow too.
#[test]
fn as_the_plain_model_over_much_memory() -> Result<(), Box<dyn std::error::Error>> {
    for processor in PROCESSORS {
        let native = TranslatorSpec::native(&processor);
        let nested = TranslatorSpec::nested(&processor, LeafSize::Base);
        for spec in [native, nested] {
            let mut both = ModelPair::new(&spec)?;
            let begin = 0x7f00_0000_0000u64;
            let regions = 256u64;
            for number in 0..regions {
                let region = begin + (number << 21);
                let address = RegionAddr::containing(region);
                both.plain.number(region);
                both.mappings.set_host_page_size(address, LeafSize::Base)?;
                both.plain.set_host_page_size(region, EntrySize::Base);
                both.mappings.map_pages(address, FULL)?;
                both.plain.map_pages(region, FULL, false);
                both.mappings.clear_accessed(address);
                both.plain.clear_accessed(region);
            }
            let random = random(7).map(|n| Access::load(begin + (n >> 20) % (regions << 21)));
            let accesses: Vec<Access> = random.take(30_000).collect();
            for batch in accesses.chunks(1777) {
                let done = both.fast.translate(&mut both.mappings, batch, WORK);
                assert_eq!(done.fault, None);
                for access in batch {
                    assert!(both.plain.access(access.address(), false, WORK));
                }
            }
            assert_eq!(both.fast.counters(), both.plain.counters);
        }
    }
    Ok(())
}
