//! Clears access bits: of a whole process for its coverage, of a sample of it for its overhead.

use super::run_rate::{ProcessProbeRun, WalkHistory, first_touches_of};
use super::{SampledProcess, Sampler, SliceContext, SliceResult, own_huge_bytes};
use crate::error::{LinuxError, Result};
use crate::processes::mapping_records::mappings_of;
use crate::processes::mappings::{self, Mapping};
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::{CLEARED_PER_CALL, TargetCalls};
use crate::sample::counters::{ProcessCounters, WalkCounters};
use crate::sample::page_tables::{BoundTarget, PageTableReader, RegionWalk, WalkDetail};
use hawkeye_manager::SliceProgress;
use hawkeye_policy::walk_rate::{OverheadEstimate, RegionProbeSettings, WalkCosts};
use hawkeye_policy::{
    CoverageSource, ProcessId, ProcessIdentity, ProcessRules, ProcessSample, RegionAddr,
    RegionSample, SampleKinds,
};
use nix::errno::Errno;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What sampling by access bits needs.
pub struct AccessBitBackend {
    /// The BPF programs.
    pub tables: PageTableReader,
    /// Cost of page walks on this machine; `None`: overhead is not needed.
    pub walk_costs: Option<WalkCosts>,
    /// Hardware counters, where there are any; they take precedence over walk-rate sampling.
    pub counters: Option<WalkCounters>,
    /// Cost to the program of a base page's first access after a clear.
    pub first_touch_cost: Duration,
}

pub(super) struct AccessBitsSampler {
    pub(super) bits: AccessBitBackend,
    pub(super) watched: HashMap<ProcessId, SampledState>,
}

/// State of one process.
pub(super) struct SampledState {
    target: BoundTarget,
    /// Whether its access bits were ever cleared; before that they show nothing.
    cleared: bool,
    /// Whether all of them were cleared, and not only those of a sample of its regions.
    all_cleared: bool,
    counters: Option<ProcessCounters>,
    walks: WalkHistory,
    /// The start of a window under way.
    starting: Option<WindowOpening>,
    /// The read of a sample under way.
    reading: Option<RegionWalk>,
    /// The listing and the counting of its huge pages under way.
    listing: Option<RegionWalk>,
    measuring: Option<RegionWalk>,
}

#[derive(Debug)]
struct WindowOpening {
    walk: RegionWalk,
    read: bool,
    cleared: usize,
}

/// When coverage is measured, overhead is probed in few regions only. Their coverage is then that
/// of the rest of the window.
const BESIDE_COVERAGE: RegionProbeSettings = RegionProbeSettings {
    ranking_rounds: 0,
    rate_rounds: 12,
    rate_regions: 8,
    ranking_regions: 0,
};

fn state_of<'a>(
    all: &'a mut HashMap<ProcessId, SampledState>,
    member: &SampledProcess,
) -> Result<&'a mut SampledState> {
    let process = member.handle.id;
    let gone = LinuxError::NoSuchProcess(process.pid);
    all.get_mut(&process).ok_or(gone)
}

fn mappings_now(
    member: &SampledProcess,
    target: &BoundTarget,
    calls: &mut TargetCalls,
) -> Result<Vec<Mapping>> {
    let records = calls.list_mappings(member.handle.id, target.read_records())?;
    Ok(mappings_of(&records))
}

/// Starts a walk over what is eligible now.
fn start_walk(
    member: &mut SampledProcess,
    target: &BoundTarget,
    calls: &mut TargetCalls,
    detail: WalkDetail,
) -> Result<RegionWalk> {
    // The process has huge pages disabled, so it cannot gain.
    if !member.thp_disabled {
        member.eligible = mappings::eligible(&mappings_now(member, target, calls)?);
    }
    Ok(RegionWalk::new(member.eligible.ranges.clone(), detail))
}

