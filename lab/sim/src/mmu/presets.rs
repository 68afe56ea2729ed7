//! Processors that are sold, and one open design.
//!
//! Sizes are the makers' where they publish them. Intel does not publish its walk caches. Theirs
//! are from S. van Schaik, K. Razavi, B. Gras, H. Bos, C. Giuffrida, "Reverse engineering hardware
//! page table caches using side-channel attacks on the MMU" (VU Amsterdam, 2017), and are assumed
//! equal in the generations after it. Latencies are typical of one socket of a server, and exact to
//! 10 % at best. Memory latency differs as much between machines of one family.
//!
//! A preset marks as "not confirmed" what is from memory of the source named there: a guess.

use super::coalesced_page_groups::{CoalescedPageGroup, CoalescedPageGroups, TlbGroupCondition};
use super::data_cache_hierarchy::{CacheLevelSpec, CacheReplacement};
use super::lru_sets::SetShape;
use super::memory_model::MemorySpec;
use super::processor_spec::ProcessorSpec;
use super::read_latency::ReadLatencyShape;
use super::tlb_spec::{GiantPages, L1TlbSpec, L2TlbSpec, NestedCacheSizes, WalkCacheSizes};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes, ways and latencies in cycles of the three levels.
const fn cache_levels(bytes: [u64; 3], ways: [u32; 3], cycles: [u32; 3]) -> [CacheLevelSpec; 3] {
    const fn level(bytes: u64, ways: u32, latency_cycles: u32) -> CacheLevelSpec {
        CacheLevelSpec { bytes, ways, latency_cycles }
    }
    [
        level(bytes[0], ways[0], cycles[0]),
        level(bytes[1], ways[1], cycles[1]),
        level(bytes[2], ways[2], cycles[2]),
    ]
}

/// No maker publishes these for any processor that is sold. 16 entries and a second set of the
/// native walk caches are what R. Bhargava, B. Serebrin, F. Spadini, S. Manne, "Accelerating
/// two-dimensional page walks for virtualized systems" (ASPLOS 2008) found worthwhile.
const fn nested_caches(walk_caches: WalkCacheSizes) -> NestedCacheSizes {
    NestedCacheSizes { tlb: 16, walk_caches }
}

const fn l2_tlb(
    entries: u32,
    ways: u32,
    huge_ways: u32,
    giant: GiantPages,
    hit_cycles: u32,
) -> L2TlbSpec {
    L2TlbSpec { shape: SetShape::new(entries, ways), large: None, huge_ways, giant, hit_cycles }
}

const fn page_group(
    order: u32,
    condition: TlbGroupCondition,
    in_l1: bool,
) -> Option<CoalescedPageGroup> {
    Some(CoalescedPageGroup { order, condition, in_l1 })
}

// Intel. None of these holds neighbouring pages in one entry.

const fn intel_l1_tlb(base: SetShape, giant_entries: u32) -> L1TlbSpec {
    L1TlbSpec::Split {
        base,
        huge: SetShape::new(32, 4),
        giant: SetShape::fully_associative(giant_entries),
    }
}

const INTEL_WALK_CACHES: WalkCacheSizes = WalkCacheSizes::new(32, 4, 0);

