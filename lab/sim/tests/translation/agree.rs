//! The fast model and the plain one agree after any operations.

use super::plain::Plain;
use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, EntrySize, LeafSize, Levels, Mappings, Tables, Translator, TranslatorSpec, Work,
};
use hawkeye_sim::mmu::{
    GiantPages, Group, GroupCondition, Groups, HASWELL, L1Tlb, L2Tlb, NestedCaches, PROCESSORS,
    Processor, Shape, WalkCacheSizes,
};
use proptest::prelude::*;

/// So small that it evicts all the time.
const TINY: Processor = Processor {
    name: "tiny",
    source: "none",
    l1_tlb: L1Tlb::Split {
        base: Shape::new(8, 2),
        huge: Shape::new(4, 1),
        giant: Shape::new(2, 2),
    },
    l2_tlb: L2Tlb {
        shape: Shape::new(16, 4),
        large: None,
        huge_ways: 2,
        giant: GiantPages::Among { ways: 1 },
        hit_cycles: 7,
    },
    walk_caches: WalkCacheSizes::new(3, 2, 1),
    nested: NestedCaches {
        tlb: 3,
        walk_caches: WalkCacheSizes::new(2, 1, 0),
    },
    ..HASWELL
};

/// The same with groups of these orders, in the first level or not.
fn with_groups(
    processor: Processor,
    base: GroupCondition,
    orders: [u32; 2],
    in_l1: bool,
) -> Processor {
    let group = |order, condition| {
        Some(Group {
            order,
            condition,
            in_l1,
        })
    };
    Processor {
        groups: Groups {
            base: group(orders[0], base),
            huge: group(orders[1], GroupCondition::Marked),
        },
        ..processor
    }
}