/// Continues a walk; returns what it found when it is done. Until then `under_way` keeps it.
fn continue_walk(
    tables: &mut PageTableReader,
    target: &BoundTarget,
    mut walk: RegionWalk,
    under_way: &mut Option<RegionWalk>,
    turn: &mut SliceContext,
) -> SliceResult<Vec<RegionSample>> {
    let timed = |took| turn.calls.record_duration(took);
    if tables.walk_until(target, &mut walk, Some(turn.deadline), timed)? {
        return Ok(SliceProgress::Done(walk.found));
    }
    *under_way = Some(walk);
    Ok(SliceProgress::Unfinished(Duration::ZERO))
}

impl AccessBitBackend {
    /// See [`WalkHistory::has_run_enough`].
    fn has_run_enough(&self, member: &SampledProcess, walks: &mut WalkHistory) -> Result<bool> {
        Ok(self.walk_costs.is_some() && walks.has_run_enough(member.handle.id.pid)?)
    }

    fn start_probing(
        &self,
        member: &SampledProcess,
        watched: &mut SampledState,
        needs: SampleKinds,
        regions: &[RegionSample],
    ) {
        let settings = if needs.includes_coverage() {
            BESIDE_COVERAGE
        } else {
            let settings = RegionProbeSettings::for_first_touch(self.first_touch_cost);
            match watched.walks.windows {
                0 => settings.for_first_window(),
                _ => settings,
            }
        };
        if let (Some(counters), None) = (&self.counters, &watched.counters) {
            // A process that cannot be counted is estimated, as on machines without counters.
            watched.counters = counters.bind(member.handle.id.pid).ok();
        }
        let walks = &watched.walks;
        let seen = |region| walks.last_window_of(region);
        let seed = walks.next_seed();
        let probing = ProcessProbeRun::new(regions, settings, self.first_touch_cost, seed, seen);
        watched.walks.probing = Some(probing);
    }

    /// Ends the window and puts the estimate of the process's overhead into its `walks`.
    fn end_window(&self, watched: &mut SampledState) -> Result<()> {
        let costs = self.walk_costs.as_ref();
        if costs.is_some_and(|costs| watched.walks.end_window(costs)) {
            if let Some(counters) = &mut watched.counters {
                let counted = counters.overhead()?;
                watched.walks.overhead = counted.or(watched.walks.overhead);
            }
        }
        Ok(())
    }
}

impl Sampler for AccessBitsSampler {
    fn descriptors(&self) -> usize {
        let counters = self.bits.counters.as_ref();
        let counters = counters.map_or(0, WalkCounters::descriptors);
        ProcessHandle::DESCRIPTORS + BoundTarget::DESCRIPTORS + counters
    }

    fn bind(&mut self, process: ProcessId) -> Result<()> {
        let watched = SampledState {
            target: self.bits.tables.bind(process.pid)?,
            cleared: false,
            all_cleared: false,
            counters: None,
            walks: WalkHistory::default(),
            starting: None,
            reading: None,
            listing: None,
            measuring: None,
        };
        self.watched.insert(process, watched);
        Ok(())
    }

    fn retain(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.watched.retain(|process, _| there(*process));
    }

    fn mappings(
        &mut self,
        member: &SampledProcess,
        calls: &mut TargetCalls,
    ) -> Result<Vec<Mapping>> {
        mappings_now(member, &state_of(&mut self.watched, member)?.target, calls)
    }

