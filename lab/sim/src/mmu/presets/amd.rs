//! AMD.

use super::super::caches::Replacement;
use super::super::group::{Group, GroupCondition, Groups};
use super::super::latency::LatencyShape;
use super::super::lru::Shape;
use super::super::memory::MemorySpec;
use super::super::processor::Processor;
use super::super::tlb::{GiantPages, L1Tlb, L2Tlb};
use super::super::walk::WalkCacheSizes;
use super::{KIB, MIB, cache, nested};

/// A walk asks the second level: a request of its own kind there since Family 10h, beside those of the data cache ("TLB
/// fill (page table walks)", event 0x7d of its BKDG, 31116). For Zen not confirmed, as are its walk caches.
const WALKS_PASS_FIRST_LEVEL: bool = true;

const AMD_WALK_CACHES: WalkCacheSizes = WalkCacheSizes {
    pde: 64,
    pdpte: 64,
    pml4e: 64,
};

/// Zen 4, one core complex of 8 cores. 1 GiB as pages of 2 MiB in the second level is documented for Zen 2 and
/// taken over (WikiChip, Zen 2). Not confirmed: ways, latency, walkers and walk caches.
///
/// Groups of four base pages are what its events `ls_l1_d_tlb_miss.tlb_reload_coalesced_page_*` count: "a 16k page
/// created from four adjacent 4k pages", in both levels (Linux, `tools/perf/pmu-events/arch/x86/amdzen4/memory.json`;
/// the same for Zen 5; on Zen 1 the events are named for 32 KiB). Not confirmed: that they are in the entries of other
/// pages, and that all four must have their access bit set; an entry that held a page without would keep the processor
/// from setting it at the first access, as the architecture has it.
pub const ZEN_4: Processor = Processor {
    name: "zen-4",
    source: "AMD Software Optimization Guide for the Zen 4 Microarchitecture (57647), 2.8: 72 entries for \
             all sizes, 3,072 entries in 24 ways, six walkers, a page-directory cache of 64",
    ghz: 3.7,
    width: 6,
    reorder_buffer: 320,
    l1_tlb: L1Tlb::Shared(Shape::fully_associative(72)),
    l2_tlb: L2Tlb {
        shape: Shape::new(3072, 24),
        large: None,
        huge_ways: 24,
        giant: GiantPages::AsHuge,
        hit_cycles: 7,
    },
    groups: Groups {
        base: Some(Group {
            order: 2,
            condition: GroupCondition::Contiguous,
            in_l1: true,
        }),
        huge: None,
    },
    walk_caches: AMD_WALK_CACHES,
    nested: nested(AMD_WALK_CACHES),
    walkers: 6,
    memory: MemorySpec {
        caches: [
            cache(32 * KIB, 8, 4),
            cache(MIB, 8, 14),
            cache(32 * MIB, 16, 50),
        ],
        latency_ns: 105.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 25.0,
        fill_buffers: 24,
        // DDR5-4800.
        channels: 12,
        channel_gb_per_s: 38.4,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: WALKS_PASS_FIRST_LEVEL,
    },
};

/// Zen 5, one core complex of 8 cores. Taken over from Zen 4, not confirmed: groups, latencies, walkers and walk caches; of its
/// own not confirmed: the second level's ways.
pub const ZEN_5: Processor = Processor {
    name: "zen-5",
    source: "B. Cohen, M. Subramony, \"Next Generation 'Zen 5' Core\" (Hot Chips 2024): 96 entries for data, 4K in \
             the second level for everything but 1 GiB, caches, 8 instructions a cycle; 448 of them under way: AMD Software \
             Optimization Guide for the Zen 5 Microarchitecture (58455)",
    width: 8,
    reorder_buffer: 448,
    l1_tlb: L1Tlb::Shared(Shape::fully_associative(96)),
    l2_tlb: L2Tlb {
        shape: Shape::new(4096, 16),
        large: None,
        huge_ways: 16,
        giant: GiantPages::Nowhere,
        hit_cycles: ZEN_4.l2_tlb.hit_cycles,
    },
    memory: MemorySpec {
        caches: [
            cache(48 * KIB, 12, 4),
            cache(MIB, 16, 14),
            cache(32 * MIB, 16, 50),
        ],
        // DDR5-6000.
        channel_gb_per_s: 48.0,
        ..ZEN_4.memory
    },
    ..ZEN_4
};
