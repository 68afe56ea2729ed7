//! Processors that are sold.
//!
//! Sizes are the makers' where they publish them. Nobody publishes the walk caches of Intel: theirs
//! are from S. van Schaik, K. Razavi, B. Gras, H. Bos, C. Giuffrida, "Reverse engineering hardware
//! page table caches using side-channel attacks on the MMU" (VU Amsterdam, 2017), and are taken to be
//! the same in the generations after it. Latencies are typical of one socket of a server and no more
//! exact than 10 %; memory latency differs as much between machines of one family.

use super::caches::CacheLevel;
use super::lru::Shape;
use super::memory::MemorySpec;
use super::processor::Processor;
use super::tlb::{L1Tlb, L2Tlb};
use super::walk::WalkCacheSizes;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const fn cache(bytes: u64, ways: u32, latency_cycles: u32) -> CacheLevel {
    CacheLevel {
        bytes,
        ways,
        latency_cycles,
    }
}

const INTEL_L1_TLB: L1Tlb = L1Tlb::Split {
    base: Shape::new(64, 4),
    huge: Shape::new(32, 4),
};

const INTEL_WALK_CACHES: WalkCacheSizes = WalkCacheSizes {
    pde: 32,
    pdpte: 4,
    pml4e: 0,
};

/// Haswell server, 8 cores.
pub const HASWELL: Processor = Processor {
    name: "haswell",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Haswell: TLB parameters",
    ghz: 2.6,
    width: 4,
    reorder_buffer: 192,
    l1_tlb: INTEL_L1_TLB,
    l2_tlb: L2Tlb {
        shape: Shape::new(1024, 8),
        huge_ways: 8,
        hit_cycles: 7,
    },
    walk_caches: INTEL_WALK_CACHES,
    walkers: 1,
    memory: MemorySpec {
        caches: [
            cache(32 * KIB, 8, 5),
            cache(256 * KIB, 8, 12),
            cache(20 * MIB, 20, 50),
        ],
        latency_ns: 90.0,
        bandwidth_gb_per_s: 11.0,
        fill_buffers: 10,
    },
};

/// Skylake server, 16 cores.
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
        huge_ways: 12,
        hit_cycles: 7,
    },
    walk_caches: INTEL_WALK_CACHES,
    walkers: 2,
    memory: MemorySpec {
        caches: [
            cache(32 * KIB, 8, 5),
            cache(MIB, 16, 14),
            cache(22 * MIB, 11, 68),
        ],
        latency_ns: 90.0,
        bandwidth_gb_per_s: 12.0,
        fill_buffers: 12,
    },
};

/// Ice Lake server, 16 cores.
pub const ICE_LAKE: Processor = Processor {
    name: "ice-lake",
    source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Ice Lake client: TLB \
             parameters (huge pages take 8 of 16 ways of the second level)",
    ghz: 2.9,
    width: 5,
    reorder_buffer: 352,
    l1_tlb: INTEL_L1_TLB,
    l2_tlb: L2Tlb {
        shape: Shape::new(2048, 16),
        huge_ways: 8,
        hit_cycles: 7,
    },
    walk_caches: INTEL_WALK_CACHES,
    walkers: 2,
    memory: MemorySpec {
        caches: [
            cache(48 * KIB, 12, 5),
            cache(1280 * KIB, 20, 14),
            cache(24 * MIB, 12, 72),
        ],
        latency_ns: 90.0,
        bandwidth_gb_per_s: 13.0,
        fill_buffers: 12,
    },
};

/// Sapphire Rapids, 32 cores.
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
    },
    l2_tlb: L2Tlb {
        shape: Shape::new(2048, 16),
        huge_ways: 8,
        hit_cycles: 7,
    },
    walk_caches: INTEL_WALK_CACHES,
    walkers: 4,
    memory: MemorySpec {
        caches: [
            cache(48 * KIB, 12, 5),
            cache(2 * MIB, 16, 15),
            cache(60 * MIB, 15, 110),
        ],
        latency_ns: 115.0,
        bandwidth_gb_per_s: 13.0,
        fill_buffers: 16,
    },
};

/// Zen 4, one core complex of 8 cores.
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
        huge_ways: 24,
        hit_cycles: 7,
    },
    walk_caches: WalkCacheSizes {
        pde: 64,
        pdpte: 64,
        pml4e: 64,
    },
    walkers: 6,
    memory: MemorySpec {
        caches: [
            cache(32 * KIB, 8, 4),
            cache(MIB, 8, 14),
            cache(32 * MIB, 16, 50),
        ],
        latency_ns: 105.0,
        bandwidth_gb_per_s: 25.0,
        fill_buffers: 24,
    },
};

/// All of them, the oldest first.
pub const PROCESSORS: [Processor; 5] = [HASWELL, SKYLAKE, ICE_LAKE, SAPPHIRE_RAPIDS, ZEN_4];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_built() {
        for processor in PROCESSORS {
            assert_eq!(processor.check(), Ok(()));
        }
    }
}