    fn start_window(
        &mut self,
        member: &mut SampledProcess,
        needs: SampleKinds,
        turn: &mut SliceContext,
    ) -> SliceResult<()> {
        if member.thp_disabled {
            return Ok(SliceProgress::Done(()));
        }
        let Self { bits, watched } = self;
        let watched = state_of(watched, member)?;
        let mut start = match watched.starting.take() {
            Some(start) => start,
            None => {
                let idle = !needs.includes_coverage()
                    && !bits.has_run_enough(member, &mut watched.walks)?;
                if idle {
                    watched.cleared = true;
                    return Ok(SliceProgress::Done(()));
                }
                WindowOpening {
                    walk: start_walk(member, &watched.target, turn.calls, WalkDetail::Regions)?,
                    read: false,
                    cleared: 0,
                }
            }
        };
        if !start.read {
            let timed = |took| turn.calls.record_duration(took);
            let (tables, target, walk) = (&mut bits.tables, &watched.target, &mut start.walk);
            start.read = tables.walk_until(target, walk, Some(turn.deadline), timed)?;
            if start.read {
                let eligible = &member.eligible;
                walk.found.retain(|r| !eligible.is_locked(r.region));
            }
        }
        let cleared =
            start.read && (!needs.includes_coverage() || clear(member, &mut start, turn)?);
        if !cleared {
            watched.starting = Some(start);
            return Ok(SliceProgress::Unfinished(Duration::ZERO));
        }
        watched.cleared = true;
        watched.all_cleared |= needs.includes_coverage();
        if needs.includes_overhead()
            && (!needs.includes_coverage() || bits.has_run_enough(member, &mut watched.walks)?)
        {
            bits.start_probing(member, watched, needs, &start.walk.found);
        }
        Ok(SliceProgress::Done(()))
    }

    fn abandon_window(&mut self) {
        for watched in self.watched.values_mut() {
            watched.starting = None;
            watched.reading = None;
        }
    }

    fn probe(
        &mut self,
        member: &SampledProcess,
        turn: &mut SliceContext,
    ) -> Result<Option<Duration>> {
        let Self { bits, watched } = self;
        let SampledState { target, walks, .. } = state_of(watched, member)?;
        let Some(probing) = &mut walks.probing else {
            return Ok(None);
        };
        let (tables, deadline) = (&mut bits.tables, Some(turn.deadline));
        probing.step(tables, member, target, turn.calls, deadline)
    }

    fn sample(
        &mut self,
        member: &mut SampledProcess,
        turn: &mut SliceContext,
    ) -> SliceResult<ProcessSample> {
        let Self { bits, watched } = self;
        let watched = state_of(watched, member)?;
        let walk = match watched.reading.take() {
            Some(walk) => walk,
            None => {
                let walk = start_walk(member, &watched.target, turn.calls, WalkDetail::Regions)?;
                bits.end_window(watched)?;
                walk
            }
        };
        let (target, reading) = (&watched.target, &mut watched.reading);
        let found = continue_walk(&mut bits.tables, target, walk, reading, turn)?;
        Ok(found.map(|regions| {
            let mut sample = member.population(regions);
            member.eligible.clear_locked_accesses(&mut sample.regions);
            if watched.cleared {
                sample.source = CoverageSource::AccessBits;
                sample.first_touches = sample.regions.iter().map(first_touches_of).sum();
            }
            if bits.walk_costs.is_some() {
                let known = watched.walks.apply(&mut sample.regions);
                sample.walks_seen = known.seen;
                // Only the probed regions were ever cleared.
                if !watched.all_cleared {
                    sample.first_touches = known.first_touches;
                }
            }
            sample.overhead = watched.walks.overhead;
            sample.cpu_cores = watched.walks.cpu_cores.unwrap_or(1.0);
            sample
        }))
    }

    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
    ) -> Result<Option<RegionSample>> {
        let target = &state_of(&mut self.watched, member)?.target;
        self.bits.tables.region(target, region)
    }

    fn still_eligible(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        calls: &mut TargetCalls,
    ) -> Result<bool> {
        let target = &state_of(&mut self.watched, member)?.target;
        let start = region.start();
        let found = match self.bits.tables.mapping_at(target, start) {
            Err(error) if error.errno() == Some(Errno::EBUSY) => {
                let mappings = mappings_now(member, target, calls)?;
                mappings.into_iter().find(|m| m.range.contains(&start))
            }
            found => found?,
        };
        Ok(found.is_some_and(|m| mappings::region_eligible(&[m], region).is_ok()))
    }

    fn huge_bytes(&mut self, member: &mut SampledProcess, deadline: Instant) -> SliceResult<u64> {
        let watched = state_of(&mut self.watched, member)?;
        let new = || RegionWalk::new(member.eligible.ranges.clone(), WalkDetail::HugeOnly);
        let mut walk = watched.measuring.take().unwrap_or_else(new);
        let tables = &mut self.bits.tables;
        if tables.walk_until(&watched.target, &mut walk, Some(deadline), |_| {})? {
            return Ok(SliceProgress::Done(own_huge_bytes(&walk.found)));
        }
        watched.measuring = Some(walk);
        Ok(SliceProgress::Unfinished(Duration::ZERO))
    }

    fn huge_pages(
        &mut self,
        member: &mut SampledProcess,
        turn: &mut SliceContext,
    ) -> SliceResult<Vec<RegionSample>> {
        let watched = state_of(&mut self.watched, member)?;
        let walk = match watched.listing.take() {
            Some(walk) => walk,
            None => start_walk(member, &watched.target, turn.calls, WalkDetail::HugeOnly)?,
        };
        let (target, listing) = (&watched.target, &mut watched.listing);
        let found = continue_walk(&mut self.bits.tables, target, walk, listing, turn)?;
        Ok(found.map(|found| member.unlocked_huge_pages(found)))
    }

    fn zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut TargetCalls,
    ) -> Result<Option<u16>> {
        let target = &state_of(&mut self.watched, member)?.target;
        let scan = || self.bits.tables.scan_zeros(target, region, enough);
        calls.time_own_call(scan)
    }
}

