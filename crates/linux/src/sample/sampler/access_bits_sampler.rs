//! Clears access bits: of a whole process for its coverage, of a sample of it for its overhead.

use super::walk_probing::{ProcessWindowProbing, RegionWalkRates, count_set_access_bits};
use super::{ProcessWorkSlice, SampledProcess, Sampler, SliceResult, sum_huge_bytes};
use crate::error::{LinuxError, Result};
use crate::processes::mappings::{self, ManagedMemory, Mapping};
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::{CallHelperPool, PAUSE_FOR_LATE_CALL};
use crate::sample::counters::{CountableWalkEvents, ProcessCounters};
use crate::sample::page_table_reader::{PageTableReader, ProcessBpfLinks, RegionWalk, WalkDetail};
use crate::sample::walk_costs::CurrentWalkCosts;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::walk_rate::RegionProbeSettings;
use hawkeye_policy::{
    CoverageSource, FileRegion, ProcessId, ProcessSample, RegionAddr, RegionSample, SampleKinds,
};
use nix::errno::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What sampling by access bits needs.
pub struct AccessBitBackend {
    /// The BPF programs.
    pub tables: PageTableReader,
    /// Costs of page walks on this machine; `None`: overhead is not needed.
    pub walk_costs: Option<CurrentWalkCosts>,
    /// Hardware counters, where there are any; they take precedence over walk-rate sampling.
    pub counters: Option<CountableWalkEvents>,
    /// Cost to the program of a base page's first access after a clear.
    pub first_touch_cost: Duration,
    /// Whether shared memory was seen to become huge here.
    pub shared_memory: bool,
}

pub(super) struct AccessBitsSampler {
    pub(super) bits: AccessBitBackend,
    pub(super) watched: HashMap<ProcessId, ProcessSamplingState>,
}

/// State of one process.
pub(super) struct ProcessSamplingState {
    target: ProcessBpfLinks,
    /// Whether its access bits were ever cleared; before that they show nothing.
    cleared: bool,
    /// Whether all of them were cleared, and not only those of a sample of its regions.
    all_cleared: bool,
    counters: Option<ProcessCounters>,
    walks: RegionWalkRates,
    /// The start of a window under way.
    starting: Option<UnfinishedWindowStart>,
    /// The start of a window waits for the listing of the mappings.
    awaits_mappings: bool,
    /// The read of a sample under way.
    reading: Option<RegionWalk>,
    /// The listing and the counting of its huge pages under way.
    listing: Option<RegionWalk>,
    measuring: Option<RegionWalk>,
}

#[derive(Debug)]
struct UnfinishedWindowStart {
    walk: RegionWalk,
    read: bool,
    cleared: usize,
}

impl UnfinishedWindowStart {
    /// Clears access bits until the slice ends; returns whether all are cleared.
    ///
    /// It uses `MADV_COLD` in small slices, which holds `mmap_lock` for reading. `clear_refs` would
    /// hold it for writing while it walks all anonymous memory of the process, including memory
    /// that can never be huge. Every page fault would wait for that (fs/proc/task_mmu.c,
    /// `clear_refs_write`).
    fn clear_until_deadline(&mut self, slice: &mut ProcessWorkSlice) -> Result<bool> {
        let regions: Vec<RegionAddr> = self.walk.found.iter().map(|r| r.region).collect();
        while let Some(rest) = regions.get(self.cleared..).filter(|rest| !rest.is_empty()) {
            if Instant::now() >= slice.deadline {
                return Ok(false);
            }
            let result = slice.calls.clear_access_bits(&slice.member.handle, rest)?;
            self.cleared += result.passed;
        }
        Ok(true)
    }
}

/// When coverage is measured, overhead is probed in few regions only. Their coverage is then that
/// of the rest of the window.
const BESIDE_COVERAGE: RegionProbeSettings =
    RegionProbeSettings { ranking_rounds: 0, rate_rounds: 12, rate_regions: 8, ranking_regions: 0 };

fn sampling_state_of<'a>(
    all: &'a mut HashMap<ProcessId, ProcessSamplingState>,
    member: &SampledProcess,
) -> Result<&'a mut ProcessSamplingState> {
    let process = member.handle.id;
    let gone = LinuxError::NoSuchProcess(process.pid);
    all.get_mut(&process).ok_or(gone)
}

/// Leaves only the population of a sample: what is known of accesses stands for too little of it.
fn forget_accesses(sample: &mut ProcessSample) {
    sample.source = CoverageSource::Population;
    sample.overhead = None;
    for region in &mut sample.regions {
        region.accessed = region.present;
        region.walks_per_s = 0;
        region.touches_per_s = None;
    }
}

