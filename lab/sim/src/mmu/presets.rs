//! Processors that are sold, and one that is published.
//!
//! Sizes are the makers' where they publish them. Nobody publishes the walk caches of Intel: theirs
//! are from S. van Schaik, K. Razavi, B. Gras, H. Bos, C. Giuffrida, "Reverse engineering hardware
//! page table caches using side-channel attacks on the MMU" (VU Amsterdam, 2017), and are taken to be
//! the same in the generations after it. Latencies are typical of one socket of a server and no more
//! exact than 10 %; memory latency differs as much between machines of one family.
//!
//! What could not be looked up again is marked "not confirmed" at its preset: it is from memory of the source
//! named there, and no more than a guess until somebody reads it.

mod amd;
mod arm;
mod intel;
mod riscv;

pub use amd::{ZEN_4, ZEN_5};
pub use arm::NEOVERSE_V2;
pub use intel::{HASWELL, ICE_LAKE, SAPPHIRE_RAPIDS, SKYLAKE};
pub use riscv::XIANGSHAN;

use super::caches::CacheLevel;
use super::processor::Processor;
use super::walk::NestedCaches;
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

/// Nobody publishes these for any processor that is sold: 16 entries and the native walk caches once
/// more are what R. Bhargava, B. Serebrin, F. Spadini, S. Manne, "Accelerating two-dimensional page
/// walks for virtualized systems" (ASPLOS 2008) found to be worth having.
const fn nested(walk_caches: WalkCacheSizes) -> NestedCaches {
    NestedCaches {
        tlb: 16,
        walk_caches,
    }
}

/// All of them, those of a maker the oldest first.
pub const PROCESSORS: [Processor; 8] = [
    HASWELL,
    SKYLAKE,
    ICE_LAKE,
    SAPPHIRE_RAPIDS,
    ZEN_4,
    ZEN_5,
    NEOVERSE_V2,
    XIANGSHAN,
];

/// Those of the maker of this name (`vendor_id` in `/proc/cpuinfo`); all of them for one of whom there is none.
pub fn made_by(vendor: &str) -> &'static [Processor] {
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
        let names = |some: &[Processor]| some.iter().map(|p| p.name).collect::<Vec<_>>();
        let all = names(&PROCESSORS);
        for vendor in ["GenuineIntel", "AuthenticAMD"] {
            let made = names(made_by(vendor));
            assert!(made.iter().all(|name| all.contains(name)), "{made:?}");
            assert!(made.len() < all.len());
        }
        assert_eq!(names(made_by("unknown")), all);
    }
}