/// Probes a process for one window, and waits for it. `seed` decides the order of its regions.
/// Fails if the cost of page walks was never measured.
pub fn estimate(bits: &mut AccessBitBackend, pid: u32, seed: u64) -> Result<OverheadEstimate> {
    let member = SampledProcess::open(pid, ProcessIdentity::default(), ProcessRules::default())?;
    let target = bits.tables.bind(pid)?;
    let ranges = mappings::eligible(&bits.tables.mappings(&target)?).ranges;
    let mut regions = Vec::new();
    let tables = &mut bits.tables;
    tables.walk(&target, &ranges, WalkDetail::Regions, &mut regions, |_| {})?;
    probe_once(bits, &member, &target, &regions, seed)
}

/// Probes these regions of a process for one window, and waits for it. Fails like [`estimate`].
pub fn probe_once(
    bits: &mut AccessBitBackend,
    member: &SampledProcess,
    target: &BoundTarget,
    regions: &[RegionSample],
    seed: u64,
) -> Result<OverheadEstimate> {
    let settings = RegionProbeSettings::for_first_touch(bits.first_touch_cost);
    let mut probing = ProcessProbeRun::new(regions, settings, bits.first_touch_cost, seed, |_| 0);
    let mut calls = TargetCalls::default();
    while let Some(wait) = probing.step(&mut bits.tables, member, target, &mut calls, None)? {
        std::thread::sleep(wait);
    }
    let costs = bits.walk_costs.as_ref().ok_or_else(|| {
        LinuxError::Bpf("the cost of page walks on this machine was not measured".into())
    })?;
    Ok(probing.finish(costs))
}

/// Clears access bits until the slice ends; returns whether all are cleared.
///
/// It uses `MADV_COLD` in small slices, which holds `mmap_lock` for reading. `clear_refs` would
/// hold it for writing while it walks all anonymous memory of the process, including memory that
/// can never be huge. Every page fault would wait for that (fs/proc/task_mmu.c,
/// `clear_refs_write`).
fn clear(
    member: &SampledProcess,
    start: &mut WindowOpening,
    turn: &mut SliceContext,
) -> Result<bool> {
    while let Some(rest) = start.walk.found.get(start.cleared..) {
        if rest.is_empty() {
            break;
        }
        if Instant::now() >= turn.deadline {
            return Ok(false);
        }
        let slice = rest.iter().take(CLEARED_PER_CALL).map(|r| r.region);
        let slice: Vec<RegionAddr> = slice.collect();
        start.cleared += turn.calls.clear_accessed(&member.handle, &slice)?.passed;
    }
    Ok(true)
}
