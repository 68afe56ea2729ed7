//! The order in which memory is swapped out: Linux's two lists of anonymous pages (`mm/vmscan.c` of
//! 4.3), by regions.
//!
//! Memory is listed as active at its first touch. While the inactive list is short
//! (`inactive_anon_is_low`), reclaim moves the oldest active memory to it and forgets its access
//! bits. Then reclaim takes the oldest inactive memory: what was accessed since becomes active
//! again, and the rest is swapped out. Memory that is no longer used therefore goes before memory
//! that came later. Memory that is seldom used goes if it is not accessed while it passes through
//! the inactive list.

use super::address_space::RegionId;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimListEntry {
    pub(crate) region: RegionId,
    /// Its number from when it was listed; a new touch after an unmap gives another.
    pub(crate) number: u64,
}

/// The two lists, the oldest region first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReclaimLists {
    pub(crate) active: VecDeque<ReclaimListEntry>,
    pub(crate) inactive: VecDeque<ReclaimListEntry>,
    pub(crate) count: u64,
}

impl ReclaimLists {
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.inactive.len()
    }
}
