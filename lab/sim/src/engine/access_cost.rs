//! The present cost of a program's accesses.

use super::figures::AccessTally;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AccessCost {
    pub(super) at: Duration,
    pub(super) cycles: f64,
    pub(super) walk_cycles: f64,
    /// For each stream: walks per access, by the size of the TLB entry.
    pub(super) walks: Vec<WalksByEntrySize>,
}

/// Page walks, or walks per access or per page, by
/// [`EntrySize`](crate::mmu::translation::EntrySize).
pub(super) type WalksByEntrySize = [f64; 5];

impl AccessCost {
    pub(super) fn overhead_percent(&self) -> f64 {
        self.tally_of_accesses(1.0).overhead_percent()
    }

    pub(super) fn tally_of_accesses(&self, accesses: f64) -> AccessTally {
        AccessTally {
            accesses,
            cycles: accesses * self.cycles,
            walk_cycles: accesses * self.walk_cycles,
        }
    }
}
