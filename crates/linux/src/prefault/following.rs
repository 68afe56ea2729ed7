//! Has fault-ahead follow those who are under management.

use crate::prefault::learned::{Notebook, Record};
use crate::prefault::{FaultAhead, FillStatistics};
use crate::processes::membership::Membership;
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId};
use std::collections::HashSet;

/// A filler, and what it is told of the members.
pub(crate) struct Following {
    filler: FaultAhead,
    /// To be filled at the start of each process that joins, in regions.
    warm_regions: u64,
}

impl Following {
    /// Nobody yet. `warm_bytes` are filled at the start of each who joins; more where its rule says so.
    pub(crate) fn new(filler: FaultAhead, warm_bytes: u64) -> Self {
        Self {
            filler,
            warm_regions: warm_bytes / HUGE_PAGE_BYTES,
        }
    }

    /// Follows who is under management now, and may have huge pages. `started`: who has just become another program. `notebook`: what
    /// is known of programs.
    pub(crate) fn update(
        &self,
        members: &Membership,
        started: &[ProcessId],
        notebook: Option<&Notebook>,
    ) {
        for process in started {
            self.filler.leave(*process);
        }
        let may_be_huge = |id: &ProcessId| members.get(*id).is_some_and(|m| !m.thp_disabled);
        let order = members.order().iter().copied();
        let wanted: HashSet<ProcessId> = order.filter(may_be_huge).collect();
        let followed: HashSet<ProcessId> = self.filler.followed().into_iter().collect();
        for gone in followed.difference(&wanted) {
            self.filler.leave(*gone);
        }
        for new in wanted.difference(&followed) {
            let by_rule = members.warm_bytes(*new) / HUGE_PAGE_BYTES;
            let known = notebook.and_then(|notebook| notebook.known(*new));
            let learned = known.map_or(0, Record::warm_bytes) / HUGE_PAGE_BYTES;
            let warm_regions = self.warm_regions.max(by_rule).max(learned);
            if let Err(error) = self.filler.follow(new.pid, warm_regions) {
                tracing::debug!("nothing is filled ahead of process {new}: {error}");
            }
        }
    }

    /// Bytes filled ahead of a process since this was last asked.
    pub(crate) fn take_filled(&self, process: ProcessId) -> u64 {
        self.filler.take_filled(process) * HUGE_PAGE_BYTES
    }

    /// How much may be filled ahead of a process from now on.
    pub(crate) fn allow(&self, process: ProcessId, room_bytes: u64) {
        self.filler.set_room(process, room_bytes / HUGE_PAGE_BYTES);
    }

    /// What was filled so far.
    pub(crate) fn statistics(&self) -> FillStatistics {
        self.filler.statistics()
    }
}
