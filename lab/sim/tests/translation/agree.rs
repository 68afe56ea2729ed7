//! The fast model and the plain one see the same, whatever is done.

use super::plain::Plain;
use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, EntrySize, LeafSize, Levels, Mappings, SpaceId, Sweep, Tables, Translator,
    TranslatorSpec, Work,
};
use hawkeye_sim::mmu::{
    GiantPages, Group, GroupCondition, Groups, HASWELL, L1Tlb, L2Tlb, NestedCaches, PROCESSORS,
    Processor, Shape, WalkCacheSizes,
};
use proptest::prelude::*;

/// Small enough that everything is thrown out of it all the time.
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
    walk_caches: WalkCacheSizes {
        pde: 3,
        pdpte: 2,
        pml4e: 1,
    },
    nested: NestedCaches {
        tlb: 3,
        walk_caches: WalkCacheSizes {
            pde: 2,
            pdpte: 1,
            pml4e: 0,
        },
    },
    ..HASWELL
};

/// The same with groups of these orders, held by the first level or not.
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

/// The presets, and what is not in them.
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

/// Where things may be mapped: neighbours, another GiB, another 512 GiB, beyond 48 bits.
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
    /// A sweep: region, first byte, stride, how many.
    Sweep(usize, u64, u64, u64, bool),
    MapPages(usize, [u64; 8], bool),
    /// Maps pages, and says that these groups of them are one.
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
    // Few pages of many, so that some come back.
    let page = prop_oneof![0u64..12, 500u64..512, (0u64..16).prop_map(|n| n * 32)];
    let access = (region.clone(), page, any::<bool>());
    prop_oneof![
        8 => proptest::collection::vec(access, 1..120).prop_map(Step::Access),
        4 => (region.clone(), 0u64..1 << 21, prop_oneof![Just(0u64), 1u64..10_000, Just(64u64), Just(1u64 << 21)], 0u64..2000, any::<bool>())
            .prop_map(|(r, b, s, c, w)| Step::Sweep(r, b, s, c, w)),
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

/// Both models, told the same.
struct Both {
    fast: Translator,
    mappings: Mappings,
    spaces: [SpaceId; 2],
    plain: Plain,
}

type Checked = Result<(), TestCaseError>;

const WORK: Work = Work {
    millicycles_per_access: 1700,
    waited_permille: 400,
};

impl Both {
    fn new(spec: &TranslatorSpec) -> Result<Self, Box<dyn std::error::Error>> {
        let mut mappings = Mappings::with_groups(spec.processor.groups)?;
        let spaces = [mappings.add_space()?, mappings.add_space()?];
        Ok(Self {
            fast: Translator::new(spec)?,
            mappings,
            spaces,
            plain: Plain::new(spec),
        })
    }

    fn step(&mut self, who: usize, step: &Step) -> Checked {
        let (space, id) = (self.spaces[who], who as u16);
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
                    let done = self.fast.translate(&mut self.mappings, space, rest, WORK);
                    for access in &rest[..done.accesses] {
                        prop_assert!(self.plain.access(
                            id,
                            access.address(),
                            access.is_store(),
                            WORK
                        ));
                    }
                    rest = &rest[done.accesses..];
                    let Some((faulted, after)) = rest.split_first() else {
                        prop_assert_eq!(done.fault, None);
                        break;
                    };
                    prop_assert!(done.fault.is_some());
                    prop_assert!(!self.plain.access(
                        id,
                        faulted.address(),
                        faulted.is_store(),
                        WORK
                    ));
                    rest = after;
                }
            }
            Step::Sweep(region, first, stride, count, store) => {
                let sweep = Sweep {
                    address: begin(*region) + first,
                    stride: *stride,
                    count: *count,
                    store: *store,
                };
                let swept = self
                    .fast
                    .sweep(&mut self.mappings, space, &[sweep], 0, WORK);
                let made = if swept.sweeps == 1 {
                    *count
                } else {
                    swept.of_next
                };
                prop_assert_eq!(swept.fault.is_none(), swept.sweeps == 1);
                for number in 0..made {
                    let access = sweep.access(number);
                    prop_assert!(self.plain.access(id, access.address(), *store, WORK));
                }
                if swept.sweeps == 0 {
                    let access = sweep.access(made);
                    prop_assert!(!self.plain.access(id, access.address(), *store, WORK));
                }
            }
            Step::MapPages(region, pages, protect) => {
                let mapped = if *protect {
                    self.mappings.map_protected(space, address(*region), *pages)
                } else {
                    self.mappings.map_pages(space, address(*region), *pages)
                };
                prop_assert!(mapped.is_ok());
                self.plain.number(id, begin(*region));
                self.plain.map_pages(id, begin(*region), *pages, *protect);
                self.shoot_down(who, *region);
            }
            Step::MapGroups(region, groups) => {
                let mapped = self.mappings.map_pages(space, address(*region), FULL);
                prop_assert!(mapped.is_ok());
                self.plain.number(id, begin(*region));
                self.plain.map_pages(id, begin(*region), FULL, false);
                self.set_groups(who, *region, *groups)?;
            }
            Step::SetGroups(region, groups) => self.set_groups(who, *region, *groups)?,
            Step::MapHugeGroup(region) => {
                let mapped = self.mappings.map_huge_group(space, address(*region));
                self.plain.number(id, begin(*region));
                let plain = self.plain.map_huge_group(id, begin(*region));
                prop_assert_eq!(mapped.is_ok(), plain);
                self.shoot_down(who, *region);
            }
            Step::MapHuge(region) => {
                let mapped = self.mappings.map_huge(space, address(*region));
                self.plain.number(id, begin(*region));
                prop_assert_eq!(mapped.is_ok(), self.plain.map_huge(id, begin(*region)));
                self.shoot_down(who, *region);
            }
            Step::MapGiant(region) => {
                let mapped = self.mappings.map_giant(space, begin(*region) + 12_345);
                self.plain.number(id, begin(*region));
                prop_assert_eq!(mapped.is_ok(), self.plain.map_giant(id, begin(*region)));
                self.shoot_down(who, *region);
            }
            Step::UnmapPages(region, pages) => {
                let unmapped = self.mappings.unmap_pages(space, address(*region), *pages);
                prop_assert_eq!(
                    unmapped.is_ok(),
                    self.plain.unmap_pages(id, begin(*region), *pages)
                );
                self.shoot_down(who, *region);
            }
            Step::Split(region) => {
                prop_assert!(self.mappings.split(space, address(*region)).is_ok());
                self.plain.split(id, begin(*region));
                self.shoot_down(who, *region);
            }
            Step::SetHost(region, size) => {
                let set = self
                    .mappings
                    .set_host(space, address(*region), EntrySize::ALL[*size]);
                prop_assert!(set.is_ok());
                self.plain.number(id, begin(*region));
                let host = EntrySize::ALL[*size];
                self.plain.set_host(id, begin(*region), host);
                self.fast.invalidate_host();
                self.plain.invalidate_host();
            }
            Step::ClearAccessed(region) => {
                self.mappings.clear_accessed(space, address(*region));
                self.plain.clear_accessed(id, begin(*region));
            }
            Step::InvalidateHost => {
                self.fast.invalidate_host();
                self.plain.invalidate_host();
            }
        }
        self.compare()
    }

    fn set_groups(&mut self, who: usize, region: usize, groups: usize) -> Checked {
        let (begin, groups) = (REGIONS[region], GROUPS[groups]);
        let set = self
            .mappings
            .set_groups(self.spaces[who], RegionAddr::containing(begin), groups);
        prop_assert!(set.is_ok());
        self.plain.set_groups(who as u16, begin, groups);
        self.shoot_down(who, region);
        Ok(())
    }

    fn shoot_down(&mut self, who: usize, region: usize) {
        let begin = REGIONS[region];
        let end = begin + (2 << 20);
        self.fast
            .invalidate(&self.mappings, self.spaces[who], begin..end);
        self.plain.invalidate(who as u16, begin, end);
    }

    fn compare(&self) -> Checked {
        for (id, space) in self.spaces.into_iter().enumerate() {
            let plain = self
                .plain
                .counters
                .get(&(id as u16))
                .copied()
                .unwrap_or_default();
            prop_assert_eq!(self.fast.counters(space), plain);
            for begin in REGIONS {
                let region = RegionAddr::containing(begin);
                let accessed = self.plain.accessed_bits(id as u16, begin);
                prop_assert_eq!(self.mappings.accessed(space, region), accessed);
                let plain = self.plain.groups_of(id as u16, begin);
                let groups = (
                    self.mappings.base_groups(space, region),
                    self.mappings.is_in_huge_group(space, region),
                );
                prop_assert_eq!(groups, plain);
            }
        }
        Ok(())
    }
}