/// Updates what is eligible.
fn update_eligible_ranges(
    slice: &mut ProcessWorkSlice,
    target: &ProcessBpfLinks,
    managed: ManagedMemory,
) -> Result<()> {
    let found = slice.calls.list_recent_mappings(slice.member.handle.id, target)?;
    slice.member.set_mappings(&found, managed);
    Ok(())
}

/// Starts a walk over all regions that are eligible now. It is unfinished while a call into the
/// process is worth waiting for.
fn start_eligible_walk(
    slice: &mut ProcessWorkSlice,
    target: &ProcessBpfLinks,
    managed: ManagedMemory,
) -> SliceResult<RegionWalk> {
    match update_eligible_ranges(slice, target, managed) {
        Err(LinuxError::NotAnswering(_))
            if slice.calls.take_pause_for_late_call(slice.member.handle.id, Instant::now()) =>
        {
            Ok(SliceProgress::Unfinished(PAUSE_FOR_LATE_CALL))
        }
        updated => {
            let ranges = || slice.member.eligible.ranges.clone();
            updated.map(|()| SliceProgress::Done(RegionWalk::new(ranges(), WalkDetail::Regions)))
        }
    }
}

/// Continues a walk; returns what it found when it is done. Until then `under_way` keeps it.
fn continue_walk_or_keep(
    tables: &mut PageTableReader,
    target: &ProcessBpfLinks,
    mut walk: RegionWalk,
    under_way: &mut Option<RegionWalk>,
    slice: &mut ProcessWorkSlice,
) -> SliceResult<Vec<RegionSample>> {
    let timed = |took| slice.calls.record_call_duration(took);
    if tables.continue_walk_until(target, &mut walk, Some(slice.deadline), timed)? {
        return Ok(SliceProgress::Done(walk.found));
    }
    *under_way = Some(walk);
    Ok(SliceProgress::Unfinished(Duration::ZERO))
}

impl AccessBitBackend {
    fn managed_memory(&self, member: &SampledProcess) -> ManagedMemory {
        match self.shared_memory && member.terms.shared_memory {
            true => ManagedMemory::PrivateAndShared,
            false => ManagedMemory::Private,
        }
    }

    /// See [`RegionWalkRates::update_cpu_use_and_check_busy`].
    fn update_cpu_use_and_check_busy(&self, pid: u32, walks: &mut RegionWalkRates) -> Result<bool> {
        Ok(self.walk_costs.is_some() && walks.update_cpu_use_and_check_busy(pid)?)
    }

    fn prepare_window_probing(
        &self,
        pid: u32,
        watched: &mut ProcessSamplingState,
        needs: SampleKinds,
        regions: &[RegionSample],
    ) {
        let alone = RegionProbeSettings::for_first_touch_cost(self.first_touch_cost);
        let settings = match watched.walks.windows {
            _ if needs.includes_coverage() => BESIDE_COVERAGE,
            0 => alone.for_first_window(),
            _ => alone,
        };
        if let (Some(counters), None) = (&self.counters, &watched.counters) {
            // A process that cannot be counted is estimated, as on machines without counters.
            watched.counters = counters.bind(pid).ok();
        }
        let walks = &watched.walks;
        let seen = |region| walks.last_window_of_region_or_zero(region);
        let seed = walks.next_window_seed();
        let probing =
            ProcessWindowProbing::new(regions, settings, self.first_touch_cost, seed, seen);
        watched.walks.probing = Some(probing);
    }

    /// Ends the window and puts the estimate of the process's overhead into its `walks`.
    fn end_window_and_estimate(&mut self, watched: &mut ProcessSamplingState) -> Result<()> {
        let costs = self.walk_costs.as_mut().map(CurrentWalkCosts::measured_or_typical);
        if costs.is_some_and(|costs| watched.walks.end_window(costs)) {
            if let Some(counters) = &mut watched.counters {
                let counted = counters.overhead_since_last_call()?;
                watched.walks.overhead = counted.or(watched.walks.overhead);
            }
        }
        Ok(())
    }
}

impl Sampler for AccessBitsSampler {
    fn descriptors_per_process(&self) -> usize {
        let counters = self.bits.counters.as_ref();
        let counters = counters.map_or(0, CountableWalkEvents::descriptors_per_thread);
        ProcessHandle::DESCRIPTORS + ProcessBpfLinks::DESCRIPTORS + counters
    }