/// Haswell server: the E5-2690 v3 of the HawkEye paper, 12 cores. Its last-level cache has 20 ways
/// in 12 slices; here 15 ways in a power of two of sets.
pub const HASWELL: ProcessorSpec = ProcessorSpec {
    name: "haswell",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Haswell: TLB parameters",
    ghz: 2.6,
    width: 4,
    reorder_buffer: 192,
    l1_tlb: intel_l1_tlb(SetShape::new(64, 4), 4),
    l2_tlb: l2_tlb(1024, 8, 8, GiantPages::Nowhere, 7),
    groups: CoalescedPageGroups::NONE,
    walk_caches: INTEL_WALK_CACHES,
    nested: nested_caches(INTEL_WALK_CACHES),
    walkers: 1,
    memory: MemorySpec {
        caches: cache_levels([32 * KIB, 256 * KIB, 30 * MIB], [8, 8, 15], [5, 12, 50]),
        latency_ns: 90.0,
        latency_shape: ReadLatencyShape::SAME,
        bandwidth_gb_per_s: 11.0,
        fill_buffers: 10,
        // DDR4-2133.
        channels: 4,
        channel_gb_per_s: 17.1,
        neighbours_gb_per_s: 0.0,
        last_level: CacheReplacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};

/// Skylake server, 16 cores. Not confirmed: 16 entries in 4 ways for 1 GiB in the second level.
pub const SKYLAKE: ProcessorSpec = ProcessorSpec {
    name: "skylake",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Skylake client and server: \
             TLB parameters; two page walks in parallel",
    reorder_buffer: 224,
    l2_tlb: l2_tlb(1536, 12, 12, GiantPages::Own(SetShape::new(16, 4)), 7),
    walkers: 2,
    memory: MemorySpec {
        caches: cache_levels([32 * KIB, MIB, 22 * MIB], [8, 16, 11], [5, 14, 68]),
        bandwidth_gb_per_s: 12.0,
        fill_buffers: 12,
        // DDR4-2666.
        channels: 6,
        channel_gb_per_s: 21.3,
        ..HASWELL.memory
    },
    ..HASWELL
};

/// Ice Lake server, 16 cores. Not confirmed: second-level ways of pages of 2 MiB and 1 GiB.
pub const ICE_LAKE: ProcessorSpec = ProcessorSpec {
    name: "ice-lake",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Ice Lake client: TLB \
             parameters (pages of 2 MiB and of 1 GiB take 8 of 16 ways of the second level each)",
    ghz: 2.9,
    width: 5,
    reorder_buffer: 352,
    l1_tlb: intel_l1_tlb(SetShape::new(64, 4), 8),
    l2_tlb: l2_tlb(2048, 16, 8, GiantPages::Among { ways: 8 }, 7),
    walkers: 2,
    memory: MemorySpec {
        caches: cache_levels([48 * KIB, 1280 * KIB, 24 * MIB], [12, 20, 12], [5, 14, 72]),
        bandwidth_gb_per_s: 13.0,
        fill_buffers: 12,
        // DDR4-3200.
        channels: 8,
        channel_gb_per_s: 25.6,
        ..HASWELL.memory
    },
    ..HASWELL
};

/// Sapphire Rapids, 32 cores. Not confirmed: the second level, taken from Ice Lake's.
pub const SAPPHIRE_RAPIDS: ProcessorSpec = ProcessorSpec {
    name: "sapphire-rapids",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Golden Cove: 96 entries in \
             the first level, four page walkers; the second level as Ice Lake's",
    ghz: 3.0,
    width: 6,
    reorder_buffer: 512,
    l1_tlb: intel_l1_tlb(SetShape::new(96, 6), 8),
    l2_tlb: ICE_LAKE.l2_tlb,
    walkers: 4,
    memory: MemorySpec {
        caches: cache_levels([48 * KIB, 2 * MIB, 60 * MIB], [12, 16, 15], [5, 15, 110]),
        latency_ns: 115.0,
        bandwidth_gb_per_s: 13.0,
        fill_buffers: 16,
        // DDR5-4800.
        channels: 8,
        channel_gb_per_s: 38.4,
        ..HASWELL.memory
    },
    ..HASWELL
};

// AMD.

/// Page walks access the second level. Since Family 10h they are a request type there, apart from
/// the data cache's ("TLB fill (page table walks)", event 0x7d of its BKDG, 31116). For Zen this is
/// not confirmed, and neither are its walk caches.
const WALKS_PASS_FIRST_LEVEL: bool = true;

const AMD_WALK_CACHES: WalkCacheSizes = WalkCacheSizes::new(64, 64, 64);

/// Zen 4, one core complex of 8 cores. Pages of 1 GiB are stored as pages of 2 MiB in the second
/// level: documented for Zen 2 and assumed here (WikiChip, Zen 2). Not confirmed: ways, latency,
/// walkers and walk caches.
///
/// The events `ls_l1_d_tlb_miss.tlb_reload_coalesced_page_*` count groups of four base pages: "a
/// 16k page created from four adjacent 4k pages", in both levels (Linux,
/// `tools/perf/pmu-events/arch/x86/amdzen4/memory.json`; the same for Zen 5; on Zen 1 the events
/// are named for 32 KiB). Not confirmed: that they share the entries of other pages, and that all
/// four must have their access bit set. If an entry held a page with a clear bit, the processor
/// could not set it at the first access, as the architecture requires.
pub const ZEN_4: ProcessorSpec = ProcessorSpec {
    name: "zen-4",
    source: "AMD Software Optimization Guide for the Zen 4 Microarchitecture (57647), 2.8: 72 entries for \
             all sizes, 3,072 entries in 24 ways, six walkers, a page-directory cache of 64",
    ghz: 3.7,
    width: 6,
    reorder_buffer: 320,
    l1_tlb: L1TlbSpec::Shared(SetShape::fully_associative(72)),
    l2_tlb: l2_tlb(3072, 24, 24, GiantPages::AsHuge, 7),
    groups: CoalescedPageGroups {
        base: page_group(2, TlbGroupCondition::Contiguous, true),
        huge: None,
    },
    walk_caches: AMD_WALK_CACHES,
    nested: nested_caches(AMD_WALK_CACHES),
    walkers: 6,
    memory: MemorySpec {
        caches: cache_levels([32 * KIB, MIB, 32 * MIB], [8, 8, 16], [4, 14, 50]),
        latency_ns: 105.0,
        bandwidth_gb_per_s: 25.0,
        fill_buffers: 24,
        // DDR5-4800.
        channels: 12,
        channel_gb_per_s: 38.4,
        walks_pass_first_level: WALKS_PASS_FIRST_LEVEL,
        ..HASWELL.memory
    },
};

/// Zen 5, one core complex of 8 cores. Assumed equal to Zen 4, not confirmed: groups, latencies,
/// walkers and walk caches. Its own, not confirmed: the second level's ways.
pub const ZEN_5: ProcessorSpec = ProcessorSpec {
    name: "zen-5",
    source: "B. Cohen, M. Subramony, \"Next Generation 'Zen 5' Core\" (Hot Chips 2024): 96 entries for data, 4K in \
             the second level for everything but 1 GiB, caches, 8 instructions a cycle; 448 of them under way: AMD Software \
             Optimization Guide for the Zen 5 Microarchitecture (58455)",
    width: 8,
    reorder_buffer: 448,
    l1_tlb: L1TlbSpec::Shared(SetShape::fully_associative(96)),
    l2_tlb: l2_tlb(4096, 16, 16, GiantPages::Nowhere, ZEN_4.l2_tlb.hit_cycles),
    memory: MemorySpec {
        caches: cache_levels([48 * KIB, MIB, 32 * MIB], [12, 16, 16], [4, 14, 50]),
        // DDR5-6000.
        channel_gb_per_s: 48.0,
        ..ZEN_4.memory
    },
    ..ZEN_4
};

// Arm.

/// Arm does not publish the walk caches of Neoverse; these are a guess between Intel's and AMD's.
const NEOVERSE_WALK_CACHES: WalkCacheSizes = WalkCacheSizes::new(32, 16, 16);

/// Neoverse V2 with granules of 4 KiB, as in a server of 72 cores. Not confirmed: all sizes of its
/// TLBs, the ways for pages of 1 GiB, its walkers. The second-level cache is the chip maker's
/// choice: 2 MiB in Graviton 4 (Arm's learning path on the memory subsystem), 1 MiB here.
///
/// The contiguous bit makes groups of 16 entries of either level with this granule: 64 KiB and 32
/// MiB (Arm Architecture Reference Manual, DDI 0487, "The Contiguous bit"; Linux, `CONT_PTE_SHIFT`
/// and `CONT_PMD_SHIFT`). Their place is documented for the Cortex-A76 (100798, A5.2) and assumed
/// here. The second level holds all sizes. The first holds 4, 16, 64 KiB, 2 and 512 MiB, and splits
/// what is larger into such pieces. It therefore holds 32 MiB as pages of 2 MiB.
///
/// Not modelled:
/// - pages of 1 GiB as two of 512 MiB in the first level;
/// - four neighbouring pages that the second level holds in one entry without the bit.
pub const NEOVERSE_V2: ProcessorSpec = ProcessorSpec {
    name: "neoverse-v2",
    source: "Arm Neoverse V2 Core Technical Reference Manual (102375), memory management: 48 entries for \
             all sizes, 2,048 entries in 8 ways; Software Optimization Guide (PJDOC-466751330-593177)",
    ghz: 3.1,
    width: 8,
    reorder_buffer: 320,
    l1_tlb: L1TlbSpec::Shared(SetShape::fully_associative(48)),
    l2_tlb: l2_tlb(2048, 8, 8, GiantPages::Among { ways: 8 }, 5),
    groups: CoalescedPageGroups {
        base: page_group(4, TlbGroupCondition::Marked, true),
        huge: page_group(4, TlbGroupCondition::Marked, false),
    },
    walk_caches: NEOVERSE_WALK_CACHES,
    nested: nested_caches(NEOVERSE_WALK_CACHES),
    walkers: 4,
    memory: MemorySpec {
        // A chip has 114 MiB in total; this is the part that makes a power of two of sets.
        caches: cache_levels([64 * KIB, MIB, 112 * MIB], [4, 8, 14], [4, 11, 90]),
        latency_ns: 120.0,
        bandwidth_gb_per_s: 25.0,
        fill_buffers: 24,
        // LPDDR5X: 546 GB/s in total.
        channels: 32,
        channel_gb_per_s: 17.1,
        ..HASWELL.memory
    },
};

// RISC-V.

const XIANGSHAN_WALK_CACHES: WalkCacheSizes = WalkCacheSizes::new(64, 16, 16);

/// XiangShan of the third generation (Kunminghu V2), an open RISC-V core, with Svnapot: groups of
/// 64 KiB. We never ran it on real hardware.
///
/// From its documents (XiangShan-Design-Doc, January 2026: `memblock/MMU`, `backend`):
/// - 6 instructions wide, a reorder buffer of 160;
/// - 48 entries for all sizes in the first level;
/// - as the second level, 64 sets of 4 lines of 8 page-table entries (2,048 base pages);
/// - 4 sets of 2 such lines of directory entries, 16 entries each of the upper levels, and 16 for
///   all larger leaves;
/// - six walks of the last level at a time.
///
/// From its sources (`PageTableCache.scala`, `top/Configs.scala`): groups of 64 KiB are among those
/// 16; caches of 64 KiB, 1 MiB and 16 MiB; 16 misses of the first. 3 GHz is the designers' aim
/// (RISC-V Summit China, August 2024).
///
/// Not found, and chosen: latencies as in Zen 4, which has caches of these sizes or of half or
/// twice them; the latency of the second TLB level; the nested TLB; bandwidth and channels.
///
/// Different here:
/// - replacement is exact LRU instead of pseudo-LRU;
/// - the second level has single entries in 32 ways instead of lines;
/// - eight neighbouring pages don't share an entry of the first level ("TLB compression");
/// - walks set access bits, where hardware leaves that to a fault.
pub const XIANGSHAN: ProcessorSpec = ProcessorSpec {
    name: "xiangshan",
    source: "XiangShan design documents, Kunminghu V2: 48 entries for all sizes, 2,048 base pages and 16 larger \
             ones in the second level, 64-KiB groups by Svnapot; latencies chosen",
    ghz: 3.0,
    width: 6,
    reorder_buffer: 160,
    l1_tlb: L1TlbSpec::Shared(SetShape::fully_associative(48)),
    l2_tlb: L2TlbSpec {
        shape: SetShape::new(2048, 32),
        large: Some(SetShape::fully_associative(16)),
        huge_ways: 32,
        giant: GiantPages::AsHuge,
        hit_cycles: 10,
    },
    groups: CoalescedPageGroups {
        base: page_group(4, TlbGroupCondition::Marked, true),
        huge: None,
    },
    walk_caches: XIANGSHAN_WALK_CACHES,
    nested: nested_caches(XIANGSHAN_WALK_CACHES),
    walkers: 6,
    memory: MemorySpec {
        caches: cache_levels([64 * KIB, MIB, 16 * MIB], [4, 8, 16], [4, 14, 50]),
        latency_ns: 105.0,
        bandwidth_gb_per_s: 12.0,
        fill_buffers: 16,
        // DDR4-3200.
        channels: 4,
        channel_gb_per_s: 25.6,
        ..HASWELL.memory
    },
};

/// All presets, those of one maker in order of age, the oldest first.
pub const PROCESSORS: [ProcessorSpec; 8] =
    [HASWELL, SKYLAKE, ICE_LAKE, SAPPHIRE_RAPIDS, ZEN_4, ZEN_5, NEOVERSE_V2, XIANGSHAN];

/// Presets of the maker `vendor` (`vendor_id` in `/proc/cpuinfo`); all for a maker without one.
pub fn presets_of_vendor(vendor: &str) -> &'static [ProcessorSpec] {
    match vendor {
        "GenuineIntel" => &[HASWELL, SKYLAKE, ICE_LAKE, SAPPHIRE_RAPIDS],
        // The second one under licence.
        "AuthenticAMD" | "HygonGenuine" => &[ZEN_4, ZEN_5],
        _ => &PROCESSORS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_built() {
        for processor in PROCESSORS {
            assert_eq!(processor.check(), Ok(()));
        }
    }

    #[test]
    fn those_of_a_maker_are_some_of_all() {
        let names = |some: &[ProcessorSpec]| some.iter().map(|p| p.name).collect::<Vec<_>>();
        let all = names(&PROCESSORS);
        for vendor in ["GenuineIntel", "AuthenticAMD"] {
            let made = names(presets_of_vendor(vendor));
            assert!(made.iter().all(|name| all.contains(name)), "{made:?}");
            assert!(made.len() < all.len());
        }
        assert_eq!(names(presets_of_vendor("unknown")), all);
    }
}
