//! What goes from stage to stage, and what does not have to.

use super::access::Access;
use super::lines::Cause;
use super::state::RegionState;

/// Pages that are taken from stage to stage at a time, at most: few enough to stay in the host's first cache.
pub(super) const BATCH: usize = 512;
/// Walks that these lead to, at most: each for itself and one beforehand.
pub(super) const MAX_WALKS: usize = 2 * BATCH;

/// A page that was missed: its number, how its region is mapped (from bit 32), and its cause (from bit 40).
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss(u64);

impl Miss {
    #[inline]
    pub(super) fn new(page: u32, state: RegionState, cause: Cause) -> Self {
        Self(u64::from(page) | u64::from(state.byte()) << 32 | (cause as u64) << 40)
    }

    #[inline]
    pub(super) fn page(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn state(self) -> RegionState {
        RegionState::from_byte((self.0 >> 32) as u8)
    }

    #[inline]
    pub(super) fn cause(self) -> Cause {
        match self.0 >> 40 {
            0 => Cause::Load,
            1 => Cause::Store,
            _ => Cause::Prefetch,
        }
    }
}

/// Accesses that hit the TLB entry that was used last: `key & mask == base`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) mask: u64,
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl Window {
    pub(super) const NONE: Self = Self {
        mask: 0,
        base: 1,
        bytes: 0,
    };

    #[inline]
    pub(super) fn holds(&self, access: Access) -> bool {
        access.key() & self.mask == self.base
    }
}