    fn bind(&mut self, process: ProcessId) -> Result<()> {
        let watched = ProcessSamplingState {
            target: self.bits.tables.bind_to_process(process.pid)?,
            cleared: false,
            all_cleared: false,
            counters: None,
            walks: RegionWalkRates::default(),
            starting: None,
            awaits_mappings: false,
            reading: None,
            listing: None,
            measuring: None,
        };
        self.watched.insert(process, watched);
        Ok(())
    }

    fn retain_processes(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.watched.retain(|process, _| there(*process));
    }

    fn list_mappings(
        &mut self,
        member: &SampledProcess,
        calls: &mut CallHelperPool,
    ) -> Result<Vec<Mapping>> {
        let target = &sampling_state_of(&mut self.watched, member)?.target;
        calls.list_mappings(member.handle.id, target)
    }

    fn start_window(
        &mut self,
        slice: &mut ProcessWorkSlice,
        needs: SampleKinds,
    ) -> SliceResult<()> {
        let Self { bits, watched } = self;
        let watched = sampling_state_of(watched, slice.member)?;
        let pid = slice.member.handle.id.pid;
        let mut start = match watched.starting.take() {
            Some(start) => start,
            None => {
                let idle = !std::mem::take(&mut watched.awaits_mappings)
                    && !needs.includes_coverage()
                    && !bits.update_cpu_use_and_check_busy(pid, &mut watched.walks)?;
                if idle {
                    watched.cleared = true;
                    return Ok(SliceProgress::Done(()));
                }
                let managed = bits.managed_memory(slice.member);
                match start_eligible_walk(slice, &watched.target, managed)? {
                    SliceProgress::Done(walk) => {
                        UnfinishedWindowStart { walk, read: false, cleared: 0 }
                    }
                    SliceProgress::Unfinished(wait) => {
                        watched.awaits_mappings = true;
                        return Ok(SliceProgress::Unfinished(wait));
                    }
                }
            }
        };
        if !start.read {
            let timed = |took| slice.calls.record_call_duration(took);
            let (tables, target, walk) = (&mut bits.tables, &watched.target, &mut start.walk);
            start.read = tables.continue_walk_until(target, walk, Some(slice.deadline), timed)?;
            if start.read {
                let (eligible, terms) = (&slice.member.eligible, slice.member.terms_in_force());
                eligible.name_file_regions(&mut walk.found);
                // Where nothing is promoted, only what a split would cost matters.
                walk.found.retain(|r| {
                    !eligible.is_region_locked(r.region) && (terms.promotes || r.is_huge())
                });
            }
        }
        if !start.read || needs.includes_coverage() && !start.clear_until_deadline(slice)? {
            watched.starting = Some(start);
            return Ok(SliceProgress::Unfinished(Duration::ZERO));
        }
        watched.cleared = true;
        watched.all_cleared |= needs.includes_coverage();
        let walks = &mut watched.walks;
        if needs.includes_overhead()
            && (!needs.includes_coverage() || bits.update_cpu_use_and_check_busy(pid, walks)?)
        {
            bits.prepare_window_probing(pid, watched, needs, &start.walk.found);
        }
        Ok(SliceProgress::Done(()))
    }

    fn abandon_all_windows(&mut self) {
        for watched in self.watched.values_mut() {
            watched.starting = None;
            watched.awaits_mappings = false;
            watched.reading = None;
        }
    }

    fn continue_walk_probing(&mut self, slice: &mut ProcessWorkSlice) -> Result<Option<Duration>> {
        let ProcessSamplingState { target, walks, .. } =
            sampling_state_of(&mut self.watched, slice.member)?;
        let Some(probing) = &mut walks.probing else {
            return Ok(None);
        };
        probing.continue_until_wait(&mut self.bits.tables, target, slice)
    }

