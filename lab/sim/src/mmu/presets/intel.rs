//! Intel. None holds neighbouring pages in one entry.

use super::super::caches::Replacement;
use super::super::group::Groups;
use super::super::latency::LatencyShape;
use super::super::lru::Shape;
use super::super::memory::MemorySpec;
use super::super::processor::Processor;
use super::super::tlb::{GiantPages, L1Tlb, L2Tlb};
use super::super::walk::WalkCacheSizes;
use super::{KIB, MIB, cache, nested};

const INTEL_L1_TLB: L1Tlb = L1Tlb::Split {
    base: Shape::new(64, 4),
    huge: Shape::new(32, 4),
    giant: Shape::fully_associative(4),
};

const INTEL_WALK_CACHES: WalkCacheSizes = WalkCacheSizes {
    pde: 32,
    pdpte: 4,
    pml4e: 0,
};

/// Haswell server: the E5-2690 v3 of the HawkEye paper, 12 cores. Its last-level cache has 20 ways in
/// 12 slices; here 15 in a power of two of sets.
pub const HASWELL: Processor = Processor {
    name: "haswell",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Haswell: TLB parameters",
    ghz: 2.6,
    width: 4,
    reorder_buffer: 192,
    l1_tlb: INTEL_L1_TLB,
    l2_tlb: L2Tlb {
        shape: Shape::new(1024, 8),
        large: None,
        huge_ways: 8,
        giant: GiantPages::Nowhere,
        hit_cycles: 7,
    },
    groups: Groups::NONE,
    walk_caches: INTEL_WALK_CACHES,
    nested: nested(INTEL_WALK_CACHES),
    walkers: 1,
    memory: MemorySpec {
        caches: [
            cache(32 * KIB, 8, 5),
            cache(256 * KIB, 8, 12),
            cache(30 * MIB, 15, 50),
        ],
        latency_ns: 90.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 11.0,
        fill_buffers: 10,
        // DDR4-2133.
        channels: 4,
        channel_gb_per_s: 17.1,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};

/// Skylake server, 16 cores. Not confirmed: the 16 entries in 4 ways for pages of 1 GiB in the second level.
pub const SKYLAKE: Processor = Processor {
    name: "skylake",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Skylake client and server: \
             TLB parameters; two page walks in parallel",
    ghz: 2.6,
    width: 4,
    reorder_buffer: 224,
    l1_tlb: INTEL_L1_TLB,
    l2_tlb: L2Tlb {
        shape: Shape::new(1536, 12),
        large: None,
        huge_ways: 12,
        giant: GiantPages::Own(Shape::new(16, 4)),
        hit_cycles: 7,
    },
    groups: Groups::NONE,
    walk_caches: INTEL_WALK_CACHES,
    nested: nested(INTEL_WALK_CACHES),
    walkers: 2,
    memory: MemorySpec {
        caches: [
            cache(32 * KIB, 8, 5),
            cache(MIB, 16, 14),
            cache(22 * MIB, 11, 68),
        ],
        latency_ns: 90.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 12.0,
        fill_buffers: 12,
        // DDR4-2666.
        channels: 6,
        channel_gb_per_s: 21.3,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};

/// Ice Lake server, 16 cores. Not confirmed: the ways of the second level that pages of 2 MiB and of 1 GiB may take.
pub const ICE_LAKE: Processor = Processor {
    name: "ice-lake",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Ice Lake client: TLB \
             parameters (pages of 2 MiB and of 1 GiB take 8 of 16 ways of the second level each)",
    ghz: 2.9,
    width: 5,
    reorder_buffer: 352,
    l1_tlb: L1Tlb::Split {
        base: Shape::new(64, 4),
        huge: Shape::new(32, 4),
        giant: Shape::fully_associative(8),
    },
    l2_tlb: L2Tlb {
        shape: Shape::new(2048, 16),
        large: None,
        huge_ways: 8,
        giant: GiantPages::Among { ways: 8 },
        hit_cycles: 7,
    },
    groups: Groups::NONE,
    walk_caches: INTEL_WALK_CACHES,
    nested: nested(INTEL_WALK_CACHES),
    walkers: 2,
    memory: MemorySpec {
        caches: [
            cache(48 * KIB, 12, 5),
            cache(1280 * KIB, 20, 14),
            cache(24 * MIB, 12, 72),
        ],
        latency_ns: 90.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 13.0,
        fill_buffers: 12,
        // DDR4-3200.
        channels: 8,
        channel_gb_per_s: 25.6,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};

/// Sapphire Rapids, 32 cores. Not confirmed: the second level, taken from Ice Lake's.
pub const SAPPHIRE_RAPIDS: Processor = Processor {
    name: "sapphire-rapids",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Golden Cove: 96 entries in \
             the first level, four page walkers; the second level as Ice Lake's",
    ghz: 3.0,
    width: 6,
    reorder_buffer: 512,
    l1_tlb: L1Tlb::Split {
        base: Shape::new(96, 6),
        huge: Shape::new(32, 4),
        giant: Shape::fully_associative(8),
    },
    l2_tlb: ICE_LAKE.l2_tlb,
    groups: Groups::NONE,
    walk_caches: INTEL_WALK_CACHES,
    nested: nested(INTEL_WALK_CACHES),
    walkers: 4,
    memory: MemorySpec {
        caches: [
            cache(48 * KIB, 12, 5),
            cache(2 * MIB, 16, 15),
            cache(60 * MIB, 15, 110),
        ],
        latency_ns: 115.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 13.0,
        fill_buffers: 16,
        // DDR5-4800.
        channels: 8,
        channel_gb_per_s: 38.4,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    },
};
