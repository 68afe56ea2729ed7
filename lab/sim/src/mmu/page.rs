//! Pages of an address space.

use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use serde::Serialize;

/// Size of the pages that map an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum PageSize {
    /// 4 KiB.
    Base,
    /// 2 MiB.
    Huge,
}

impl PageSize {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Base => BASE_PAGE_BYTES,
            Self::Huge => HUGE_PAGE_BYTES,
        }
    }
}
