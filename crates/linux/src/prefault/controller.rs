//! Keeps the processes that the filler follows equal to the managed processes.

use crate::prefault::Prefaulter;
use crate::prefault::profile_store::{ProfileRecorder, ProgramProfile};
use crate::processes::managed_processes::ManagedProcesses;
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId};
use std::collections::HashSet;

/// The filler, and what it must know of the managed processes.
pub(crate) struct PrefaultController {
    pub(crate) filler: Prefaulter,
    /// Regions to fill at the start of each process that joins.
    warm_regions: u64,
}

impl PrefaultController {
    /// Follows no process yet. `warm_bytes` are filled at the start of each process that joins, or
    /// more where its rule asks for more.
    pub(crate) fn new(filler: Prefaulter, warm_bytes: u64) -> Self {
        Self {
            filler,
            warm_regions: warm_bytes / HUGE_PAGE_BYTES,
        }
    }

    /// Follows the processes that are managed now, may have huge pages, and have rules that allow
    /// prefault. `started`: processes
    /// that have just started another program. `recorder`: what is known of programs.
    pub(crate) fn update(
        &self,
        members: &ManagedProcesses,
        started: &[ProcessId],
        recorder: Option<&ProfileRecorder>,
    ) {
        for process in started {
            self.filler.unfollow(*process);
        }
        let may_be_huge = |id: &ProcessId| {
            members
                .get(*id)
                .is_some_and(|m| !m.thp_disabled && m.terms.prefaults)
        };
        let order = members.order().iter().copied();
        let wanted: HashSet<ProcessId> = order.filter(may_be_huge).collect();
        let followed: HashSet<ProcessId> = self.filler.followed().into_iter().collect();
        for gone in followed.difference(&wanted) {
            self.filler.unfollow(*gone);
        }
        for new in wanted.difference(&followed) {
            let by_rule = members.warm_bytes(*new) / HUGE_PAGE_BYTES;
            let known = recorder.and_then(|recorder| recorder.stored_profile(*new));
            let learned = known.map_or(0, ProgramProfile::warm_bytes) / HUGE_PAGE_BYTES;
            let warm_regions = self.warm_regions.max(by_rule).max(learned);
            if let Err(error) = self.filler.follow(new.pid, warm_regions) {
                tracing::debug!("process {new} gets no prefault: {error}");
            }
        }
    }
}