/// The presets, and variants that no preset has.
fn processors() -> Vec<Processor> {
    let mut large = TINY;
    large.l2_tlb.large = Some(Shape::new(4, 2));
    let (seen, marked) = (GroupCondition::Contiguous, GroupCondition::Marked);
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
const FULL: [u64; 8] = [u64::MAX; 8];
const SIZES: [LeafSize; 3] = [LeafSize::Base, LeafSize::Huge, LeafSize::Giant];
/// Groups of base pages: all, none, some.
const GROUPS: [u128; 5] = [
    u128::MAX,
    0,
    0b0111,
    0xffff_0000_ffff_00ff,
    1 << 127 | 1 << 31 | 1,
];

#[derive(Clone, Debug)]
enum Step {
    /// Accesses: region, page in it, store.
    Access(Vec<(usize, u64, bool)>),
    MapPages(usize, [u64; 8], bool),
    /// Maps pages, and makes these groups of them one entry each.
    MapGroups(usize, usize),
    SetGroups(usize, usize),
    MapHuge(usize),
    MapHugeGroup(usize),
    MapGiant(usize),
    UnmapPages(usize, [u64; 8]),
    Split(usize),
    SetHost(usize, usize),
    ClearAccessed(usize),
    InvalidateHost,
}

fn step() -> impl Strategy<Value = Step> {
    let region = 0..REGIONS.len();
    let some = proptest::array::uniform8(any::<u64>());
    // Few pages of many, so that some are reused.
    let page = prop_oneof![0u64..12, 500u64..512, (0u64..16).prop_map(|n| n * 32)];
    let access = (region.clone(), page, any::<bool>());
    prop_oneof![
        8 => proptest::collection::vec(access, 1..120).prop_map(Step::Access),
        2 => (region.clone(), some, any::<bool>()).prop_map(|(r, p, w)| Step::MapPages(r, p, w)),
        2 => region.clone().prop_map(|r| Step::MapPages(r, FULL, false)),
        2 => (region.clone(), 0..GROUPS.len()).prop_map(|(r, g)| Step::MapGroups(r, g)),
        1 => (region.clone(), 0..GROUPS.len()).prop_map(|(r, g)| Step::SetGroups(r, g)),
        2 => region.clone().prop_map(Step::MapHuge),
        2 => region.clone().prop_map(Step::MapHugeGroup),
        1 => region.clone().prop_map(Step::MapGiant),
        1 => (region.clone(), some).prop_map(|(r, p)| Step::UnmapPages(r, p)),
        1 => region.clone().prop_map(Step::Split),
        2 => (region.clone(), 0..5usize).prop_map(|(r, s)| Step::SetHost(r, s)),
        2 => region.prop_map(Step::ClearAccessed),
        1 => Just(Step::InvalidateHost),
    ]
}

fn tables() -> impl Strategy<Value = Tables> {
    let levels = || prop_oneof![Just(Levels::Four), Just(Levels::Five)];
    let nested = (levels(), levels(), 0..3usize).prop_map(|(guest, host, size)| Tables::Nested {
        guest,
        host,
        tables_backed_by: SIZES[size],
    });
    prop_oneof![levels().prop_map(Tables::Native), nested]
}

/// Both models, with the same operations applied.
struct Both {
    fast: Translator,
    mappings: Mappings,
    plain: Plain,
}

type Checked = Result<(), TestCaseError>;

const WORK: Work = Work {
    millicycles_per_access: 1700,
    waited_permille: 400,
};

impl Both {
    fn new(spec: &TranslatorSpec) -> Result<Self, Box<dyn std::error::Error>> {
        let mappings = Mappings::with_groups(spec.processor.groups)?;
        Ok(Self {
            fast: Translator::new(spec)?,
            mappings,
            plain: Plain::new(spec),
        })
    }

    fn step(&mut self, step: &Step) -> Checked {
        let begin = |region: usize| REGIONS[region];
        let address = |region: usize| RegionAddr::containing(REGIONS[region]);
        match step {
            Step::Access(accesses) => {
                let accesses: Vec<Access> = accesses
                    .iter()
                    .map(|(region, page, store)| {
                        let address = begin(*region) + page * 4096 + 8 * page;
                        if *store {
                            Access::store(address)
                        } else {
                            Access::load(address)
                        }
                    })
                    .collect();
                let mut rest = &accesses[..];
                loop {
                    let done = self.fast.translate(&mut self.mappings, rest, WORK);
                    for access in &rest[..done.accesses] {
                        prop_assert!(self.plain.access(access.address(), access.is_store(), WORK));
                    }
                    rest = &rest[done.accesses..];
                    let Some((faulted, after)) = rest.split_first() else {
                        prop_assert_eq!(done.fault, None);
                        break;
                    };
                    prop_assert!(done.fault.is_some());
                    prop_assert!(
                        !self
                            .plain
                            .access(faulted.address(), faulted.is_store(), WORK)
                    );
                    rest = after;
                }
            }
            Step::MapPages(region, pages, protect) => {
                let mapped = if *protect {
                    self.mappings.map_protected(address(*region), *pages)
                } else {
                    self.mappings.map_pages(address(*region), *pages)
                };
                prop_assert!(mapped.is_ok());
                self.plain.number(begin(*region));
                self.plain.map_pages(begin(*region), *pages, *protect);
                self.shoot_down(*region);
            }
            Step::MapGroups(region, groups) => {
                let mapped = self.mappings.map_pages(address(*region), FULL);
                prop_assert!(mapped.is_ok());
                self.plain.number(begin(*region));
                self.plain.map_pages(begin(*region), FULL, false);
                self.set_groups(*region, *groups);
            }
            Step::SetGroups(region, groups) => self.set_groups(*region, *groups),
            Step::MapHugeGroup(region) => {
                let mapped = self.mappings.map_huge_group(address(*region));
                self.plain.number(begin(*region));
                let plain = self.plain.map_huge_group(begin(*region));
                prop_assert_eq!(mapped.is_ok(), plain);
                self.shoot_down(*region);
            }
            Step::MapHuge(region) => {
                let mapped = self.mappings.map_huge(address(*region));
                self.plain.number(begin(*region));
                prop_assert_eq!(mapped.is_ok(), self.plain.map_huge(begin(*region)));
                self.shoot_down(*region);
            }
            Step::MapGiant(region) => {
                let mapped = self.mappings.map_giant(begin(*region) + 12_345);
                self.plain.number(begin(*region));
                prop_assert_eq!(mapped.is_ok(), self.plain.map_giant(begin(*region)));
                self.shoot_down(*region);
            }
            Step::UnmapPages(region, pages) => {
                let unmapped = self.mappings.unmap_pages(address(*region), *pages);
                prop_assert_eq!(
                    unmapped.is_ok(),
                    self.plain.unmap_pages(begin(*region), *pages)
                );
                self.shoot_down(*region);
            }
            Step::Split(region) => {
                self.mappings.split(address(*region));
                self.plain.split(begin(*region));
                self.shoot_down(*region);
            }
            Step::SetHost(region, size) => {
                let set = self
                    .mappings
                    .set_host(address(*region), EntrySize::ALL[*size]);
                prop_assert!(set.is_ok());
                self.plain.number(begin(*region));
                let host = EntrySize::ALL[*size];
                self.plain.set_host(begin(*region), host);
                self.fast.invalidate_host();
                self.plain.invalidate_host();
            }
            Step::ClearAccessed(region) => {
                self.mappings.clear_accessed(address(*region));
                self.plain.clear_accessed(begin(*region));
            }
            Step::InvalidateHost => {
                self.fast.invalidate_host();
                self.plain.invalidate_host();
            }
        }
        self.compare()
    }

    fn set_groups(&mut self, region: usize, groups: usize) {
        let (begin, groups) = (REGIONS[region], GROUPS[groups]);
        self.mappings
            .set_groups(RegionAddr::containing(begin), groups);
        self.plain.set_groups(begin, groups);
        self.shoot_down(region);
    }

    fn shoot_down(&mut self, region: usize) {
        let begin = REGIONS[region];
        let end = begin + (2 << 20);
        self.fast.invalidate(&self.mappings, begin..end);
        self.plain.invalidate(begin, end);
    }

    fn compare(&self) -> Checked {
        prop_assert_eq!(self.fast.counters(), self.plain.counters);
        for begin in REGIONS {
            let region = RegionAddr::containing(begin);
            let accessed = self.plain.accessed_bits(begin);
            prop_assert_eq!(self.mappings.accessed(region), accessed);
            let groups = (
                self.mappings.base_groups(region),
                self.mappings.is_in_huge_group(region),
            );
            prop_assert_eq!(groups, self.plain.groups_of(begin));
        }
        Ok(())
    }
}

fn check(spec: &TranslatorSpec, steps: &[Step]) -> Checked {
    let both = Both::new(spec).map_err(|error| TestCaseError::fail(error.to_string()));
    let mut both = both?;
    steps.iter().try_for_each(|step| both.step(step))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

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
            let mut both = Both::new(&spec)?;
            let begin = 0x7f00_0000_0000u64;
            let regions = 256u64;
            for number in 0..regions {
                let region = begin + (number << 21);
                let who = RegionAddr::containing(region);
                both.plain.number(region);
                both.mappings.set_host(who, LeafSize::Base)?;
                both.plain.set_host(region, EntrySize::Base);
                both.mappings.map_pages(who, FULL)?;
                both.plain.map_pages(region, FULL, false);
                both.mappings.clear_accessed(who);
                both.plain.clear_accessed(region);
            }
            let mut random = 7u64;
            let accesses: Vec<Access> = (0..30_000)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    Access::load(begin + (random >> 20) % (regions << 21))
                })
                .collect();
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