fn check(spec: &TranslatorSpec, steps: &[(usize, Step)]) -> Checked {
    let both = Both::new(spec).map_err(|error| TestCaseError::fail(error.to_string()));
    let mut both = both?;
    steps
        .iter()
        .try_for_each(|(who, step)| both.step(*who, step))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn as_the_plain_model(
        processor in proptest::sample::select(processors()),
        tables in tables(),
        next_page_prefetch in any::<bool>(),
        share in 1u32..101,
        steps in proptest::collection::vec((0..2usize, step()), 1..60),
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
                both.plain.number(0, region);
                both.mappings
                    .set_host(both.spaces[0], who, LeafSize::Base)?;
                both.plain.set_host(0, region, EntrySize::Base);
                both.mappings.map_pages(both.spaces[0], who, FULL)?;
                both.plain.map_pages(0, region, FULL, false);
                both.mappings.clear_accessed(both.spaces[0], who);
                both.plain.clear_accessed(0, region);
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
                let done = both
                    .fast
                    .translate(&mut both.mappings, both.spaces[0], batch, WORK);
                assert_eq!(done.fault, None);
                for access in batch {
                    assert!(both.plain.access(0, access.address(), false, WORK));
                }
            }
            assert_eq!(both.fast.counters(both.spaces[0]), both.plain.counters[&0]);
        }
    }
    Ok(())
}