    fn read_sample(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<ProcessSample> {
        let Self { bits, watched } = self;
        let watched = sampling_state_of(watched, slice.member)?;
        let walk = match watched.reading.take() {
            Some(walk) => walk,
            None => {
                let managed = bits.managed_memory(slice.member);
                let walk = match start_eligible_walk(slice, &watched.target, managed)? {
                    SliceProgress::Done(walk) => walk,
                    SliceProgress::Unfinished(wait) => return Ok(SliceProgress::Unfinished(wait)),
                };
                bits.end_window_and_estimate(watched)?;
                walk
            }
        };
        let (target, reading) = (&watched.target, &mut watched.reading);
        let found = continue_walk_or_keep(&mut bits.tables, target, walk, reading, slice)?;
        if let SliceProgress::Done(regions) = &found {
            slice.member.record_huge_pages(regions);
            slice.member.update_seen_free_of_huge_pages();
        }
        let member = &*slice.member;
        Ok(found.map(|regions| {
            let mut sample = member.sample_with_population_only(regions);
            member.eligible.name_file_regions(&mut sample.regions);
            member.eligible.clear_accesses_of_locked_regions(&mut sample.regions);
            if watched.cleared {
                sample.source = CoverageSource::AccessBits;
                sample.first_touches = sample.regions.iter().map(count_set_access_bits).sum();
            }
            if bits.walk_costs.is_some() {
                let known = watched.walks.apply_to_regions(&mut sample.regions);
                sample.walks_seen = known.probed_share;
                // Only the probed regions were ever cleared.
                if !watched.all_cleared {
                    sample.first_touches = known.set_bits;
                }
            }
            sample.overhead = watched.walks.overhead;
            sample.cpu_cores = watched.walks.cpu_cores.unwrap_or(1.0);
            if watched.walks.has_mostly_shared_files(&sample.regions) {
                forget_accesses(&mut sample);
                member.eligible.clear_accesses_of_locked_regions(&mut sample.regions);
            }
            sample
        }))
    }

    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        _calls: &mut CallHelperPool,
    ) -> Result<Option<RegionSample>> {
        let target = &sampling_state_of(&mut self.watched, member)?.target;
        let mut found = self.bits.tables.read_region(target, region)?;
        member.eligible.name_file_regions(found.as_mut_slice());
        Ok(found)
    }

    fn managed_memory(&self, member: &SampledProcess) -> ManagedMemory {
        self.bits.managed_memory(member)
    }

    fn eligible_range_around(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        file: Option<FileRegion>,
        calls: &mut CallHelperPool,
    ) -> Result<Option<Range<u64>>> {
        let managed = self.managed_memory(member);
        let target = &sampling_state_of(&mut self.watched, member)?.target;
        let start = region.start();
        let process = member.handle.id;
        let found = match self.bits.tables.vma_at_address(target, process, start, calls) {
            Err(error) if error.errno() == Some(Errno::EBUSY) => {
                let mappings = calls.list_mappings(process, target)?;
                mappings.into_iter().find(|m| m.range.contains(&start))
            }
            found => found?,
        };
        let found = mappings::collect_eligible_ranges_of(found.as_slice(), managed);
        let is_same_memory = found.file_region(region) == file;
        let holds = |range: &Range<u64>| range.start <= start && region.end() <= range.end;
        Ok(found.ranges.into_iter().find(holds).filter(|_| is_same_memory))
    }

    fn count_huge_bytes(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<u64> {
        let watched = sampling_state_of(&mut self.watched, slice.member)?;
        let new = || RegionWalk::new(slice.member.eligible.ranges.clone(), WalkDetail::HugeOnly);
        let mut walk = watched.measuring.take().unwrap_or_else(new);
        let (tables, deadline) = (&mut self.bits.tables, Some(slice.deadline));
        if tables.continue_walk_until(&watched.target, &mut walk, deadline, |_| {})? {
            slice.member.record_huge_pages(&walk.found);
            return Ok(SliceProgress::Done(sum_huge_bytes(&walk.found)));
        }
        watched.measuring = Some(walk);
        Ok(SliceProgress::Unfinished(Duration::ZERO))
    }

    fn list_huge_pages(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<Vec<RegionSample>> {
        let managed = self.managed_memory(slice.member);
        let watched = sampling_state_of(&mut self.watched, slice.member)?;
        let walk = match watched.listing.take() {
            Some(walk) => walk,
            None => {
                update_eligible_ranges(slice, &watched.target, managed)?;
                // Recovery gets nothing back from shared memory.
                RegionWalk::new(slice.member.eligible.private_ranges(), WalkDetail::HugeOnly)
            }
        };
        let (target, listing) = (&watched.target, &mut watched.listing);
        let found = continue_walk_or_keep(&mut self.bits.tables, target, walk, listing, slice)?;
        Ok(found.map(|found| {
            slice.member.record_huge_pages(&found);
            slice.member.keep_unlocked_huge_pages(found)
        }))
    }

    fn count_zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut CallHelperPool,
    ) -> Result<Option<u16>> {
        let target = &sampling_state_of(&mut self.watched, member)?.target;
        let scan = || self.bits.tables.count_zero_pages(target, region, enough);
        calls.run_and_record_own_call(scan)
    }
}
