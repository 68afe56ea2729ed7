//! RISC-V.

use super::super::caches::Replacement;
use super::super::group::{Group, GroupCondition, Groups};
use super::super::latency::LatencyShape;
use super::super::lru::Shape;
use super::super::memory::MemorySpec;
use super::super::processor::Processor;
use super::super::tlb::{GiantPages, L1Tlb, L2Tlb};
use super::super::walk::WalkCacheSizes;
use super::{KIB, MIB, cache, nested};

const XIANGSHAN_WALK_CACHES: WalkCacheSizes = WalkCacheSizes {
    pde: 64,
    pdpte: 16,
    pml4e: 16,
};

/// XiangShan of the third generation (Kunminghu V2), an open RISC-V core, with Svnapot: groups of 64 KiB. Never run on real
/// hardware by us.
///
/// From its documents (XiangShan-Design-Doc, January 2026: `memblock/MMU`, `backend`): 6 instructions wide, a reorder
/// buffer of 160; 48 entries for all sizes; as the second level a cache of page-table lines, 64 sets of 4 lines of 8
/// entries (2,048 base pages), of directories 4 sets of 2 such lines, 16 entries each of the upper levels, and 16 for all
/// larger leaves; six walks of the last level at a time. From its sources (`PageTableCache.scala`, `top/Configs.scala`):
/// groups of 64 KiB are among those 16; caches of 64 KiB, 1 MiB and 16 MiB, 16 misses of the first. 3 GHz is the
/// designers' aim (RISC-V Summit China, August 2024).
///
/// Not found, and chosen: latencies of caches and memory as Zen 4's, whose caches are of these sizes or half or twice
/// them; that of the second TLB level; the nested TLB; bandwidth and channels. Different here: replacement is exact LRU
/// instead of pseudo-LRU; the second level has single entries in 32 ways in place of lines; eight pages that lie in a row
/// don't share an entry of the first level ("TLB compression"); walks set access bits, where hardware leaves that to a
/// fault.
pub const XIANGSHAN: Processor = Processor {
    name: "xiangshan",
    source: "XiangShan design documents, Kunminghu V2: 48 entries for all sizes, 2,048 base pages and 16 larger \
             ones in the second level, 64-KiB groups by Svnapot; latencies chosen",
    ghz: 3.0,
    width: 6,
    reorder_buffer: 160,
    l1_tlb: L1Tlb::Shared(Shape::fully_associative(48)),
    l2_tlb: L2Tlb {
        shape: Shape::new(2048, 32),
        large: Some(Shape::fully_associative(16)),
        huge_ways: 32,
        giant: GiantPages::AsHuge,
        hit_cycles: 10,
    },
    groups: Groups {
        base: Some(Group {
            order: 4,
            condition: GroupCondition::Marked,
            in_l1: true,
        }),
        huge: None,
    },
    walk_caches: XIANGSHAN_WALK_CACHES,
    nested: nested(XIANGSHAN_WALK_CACHES),
    walkers: 6,
    memory: MemorySpec {
        caches: [
            cache(64 * KIB, 4, 4),
            cache(MIB, 8, 14),
            cache(16 * MIB, 16, 50),
        ],
        latency_ns: 105.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 12.0,
        fill_buffers: 16,
        // DDR4-3200.
        channels: 4,
        channel_gb_per_s: 25.6,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};
