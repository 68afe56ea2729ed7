//! Arm.

use super::super::caches::Replacement;
use super::super::group::{Group, GroupCondition, Groups};
use super::super::latency::LatencyShape;
use super::super::lru::Shape;
use super::super::memory::MemorySpec;
use super::super::processor::Processor;
use super::super::tlb::{GiantPages, L1Tlb, L2Tlb};
use super::super::walk::WalkCacheSizes;
use super::{KIB, MIB, cache, nested};

/// Arm does not publish the walk caches of Neoverse; these are a guess between Intel's and AMD's.
const NEOVERSE_WALK_CACHES: WalkCacheSizes = WalkCacheSizes {
    pde: 32,
    pdpte: 16,
    pml4e: 16,
};

/// Neoverse V2 with granules of 4 KiB, as in a server of 72 cores. Not confirmed: all sizes of its TLBs, which way
/// pages of 1 GiB take, and its walkers. The second-level cache is the maker's choice: 2 MiB in Graviton 4 (Arm's
/// learning path on the memory subsystem), 1 MiB here.
///
/// The contiguous bit makes groups of 16 entries of either level with this granule: 64 KiB and 32 MiB (Arm Architecture
/// Reference Manual, DDI 0487, "The Contiguous bit"; Linux, `CONT_PTE_SHIFT` and `CONT_PMD_SHIFT`). Where they are is said
/// of the Cortex-A76 (100798, A5.2) and taken over: all sizes in one second level; in the first 4, 16, 64 KiB, 2 and 512
/// MiB, what is larger in such pieces, so that 32 MiB are there as pages of 2 MiB. Not modelled: pages of 1 GiB as two of
/// 512 MiB in the first level; four neighbouring pages that its second level holds in one entry without the bit.
pub const NEOVERSE_V2: Processor = Processor {
    name: "neoverse-v2",
    source: "Arm Neoverse V2 Core Technical Reference Manual (102375), memory management: 48 entries for \
             all sizes, 2,048 entries in 8 ways; Software Optimization Guide (PJDOC-466751330-593177)",
    ghz: 3.1,
    width: 8,
    reorder_buffer: 320,
    l1_tlb: L1Tlb::Shared(Shape::fully_associative(48)),
    l2_tlb: L2Tlb {
        shape: Shape::new(2048, 8),
        large: None,
        huge_ways: 8,
        giant: GiantPages::Among { ways: 8 },
        hit_cycles: 5,
    },
    groups: Groups {
        base: Some(Group {
            order: 4,
            condition: GroupCondition::Marked,
            in_l1: true,
        }),
        huge: Some(Group {
            order: 4,
            condition: GroupCondition::Marked,
            in_l1: false,
        }),
    },
    walk_caches: NEOVERSE_WALK_CACHES,
    nested: nested(NEOVERSE_WALK_CACHES),
    walkers: 4,
    memory: MemorySpec {
        caches: [
            cache(64 * KIB, 4, 4),
            cache(MIB, 8, 11),
            // Of 114 MiB over all of a chip what is a power of two of sets.
            cache(112 * MIB, 14, 90),
        ],
        latency_ns: 120.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 25.0,
        fill_buffers: 24,
        // LPDDR5X: 546 GB/s in all.
        channels: 32,
        channel_gb_per_s: 17.1,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};
