//! Clearing access bits: of a whole process for its coverage, of a sample of it for its overhead.

use super::run_rate::Probing;
use super::{CallTimes, Member};
use crate::access_bits;
use crate::counters::Counters;
use crate::error::LinuxError;
use crate::mappings;
use crate::page_tables::{Detail, MARKED_PER_CALL, PageTables, Target};
use crate::remote_advice;
use crate::unpreempted::unpreempted;
use hawkeye_policy::run_rate::{ProbeSettings, WalkCosts};
use hawkeye_policy::{Needs, RegionAddr, RegionSample};
use nix::errno::Errno;
use std::time::Duration;

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

/// Up to so many regions of base pages the access bits of a process are cleared in one call, which takes
/// 12 us each: 6 ms, in which the process can't map or unmap.
const REGIONS_AT_ONCE: usize = 512;

/// Beside coverage, overhead is probed in few regions: their coverage is then that of the rest of the
/// window.
const BESIDE_COVERAGE: ProbeSettings = ProbeSettings {
    ranking_rounds: 0,
    rate_rounds: 12,
    rate_regions: 8,
    ranking_regions: 0,
};

impl AccessBits {
    /// Starts a window with all that is needed.
    pub(super) fn start(
        &mut self,
        member: &mut Member,
        target: &Target,
        needs: Needs,
        calls: &mut CallTimes,
    ) -> Result<(), LinuxError> {
        if needs.coverage() {
            self.clear(member, target, calls)?;
        }
        if needs.overhead() {
            self.start_probing(member, target, needs, calls)?;
        }
        Ok(())
    }

    /// Clears all access bits of a process.
    fn clear(
        &mut self,
        member: &mut Member,
        target: &Target,
        calls: &mut CallTimes,
    ) -> Result<(), LinuxError> {
        let regions = self.regions(member, target, calls)?;
        member.all_cleared = true;
        let base = regions.iter().filter(|r| !r.is_huge()).count();
        if base <= REGIONS_AT_ONCE {
            let pid = member.handle.id.pid;
            return calls.time(|| unpreempted(|| access_bits::clear(pid))).0;
        }
        let may_be_cleared = |region: &RegionAddr| !member.eligible.is_locked(*region);
        let addresses: Vec<RegionAddr> = regions
            .iter()
            .map(|r| r.region)
            .filter(may_be_cleared)
            .collect();
        for slice in addresses.chunks(MARKED_PER_CALL) {
            let mut rest = slice;
            while !rest.is_empty() {
                let clear = || remote_advice::clear_accessed(&member.handle, rest);
                let call = || unpreempted(clear);
                let done = match calls.time(call).0 {
                    Ok(done) => done,
                    Err(error) if error.errno() == Some(Errno::ESRCH) => return Err(error),
                    // Unmapped or locked meanwhile: the others count.
                    Err(_) => 0,
                };
                rest = rest.get(done + 1..).unwrap_or(&[]);
            }
        }
        Ok(())
    }

    /// Prepares to probe a process in the window that begins.
    fn start_probing(
        &mut self,
        member: &mut Member,
        target: &Target,
        needs: Needs,
        calls: &mut CallTimes,
    ) -> Result<(), LinuxError> {
        if self.walk_costs.is_none() || !member.walks.ran(member.handle.id.pid)? {
            return Ok(());
        }
        let settings = if needs.coverage() {
            BESIDE_COVERAGE
        } else {
            ProbeSettings::for_first_touch(self.first_touch_cost)
        };
        if let (Some(counters), None) = (&self.counters, &member.counters) {
            // One that can't be counted is estimated, like all where there are no counters.
            member.counters = counters.bind(member.handle.id.pid).ok();
        }
        let mut regions = self.regions(member, target, calls)?;
        regions.retain(|r| !member.eligible.is_locked(r.region));
        let seed = member.walks.next_seed();
        let seen = |region| member.walks.last_seen(region);
        let probing = Probing::new(&regions, settings, self.first_touch_cost, seed, seen);
        member.walks.probing = Some(probing);
        Ok(())
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

    fn regions(
        &mut self,
        member: &mut Member,
        target: &Target,
        calls: &mut CallTimes,
    ) -> Result<Vec<RegionSample>, LinuxError> {
        member.eligible = mappings::eligible(&self.tables.mappings(target)?);
        let mut regions = Vec::new();
        let ranges = &member.eligible.ranges;
        let timed = |took| calls.note(took);
        self.tables
            .walk(target, ranges, Detail::Regions, &mut regions, timed)?;
        Ok(regions)
    }
}
