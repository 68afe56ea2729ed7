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

    const fn shift(self) -> u32 {
        self.bytes().trailing_zeros()
    }

    /// The page of this size that holds the byte at `offset`.
    #[inline]
    pub(crate) fn page(self, offset: u64) -> Page {
        Page {
            number: offset >> self.shift(),
            size: self,
        }
    }
}

/// One page, counted in pages of its size from the begin of the memory that is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) number: u64,
    pub(crate) size: PageSize,
}

impl Page {
    /// First byte of it.
    pub(crate) fn offset(self) -> u64 {
        self.number << self.size.shift()
    }
}
