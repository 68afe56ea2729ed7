//! What a core is to be.

use super::sizes::LeafSize;
use crate::mmu::Processor;
use serde::Serialize;
use std::str::FromStr;

/// Levels of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Levels {
    /// 48 bits of address.
    Four = 4,
    /// 57 bits.
    Five = 5,
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "4" => Ok(Self::Four),
            "5" => Ok(Self::Five),
            _ => Err("page tables have 4 or 5 levels".to_owned()),
        }
    }
}

/// Which tables are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Tables {
    /// Those of the address space.
    Native(Levels),
    /// Those of the guest, and for each of them and the page itself those of the host.
    Nested {
        /// Of the guest.
        guest: Levels,
        /// Of the host.
        host: Levels,
        /// By what the host maps the memory in which the guest has its page tables (base or huge; giant
        /// counts as huge).
        tables_backed_by: LeafSize,
    },
}

/// A core to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TranslatorSpec {
    /// Its TLBs, walk caches, caches and latencies.
    pub processor: Processor,
    /// What it walks.
    pub tables: Tables,
    /// What page tables have of the second- and the last-level cache, in per cent of the ways (1-100).
    /// Data and tables displace each other as often as they are brought in: the default of 50 is that of
    /// scattered accesses, each of which brings one line of data and one of the table.
    pub page_table_share_percent: u32,
    /// Whether the base page after two that were missed one after the other is walked for beforehand
    /// ("next-page prefetcher", Intel's optimization manual, since Ivy Bridge). Off by default: Intel does
    /// not say what exactly it does. Such walks set no access bits here.
    pub next_page_prefetch: bool,
}

impl TranslatorSpec {
    /// Four levels, no virtual machine.
    pub const fn native(processor: &Processor) -> Self {
        Self {
            processor: *processor,
            tables: Tables::Native(Levels::Four),
            page_table_share_percent: 50,
            next_page_prefetch: false,
        }
    }

    /// Four levels of guest and host each.
    pub const fn nested(processor: &Processor, tables_backed_by: LeafSize) -> Self {
        Self {
            tables: Tables::Nested {
                guest: Levels::Four,
                host: Levels::Four,
                tables_backed_by,
            },
            ..Self::native(processor)
        }
    }
}

/// What a program does beside translating. The defaults are of one that waits for every walk and has
/// one cycle of work for each access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Its work for each access, in thousandths of a cycle.
    pub millicycles_per_access: u32,
    /// What it waits for of each walk and of each second-level hit, in thousandths: 1000 of a pointer chase,
    /// less where independent accesses go on meanwhile.
    pub waited_permille: u32,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            millicycles_per_access: 1000,
            waited_permille: 1000,
        }
    }
}
