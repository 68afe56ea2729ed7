//! Specification of a core.

use super::sizes::LeafSize;
use crate::mmu::ProcessorSpec;
use serde::Serialize;
use std::str::FromStr;

/// Levels of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PageTableLevels {
    /// 48 bits of address.
    Four = 4,
    /// 57 bits.
    Five = 5,
}

impl FromStr for PageTableLevels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "4" => Ok(Self::Four),
            "5" => Ok(Self::Five),
            _ => Err("page tables have 4 or 5 levels".to_owned()),
        }
    }
}

/// The tables that are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PageTableSetup {
    /// Those of the address space.
    Native(PageTableLevels),
    /// Those of the guest; for each of them and for the page itself, those of the host.
    Nested {
        /// Of the guest.
        guest: PageTableLevels,
        /// Of the host.
        host: PageTableLevels,
        /// Page size by which the host maps the guest's page tables (base or huge; giant counts as
        /// huge).
        tables_backed_by: LeafSize,
    },
}

/// A core to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TranslatorSpec {
    /// Its TLBs, walk caches, caches and latencies.
    pub processor: ProcessorSpec,
    /// Its page tables.
    pub tables: PageTableSetup,
    /// Share of the second- and the last-level cache that page tables occupy, in per cent of the
    /// ways (1-100). Data and tables evict each other as often as they are loaded. The default of
    /// 50 is for scattered accesses, each of which loads one line of data and one of the table.
    pub page_table_share_percent: u32,
    /// Whether two misses on neighbouring base pages in turn prefetch the translation of the next
    /// one ("next-page prefetcher", Intel's optimization manual, since Ivy Bridge). Off by default:
    /// Intel does not document its exact behaviour. Such walks set no access bits here.
    pub next_page_prefetch: bool,
}

impl TranslatorSpec {
    /// Four levels, no virtual machine.
    pub const fn native(processor: &ProcessorSpec) -> Self {
        Self {
            processor: *processor,
            tables: PageTableSetup::Native(PageTableLevels::Four),
            page_table_share_percent: 50,
            next_page_prefetch: false,
        }
    }

    /// Four levels each for guest and host.
    pub const fn nested(processor: &ProcessorSpec, tables_backed_by: LeafSize) -> Self {
        Self {
            tables: PageTableSetup::Nested {
                guest: PageTableLevels::Four,
                host: PageTableLevels::Four,
                tables_backed_by,
            },
            ..Self::native(processor)
        }
    }
}

/// A program's work beside translation. By default: waits for every walk, one cycle per access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramWork {
    /// Work for each access, in thousandths of a cycle.
    pub millicycles_per_access: u32,
    /// Share of each walk and of each second-level hit that the program waits for, in thousandths:
    /// 1000 for a pointer chase, less where independent accesses go on meanwhile.
    pub waited_permille: u32,
}

impl Default for ProgramWork {
    fn default() -> Self {
        Self { millicycles_per_access: 1000, waited_permille: 1000 }
    }
}
