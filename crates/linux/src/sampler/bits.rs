//! Clearing access bits: of a whole process for its coverage, of a sample of it for its overhead.

use super::run_rate::Probing;
use super::{Member, Slice};
use crate::counters::Counters;
use crate::error::LinuxError;
use crate::mapping_records::mappings_of;
use crate::mappings::{self, Mapping};
use crate::page_tables::{Detail, PageTables, RegionWalk, Target};
use crate::target_call::{CLEARED_PER_CALL, TargetCalls};
use hawkeye_policy::run_rate::{ProbeSettings, WalkCosts};
use hawkeye_policy::{Needs, RegionAddr, RegionSample};
use std::time::{Duration, Instant};

/// What seeing access bits takes.
pub struct AccessBits {
    /// The BPF programs.
    pub tables: PageTables,
    /// What page walks cost here; `None`: overhead is not asked for.
    pub walk_costs: Option<WalkCosts>,
    /// Hardware counters, where there are any: they go before what run-rate finds.
    pub counters: Option<Counters>,
    /// What a base page's first access after a clear costs the program.
    pub first_touch_cost: Duration,
}

/// The start of a window, as far as it has come.
#[derive(Debug)]
pub(super) struct WindowStart {
    walk: RegionWalk,
    read: bool,
    /// How many of the regions were cleared.
    cleared: usize,
}

/// Beside coverage, overhead is probed in few regions: their coverage is then that of the rest of the
/// window.
const BESIDE_COVERAGE: ProbeSettings = ProbeSettings {
    ranking_rounds: 0,
    rate_rounds: 12,
    rate_regions: 8,
    ranking_regions: 0,
};

impl AccessBits {
    /// The mappings of a process, as they are now.
    pub(super) fn mappings(
        &self,
        member: &Member,
        target: &Target,
        calls: &mut TargetCalls,
    ) -> Result<Vec<Mapping>, LinuxError> {
        let records = calls.list(member.handle.id, target.list())?;
        Ok(mappings_of(&records))
    }

    /// Starts a window with all that is needed, until `deadline`.
    pub(super) fn start(
        &mut self,
        member: &mut Member,
        target: &Target,
        needs: Needs,
        calls: &mut TargetCalls,
        deadline: Instant,
    ) -> Result<Slice<()>, LinuxError> {
        let mut start = match member.starting.take() {
            Some(start) => start,
            None => {
                let idle = !needs.coverage() && !self.runs(member)?;
                if idle {
                    return Ok(Slice::Done(()));
                }
                let mappings = self.mappings(member, target, calls)?;
                member.eligible = mappings::eligible(&mappings);
                let ranges = member.eligible.ranges.clone();
                WindowStart {
                    walk: RegionWalk::new(ranges, Detail::Regions),
                    read: false,
                    cleared: 0,
                }
            }
        };
        if !start.read {
            let timed = |took| calls.note(took);
            let walk = &mut start.walk;
            start.read = self
                .tables
                .walk_until(target, walk, Some(deadline), timed)?;
            if start.read {
                let eligible = &member.eligible;
                walk.found.retain(|r| !eligible.is_locked(r.region));
            }
        }
        let cleared =
            start.read && (!needs.coverage() || clear(member, &mut start, calls, deadline)?);
        if !cleared {
            member.starting = Some(start);
            return Ok(Slice::Unfinished(Duration::ZERO));
        }
        member.all_cleared |= needs.coverage();
        if needs.overhead() && (!needs.coverage() || self.runs(member)?) {
            self.start_probing(member, needs, &start.walk.found);
        }
        Ok(Slice::Done(()))
    }

    /// Whether a process has used CPU worth probing since this was last asked.
    fn runs(&self, member: &mut Member) -> Result<bool, LinuxError> {
        Ok(self.walk_costs.is_some() && member.walks.ran(member.handle.id.pid)?)
    }

    /// Prepares to probe a process in the window that begins.
    fn start_probing(&mut self, member: &mut Member, needs: Needs, regions: &[RegionSample]) {
        let settings = if needs.coverage() {
            BESIDE_COVERAGE
        } else {
            ProbeSettings::for_first_touch(self.first_touch_cost)
        };
        if let (Some(counters), None) = (&self.counters, &member.counters) {
            // One that can't be counted is estimated, like all where there are no counters.
            member.counters = counters.bind(member.handle.id.pid).ok();
        }
        let seed = member.walks.next_seed();
        let seen = |region| member.walks.last_seen(region);
        let probing = Probing::new(regions, settings, self.first_touch_cost, seed, seen);
        member.walks.probing = Some(probing);
    }

    /// Reads all eligible regions of a process, until `deadline`. The window ends when that begins.
    pub(super) fn read(
        &mut self,
        member: &mut Member,
        target: &Target,
        calls: &mut TargetCalls,
        deadline: Instant,
    ) -> Result<Slice<Vec<RegionSample>>, LinuxError> {
        let mut walk = match member.reading.take() {
            Some(walk) => walk,
            None => {
                // Told to do without huge pages: there is nothing in it for us.
                if !member.thp_disabled {
                    let mappings = self.mappings(member, target, calls)?;
                    member.eligible = mappings::eligible(&mappings);
                }
                self.end_window(member)?;
                RegionWalk::new(member.eligible.ranges.clone(), Detail::Regions)
            }
        };
        let timed = |took| calls.note(took);
        if !self
            .tables
            .walk_until(target, &mut walk, Some(deadline), timed)?
        {
            member.reading = Some(walk);
            return Ok(Slice::Unfinished(Duration::ZERO));
        }
        Ok(Slice::Done(walk.found))
    }

    /// Ends the window: what was found out about the process's overhead is then in its `walks`.
    pub(super) fn end_window(&self, member: &mut Member) -> Result<(), LinuxError> {
        let Some(costs) = &self.walk_costs else {
            return Ok(());
        };
        if !member.walks.end_window(costs) {
            return Ok(());
        }
        if let Some(counters) = &mut member.counters {
            if let Some(counted) = counters.overhead()? {
                member.walks.overhead = Some(counted);
            }
        }
        Ok(())
    }
}

/// Clears access bits until `deadline`; whether all are cleared.
///
/// In small slices by `MADV_COLD`, which holds `mmap_lock` for reading. `clear_refs` would hold it for
/// writing while it walks all anonymous memory of the process, also what can never be huge: every
/// page fault waits for that (fs/proc/task_mmu.c, `clear_refs_write`).
fn clear(
    member: &Member,
    start: &mut WindowStart,
    calls: &mut TargetCalls,
    deadline: Instant,
) -> Result<bool, LinuxError> {
    while let Some(rest) = start.walk.found.get(start.cleared..) {
        if rest.is_empty() {
            break;
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        let slice: Vec<RegionAddr> = rest
            .iter()
            .take(CLEARED_PER_CALL)
            .map(|r| r.region)
            .collect();
        start.cleared += calls.clear_accessed(&member.handle, &slice)?.passed;
    }
    Ok(true)
}
