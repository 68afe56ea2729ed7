//! Page sizes and the address of a huge-page-sized region.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Size of a base page, in bytes.
pub const BASE_PAGE_BYTES: u64 = 4096;
/// Size of a huge page, in bytes: what one last-level page table maps.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Base pages in one region.
pub const PAGES_PER_REGION: u16 = 512;

/// Start of a 2 MiB aligned part of an address space: the unit that is promoted or split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegionAddr(u64);

impl RegionAddr {
    /// The region that holds `address`.
    pub const fn containing(address: u64) -> Self {
        Self(address & !(HUGE_PAGE_BYTES - 1))
    }

    /// First byte of the region.
    pub const fn start(self) -> u64 {
        self.0
    }

    /// First byte after the region.
    pub const fn end(self) -> u64 {
        self.0 + HUGE_PAGE_BYTES
    }
}

impl fmt::Display for RegionAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
