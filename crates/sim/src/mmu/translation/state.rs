//! What a region's mapping is, in one byte.

use super::super::page::PageSize;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use serde::Serialize;

/// Size of what one entry at the end of a walk maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LeafSize {
    /// 4 KiB.
    Base = 0,
    /// 2 MiB.
    Huge = 1,
    /// 1 GiB.
    Giant = 2,
}

impl LeafSize {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Base => BASE_PAGE_BYTES,
            Self::Huge => HUGE_PAGE_BYTES,
            Self::Giant => 1 << 30,
        }
    }

    const fn from_bits(bits: u8) -> Self {
        // Looked up, as sizes of pages that differ can't be foreseen.
        static SIZES: [LeafSize; 4] = [
            LeafSize::Base,
            LeafSize::Huge,
            LeafSize::Giant,
            LeafSize::Giant,
        ];
        SIZES[(bits & 3) as usize]
    }
}

impl From<PageSize> for LeafSize {
    fn from(size: PageSize) -> Self {
        match size {
            PageSize::Base => Self::Base,
            PageSize::Huge => Self::Huge,
        }
    }
}

/// How a region is mapped. Bits 0-1: not at all, or the size plus one; 2-3: the host's size; 4-5: the
/// smaller of both; 6: every page of it can be loaded from and stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionState(u8);

const WHOLE: u8 = 1 << 6;

impl RegionState {
    /// Not mapped, and by the largest pages at the host: what is not in a virtual machine has no host
    /// to make its entries smaller.
    pub(super) const UNMAPPED: Self = Self::new(None, LeafSize::Giant, false);

    pub(super) const fn new(size: Option<LeafSize>, host: LeafSize, whole: bool) -> Self {
        let (mapped, size) = match size {
            None => (0, LeafSize::Base),
            Some(size) => (size as u8 + 1, size),
        };
        let smaller = if (size as u8) < host as u8 {
            size
        } else {
            host
        };
        let flag = if whole { WHOLE } else { 0 };
        Self(mapped | (host as u8) << 2 | (smaller as u8) << 4 | flag)
    }

    /// The same with another host.
    pub(super) const fn with_host(self, host: LeafSize) -> Self {
        Self::new(self.size(), host, self.is_whole())
    }

    #[inline]
    pub(super) const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    #[inline]
    pub(super) const fn byte(self) -> u8 {
        self.0
    }

    /// By what it is mapped; `None` if no page of it is.
    pub(super) const fn size(self) -> Option<LeafSize> {
        match self.0 & 3 {
            0 => None,
            bits => Some(LeafSize::from_bits(bits - 1)),
        }
    }

    /// The same of something that is mapped.
    #[inline]
    pub(super) const fn leaf(self) -> LeafSize {
        LeafSize::from_bits((self.0 & 3).wrapping_sub(1))
    }

    /// By what the host maps it.
    #[inline]
    pub(super) const fn host(self) -> LeafSize {
        LeafSize::from_bits(self.0 >> 2)
    }

    /// What one TLB entry can hold of it.
    #[inline]
    pub(super) const fn entry(self) -> LeafSize {
        LeafSize::from_bits(self.0 >> 4)
    }

    /// Whether nothing in it can fault.
    #[inline]
    pub(super) const fn is_whole(self) -> bool {
        self.0 & WHOLE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_of_the_smaller_size() {
        const SIZES: [LeafSize; 3] = [LeafSize::Base, LeafSize::Huge, LeafSize::Giant];
        for size in SIZES {
            for host in SIZES {
                let state = RegionState::new(Some(size), host, true);
                assert_eq!((state.size(), state.leaf()), (Some(size), size));
                assert_eq!((state.host(), state.entry()), (host, size.min(host)));
                assert!(state.is_whole());
            }
        }
        assert_eq!(RegionState::UNMAPPED.size(), None);
        assert!(!RegionState::UNMAPPED.is_whole());
    }
}
