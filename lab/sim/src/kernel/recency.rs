//! In which order memory is swapped out: Linux's two lists of anonymous pages (`mm/vmscan.c` of 4.3), by regions.
//!
//! Memory is listed as active when it is first touched. Reclaim moves the oldest of it to the inactive list, forgetting its
//! access bits, as long as that is short (`inactive_anon_is_low`), and takes the oldest there: what was accessed since
//! becomes active again, the rest goes. So memory that nobody uses any more goes before what came later; memory that is
//! used seldom goes when it is not accessed while it passes through the inactive list.

use super::machine::ReclaimState;
use super::{Kernel, SpaceId};
use crate::bits::PageBits;
use hawkeye_policy::BASE_PAGE_BYTES;
use std::collections::VecDeque;

/// A region on a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) space: SpaceId,
    pub(crate) region: u64,
    /// What it was given when it was listed: a region that was unmapped and touched again is another one.
    number: u64,
}

/// The lists, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recency {
    active: VecDeque<Listed>,
    inactive: VecDeque<Listed>,
    /// How many were ever listed.
    count: u64,
}

impl Recency {
    /// Of how many regions on both lists one is inactive, all but one being active.
    fn ratio(memory_bytes: u64) -> usize {
        // `calculate_zone_inactive_ratio` of `mm/page_alloc.c`.
        (10 * (memory_bytes >> 30)).isqrt().max(1) as usize
    }

    /// Regions on both lists.
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.inactive.len()
    }

    /// It was accessed, or has nothing that could go.
    pub(crate) fn activate(&mut self, at: Listed) {
        self.active.push_back(at);
    }

    /// More of it could go.
    pub(crate) fn put_back(&mut self, at: Listed) {
        self.inactive.push_front(at);
    }
}

impl Kernel {
    /// Lists regions that were touched for the first time since this was last done.
    pub(crate) fn list_touched(&mut self) {
        let ReclaimState { recency, swap, .. } = &mut self.reclaim_state;
        for space in self.spaces.iter_mut() {
            for region in space.table.take_created() {
                let Some(found) = space.table.get_mut(region) else {
                    continue;
                };
                if found.listed.is_none() && swap.is_there() {
                    recency.count += 1;
                    found.listed = Some(recency.count);
                    recency.active.push_back(Listed {
                        space: space.id,
                        region,
                        number: recency.count,
                    });
                }
            }
        }
    }

    /// The region whose memory is to go next, if it was not accessed; it is on no list any more.
    pub(crate) fn next_inactive(&mut self) -> Option<Listed> {
        let ratio = Recency::ratio(self.memory.frames() * BASE_PAGE_BYTES);
        loop {
            let Recency {
                active, inactive, ..
            } = &mut self.reclaim_state.recency;
            let low = inactive.is_empty() || inactive.len() * ratio < active.len();
            let at = if low { active } else { inactive }.pop_front()?;
            let space = self.spaces.get_mut(at.space);
            let found = space.and_then(|space| space.table.get_mut(at.region));
            let Some(found) = found.filter(|found| found.listed == Some(at.number)) else {
                continue;
            };
            if !low {
                return Some(at);
            }
            found.accessed = PageBits::EMPTY;
            self.reclaim_state.recency.inactive.push_back(at);
        }
    }
}
