//! TLBs and walk caches of a processor, as data.

use super::lru_sets::SetShape;
use serde::{Deserialize, Serialize};

/// First level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum L1TlbSpec {
    /// One TLB for each page size.
    Split {
        /// For base pages.
        base: SetShape,
        /// For huge pages.
        huge: SetShape,
        /// For pages of 1 GiB.
        giant: SetShape,
    },
    /// One TLB for all pages.
    Shared(SetShape),
}

/// Second level, which holds pages of both sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2TlbSpec {
    /// Its size.
    pub shape: SetShape,
    /// Shape of a separate part for all entries of more than one base page, if there is one. The
    /// fields below on huge pages and pages of 1 GiB are ignored then.
    #[serde(default)]
    pub large: Option<SetShape>,
    /// Ways of a set that huge pages may take (1 to all).
    pub huge_ways: u32,
    /// Where it holds pages of 1 GiB.
    pub giant: GiantPages,
    /// Extra latency of a hit, over a hit in the first level, in cycles.
    pub hit_cycles: u32,
}

/// Where the second level holds pages of 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GiantPages {
    /// Nowhere: a miss in the first level causes a walk.
    Nowhere,
    /// Among the others, in a limited number of ways of a set.
    Among {
        /// Most ways of a set (1 to all).
        ways: u32,
    },
    /// In a TLB of their own.
    Own(SetShape),
    /// Among the others, as pieces of 2 MiB that count as huge pages ("smashed").
    AsHuge,
}

/// Caches of the entries that lead to tables ("paging-structure caches"), each fully associative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheSizes {
    /// Entries of page directories: a hit leaves one load, the page-table entry.
    pub pde: u32,
    /// Entries of page-directory-pointer tables.
    pub pdpte: u32,
    /// Entries of the topmost table; 0 where there is no such cache.
    pub pml4e: u32,
}

impl WalkCacheSizes {
    /// Sizes by level, the lowest level first.
    pub const fn new(pde: u32, pdpte: u32, pml4e: u32) -> Self {
        Self { pde, pdpte, pml4e }
    }
}

/// A processor's caches of translations from guest-physical to host-physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestedCacheSizes {
    /// Entries of the nested TLB, fully associative: host translations of the guest's page tables;
    /// 0 if there is none.
    pub tlb: u32,
    /// Caches of the host's upper page-table entries.
    pub walk_caches: WalkCacheSizes,
}
