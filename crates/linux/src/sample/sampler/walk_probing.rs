//! Probes how fast a process touches its memory. It clears a few regions, reads their access bits
//! several times within milliseconds, and continues with the next few.

use super::{ProcessWorkSlice, SampledProcess};
use crate::error::Result;
use crate::processes::mappings::EligibleRanges;
use crate::processes::process;
use crate::promote::sched_fifo::run_with_sched_fifo;
use crate::promote::target_call::{CallHelperPool, SERIES_TIME};
use crate::sample::page_table_reader::{AccessBitSnapshot, PageTableReader, ProcessBpfLinks};
use hawkeye_policy::walk_rate::access_interval::{AccessInterval, FirstAccess, read_shows_running};
use hawkeye_policy::walk_rate::region_probe_plan::READS_AFTER;
use hawkeye_policy::walk_rate::{
    OverheadEstimate, OverheadEstimator, PageBitmap, ProbeRoundPlan, RegionAccessBits,
    RegionProbePlan, RegionProbeSettings, WORTH_CORES, WalkCosts,
};
use hawkeye_policy::{MAX_SHARED_PAGES, ProcessId, RegionAddr, RegionSample, TranslationOverhead};
use nix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Shorter waits are slept through; during longer ones the manager does something else.
const MAX_SLEEP: Duration = Duration::from_millis(2);

/// The probing of one process in one window.
pub struct ProcessWindowProbing {
    probe: RegionProbePlan,
    estimator: OverheadEstimator,
    round: Option<RunningProbeRound>,
    /// Regions to probe, in as many windows as that takes.
    regions: usize,
    /// Regions that were found to be shared, and how many were found not to be.
    shared: HashSet<RegionAddr>,
    shared_base: SharedRegionCount,
    shared_huge: SharedRegionCount,
    /// When each huge page was first accessed after its clear, by rounds that have shown it.
    huge_first_access: HashMap<RegionAddr, FirstAccess>,
}

/// Regions of one kind that were checked for sharing.
#[derive(Clone, Copy, Debug, Default)]
struct SharedRegionCount {
    all: u64,
    shared: u64,
}

impl SharedRegionCount {
    fn count_region(&mut self, shared: bool) {
        self.all += 1;
        self.shared += u64::from(shared);
    }

    fn shared_fraction(self) -> f64 {
        self.shared as f64 / self.all.max(1) as f64
    }
}

/// What probing has shown of a process, window by window.
#[derive(Default)]
pub struct RegionWalkRates {
    /// The probing of the open window.
    pub probing: Option<ProcessWindowProbing>,
    /// The last estimate.
    pub overhead: Option<TranslationOverhead>,
    /// CPU in use at the last look, in cores.
    pub cpu_cores: Option<f64>,
    /// Page walks per second by region, and the window that showed them. One window does not cover
    /// all of a large process.
    regions: HashMap<RegionAddr, (u32, u64)>,
    /// How often huge pages are accessed, and the window that last showed it.
    huge: HashMap<RegionAddr, (AccessInterval, u64)>,
    /// Regions that other processes share, and the window that showed it. Their walks are unknown.
    shared: HashMap<RegionAddr, u64>,
    /// Windows that have ended.
    pub windows: u64,
    /// Number of regions that could be probed in the last window.
    probed_of: usize,
    /// When CPU time was last read, and its value.
    cpu: Option<(Duration, Duration)>,
}

/// What is known of a sample's regions.
pub struct SetBitsAndProbedShare {
    /// First touches since the last clear, in the regions that were cleared in the last window.
    pub set_bits: u64,
    /// Share of base-page regions that were seen lately; 1 where nothing is known of any region.
    pub probed_share: f64,
}

/// Windows after which what was seen of a region is forgotten. It is forgotten earlier if all
/// regions could have been seen twice since.
const REMEMBERED_WINDOWS: u64 = 16;
/// A process has grown if it has more regions than before by one part in this many.
const GROWN: usize = 8;

impl RegionWalkRates {
    /// Seed for the order of the next window's regions: another one each time.
    pub fn next_window_seed(&self) -> u64 {
        (self.windows + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Whether the process has used enough CPU to probe it since the last call (true the first
    /// time).
    pub fn update_cpu_use_and_check_busy(&mut self, pid: u32) -> Result<bool> {
        let (now, used) = (monotonic_now(), process::cpu_time(pid)?);
        let Some((then, before)) = self.cpu.replace((now, used)) else {
            return Ok(true);
        };
        let elapsed_s = now.saturating_sub(then).as_secs_f64().max(1e-3);
        let cores = used.saturating_sub(before).as_secs_f64() / elapsed_s;
        if cores < WORTH_CORES {
            self.overhead = None;
            self.cpu_cores = Some(cores);
        }
        Ok(cores >= WORTH_CORES)
    }

    /// Ends the window; returns whether one was open.
    pub fn end_window(&mut self, costs: &WalkCosts) -> bool {
        let Some(mut probing) = self.probing.take() else {
            return false;
        };
        let (all, shared) = (probing.regions, probing.shared.clone());
        let huge_first_access = std::mem::take(&mut probing.huge_first_access);
        let estimate = probing.finish_estimate(costs);
        self.windows += 1;
        let window = self.windows;
        let looked_at = estimate.walks.len() + shared.len();
        let whole = all.div_ceil(looked_at.max(1)) as u64;
        let remembered = REMEMBERED_WINDOWS.max(2 * whole);
        self.overhead = estimate.overhead;
        self.cpu_cores = Some(estimate.cpu_cores);
        // A program that fills new memory does not use the rest as it will later.
        if all > self.probed_of + self.probed_of / GROWN {
            self.regions.retain(|_, (walks, _)| *walks > 0);
        }
        self.probed_of = all;
        let is_recent = |seen: u64| seen + remembered > window;
        self.regions.retain(|region, (_, seen)| is_recent(*seen) && !shared.contains(region));
        self.shared.retain(|_, seen| is_recent(*seen));
        self.huge.retain(|_, (_, seen)| is_recent(*seen));
        for (region, seen) in huge_first_access {
            let before = self.huge.get(&region).map(|(interval, _)| *interval);
            if let Some(interval) = AccessInterval::after_round(before, seen) {
                self.huge.insert(region, (interval, window));
            }
        }
        self.shared.extend(shared.iter().map(|region| (*region, window)));
        for walks in estimate.walks {
            self.shared.remove(&walks.region);
            self.regions.insert(walks.region, (walks.expected_per_s, window));
        }
        true
    }

    /// Whether most of what was probed is shared memory that several processes map. `MADV_COLD`
    /// clears no access bits there, so the rest says little about the process.
    pub fn has_mostly_shared_files(&self, regions: &[RegionSample]) -> bool {
        let unseen = |r: &&RegionSample| r.file.is_some() && self.shared.contains_key(&r.region);
        let unseen = regions.iter().filter(unseen).count();
        unseen > self.regions.len()
    }

    /// The window that last showed a region; 0 for none.
    pub fn last_window_of_region_or_zero(&self, region: RegionAddr) -> u64 {
        let walks = self.regions.get(&region).map_or(0, |(_, window)| *window);
        let huge = self.huge.get(&region).map_or(0, |(_, window)| *window);
        let shared = self.shared.get(&region).copied().unwrap_or(0);
        walks.max(huge).max(shared)
    }

    /// Puts what is known into a sample's regions. A region that has not been touched until now,
    /// long after it was seen, has no walks, whatever regions like it have.
    pub fn apply_to_regions(&mut self, regions: &mut [RegionSample]) -> SetBitsAndProbedShare {
        let (mut set_bits, mut base, mut seen) = (0, 0, 0);
        let running_share = self.cpu_cores.map_or(1.0, |cores| cores.min(1.0));
        let shared = &self.shared;
        let private = |sample: &&mut RegionSample| !shared.contains_key(&sample.region);
        let present = regions.iter_mut().filter(|sample| sample.present > 0);
        for sample in present.filter(private) {
            base += u64::from(!sample.is_huge());
            if let (true, Some((interval, window))) =
                (sample.is_huge(), self.huge.get(&sample.region))
            {
                let idle = *window == self.windows && sample.accessed == 0;
                let accesses_per_s = interval.accesses_per_s(running_share);
                sample.touches_per_s = Some(if idle { 0 } else { accesses_per_s.max(1) });
            }
            let Some((walks, window)) = self.regions.get_mut(&sample.region) else {
                continue;
            };
            seen += u64::from(!sample.is_huge());
            if *window == self.windows {
                if sample.accessed == 0 {
                    *walks = 0;
                }
                set_bits += count_set_access_bits(sample);
            }
            sample.walks_per_s = *walks;
        }
        SetBitsAndProbedShare {
            set_bits,
            probed_share: if seen == 0 { 1.0 } else { seen as f64 / base as f64 },
        }
    }
}

/// Touches that set an access bit: one for each base page, one for a huge page.
pub fn count_set_access_bits(sample: &RegionSample) -> u64 {
    if sample.is_huge() { u64::from(sample.accessed > 0) } else { u64::from(sample.accessed) }
}

/// Regions that were cleared and are being read.
struct RunningProbeRound {
    /// Each with the time of its clear, on CLOCK_MONOTONIC.
    regions: Vec<(RegionAddr, Duration)>,
    /// Start of the clear, and the process's CPU time then.
    begun: Duration,
    cpu_before: Duration,
    /// Time from which reads are counted.
    cleared: Duration,
    reads: usize,
    /// Whether a read has shown that the process has run since the clear.
    is_running: bool,
    /// Of the huge pages among these regions.
    huge_first_access: HashMap<RegionAddr, FirstAccess>,
    for_rate: bool,
    /// Pages of these regions that other processes map too: their bits could not be cleared.
    shared: HashMap<RegionAddr, PageBitmap>,
}

impl RunningProbeRound {
    /// Finds the pages that were shared at the clear, after the first read.
    ///
    /// `MADV_COLD` skips them (mm/madvise.c, `madvise_cold_or_pageout_pte_range`), so they would
    /// seem to be touched at once. Regions with many of them are dropped. `looked` receives each
    /// region that was checked, with whether it was dropped. Regions with pages that may be shared
    /// are dropped unchecked from `deadline` on.
    fn find_pages_shared_at_clear(
        &mut self,
        process: ProcessId,
        calls: &mut CallHelperPool,
        found: &mut Vec<Option<AccessBitSnapshot>>,
        eligible: &EligibleRanges,
        deadline: Instant,
        mut looked: impl FnMut(RegionAddr, &AccessBitSnapshot, bool),
    ) {
        let mut kept = Vec::with_capacity(self.regions.len());
        let regions = std::mem::take(&mut self.regions);
        for ((region, cleared), marks) in regions.into_iter().zip(std::mem::take(found)) {
            if let Some(it) = &marks {
                // Shared memory is written by all of its processes. Other pages that several
                // processes map are write-protected. Where the sharing cannot be read, each page
                // that may be shared counts as shared.
                let maybe_shared = match eligible.file_region(region) {
                    Some(_) => it.present,
                    None => it.write_protected,
                };
                let shared = match maybe_shared {
                    0 => Some(PageBitmap::default()),
                    _ if Instant::now() >= deadline => continue,
                    _ => calls.find_shared_pages_of_region(process, region).ok(),
                };
                let pages = shared.map_or(maybe_shared, |pages| pages.count());
                let many = pages > MAX_SHARED_PAGES;
                looked(region, it, many);
                if many {
                    continue;
                }
                if let Some(pages) = shared.filter(|pages| pages.count() > 0) {
                    self.shared.insert(region, pages);
                }
            }
            kept.push((region, cleared));
            found.push(marks);
        }
        self.regions = kept;
    }

    /// Touched pages without those that could not be cleared.
    fn touched_clearable_pages(&self, region: RegionAddr, marks: &AccessBitSnapshot) -> PageBitmap {
        let mut touched = marks.accessed;
        if let Some(shared) = self.shared.get(&region) {
            for (word, shared) in touched.0.iter_mut().zip(shared.0) {
                *word &= !shared;
            }
        }
        touched
    }
}

impl ProcessWindowProbing {
    /// Prepares to probe `regions`, as they were last read; `seen` returns the window that last
    /// showed a region (0: none).
    pub fn new(
        regions: &[RegionSample],
        settings: RegionProbeSettings,
        first_touch: Duration,
        seed: u64,
        seen: impl Fn(RegionAddr) -> u64,
    ) -> Self {
        let present = regions.iter().filter(|r| r.present > 0);
        let huge = present.clone().filter(|r| r.is_huge());
        let huge: HashSet<RegionAddr> = huge.map(|r| r.region).collect();
        let all: Vec<RegionAddr> = present.map(|r| r.region).collect();
        let (base_regions, huge_regions) = ((all.len() - huge.len()) as u64, huge.len() as u64);
        // Promotions choose between base regions, so huge ones come last.
        let last = |region: &RegionAddr| base_regions > 0 && huge.contains(region);
        let seen = |region| if last(&region) { u64::MAX } else { seen(region) };
        Self {
            estimator: OverheadEstimator::new(base_regions, huge_regions, first_touch),
            regions: all.len(),
            probe: RegionProbePlan::new(all, settings, seed, seen),
            round: None,
            shared: HashSet::new(),
            shared_base: SharedRegionCount::default(),
            shared_huge: SharedRegionCount::default(),
            huge_first_access: HashMap::new(),
        }
    }

    /// Does what is due, until the slice ends. Returns the time until the next call, or `None` when
    /// the window's probing is over.
    pub(crate) fn continue_until_wait(
        &mut self,
        tables: &mut PageTableReader,
        target: &ProcessBpfLinks,
        slice: &mut ProcessWorkSlice,
    ) -> Result<Option<Duration>> {
        let calls = &mut *slice.calls;
        loop {
            // A round that has begun is read when it is due; a later read would show too much.
            if Instant::now() >= slice.deadline && self.round.is_none() {
                return Ok(Some(Duration::ZERO));
            }
            let Some(round) = &mut self.round else {
                let Some(plan) = self.probe.next_round() else {
                    return Ok(None);
                };
                // The cost would outweigh the possible gain.
                if !plan.for_rate && self.estimator.uses_little_cpu() {
                    return Ok(None);
                }
                let deadline = Instant::now() + SERIES_TIME;
                self.round = clear_regions(&plan, slice.member, calls, deadline)?;
                continue;
            };
            let due = round.cleared + READS_AFTER[round.reads];
            let wait = due.saturating_sub(monotonic_now());
            if wait > MAX_SLEEP {
                return Ok(Some(wait));
            }
            std::thread::sleep(wait);
            let addresses: Vec<RegionAddr> = round.regions.iter().map(|r| r.0).collect();
            let mut found =
                calls.run_and_record_own_call(|| tables.read_access_bits(target, &addresses))?;
            let id = slice.member.handle.id;
            let (at, cpu) = read_time_and_cpu_time(id.pid)?;
            let wall = at.saturating_sub(round.begun);
            let cpu = cpu.saturating_sub(round.cpu_before);
            if round.reads == 0 {
                let looked = |region, marks: &AccessBitSnapshot, shared| {
                    if shared {
                        self.shared.insert(region);
                    }
                    let kind =
                        if marks.huge { &mut self.shared_huge } else { &mut self.shared_base };
                    kind.count_region(shared);
                };
                let eligible = &slice.member.eligible;
                let deadline = Instant::now() + SERIES_TIME;
                round.find_pages_shared_at_clear(id, calls, &mut found, eligible, deadline, looked);
            }
            let marks = round.regions.iter().zip(found).filter_map(|(region, marks)| {
                let ((region, cleared), marks) = (*region, marks?);
                Some(RegionAccessBits {
                    region,
                    huge: marks.huge,
                    exposed: marks.at.saturating_sub(cleared),
                    touched: round.touched_clearable_pages(region, &marks),
                })
            });
            let marks: Vec<RegionAccessBits> = marks.collect();
            let touched = self.estimator.record_probe_read(&marks, cpu, wall);
            for mark in marks.iter().filter(|mark| mark.huge) {
                let accessed = mark.touched.count() > 0;
                let first = round.huge_first_access.entry(mark.region).or_default();
                first.record_read(mark.exposed.as_secs_f64(), accessed, round.is_running);
            }
            round.is_running |= read_shows_running(touched, marks.len());
            let probed = round.regions.len();
            if !RegionProbePlan::round_has_enough_touches(round.reads, touched, probed) {
                round.reads += 1;
                continue;
            }
            let for_rate = round.for_rate;
            let regions: Vec<_> = round.regions.iter().map(|r| r.0).collect();
            let ran = self.estimator.end_probe_round(for_rate);
            for (region, first) in std::mem::take(&mut round.huge_first_access) {
                let first = first.at_end_of_round(ran, round.is_running);
                self.huge_first_access.extend(first.map(|first| (region, first)));
            }
            if !ran && !regions.is_empty() {
                self.probe.repeat_round_later(ProbeRoundPlan { regions, for_rate });
            }
            self.round = None;
        }
    }

    pub fn finish_estimate(mut self, costs: &WalkCosts) -> OverheadEstimate {
        let base = self.shared_base.shared_fraction();
        let huge = self.shared_huge.shared_fraction();
        self.estimator.leave_out_unprobed_regions(base, huge);
        self.estimator.finish_estimate(costs)
    }
}

/// Clears the regions, except those that cannot be cleared, or not before `deadline`. `None` if
/// none could be.
fn clear_regions(
    plan: &ProbeRoundPlan,
    member: &SampledProcess,
    calls: &mut CallHelperPool,
    deadline: Instant,
) -> Result<Option<RunningProbeRound>> {
    let (begun, cpu_before) = read_time_and_cpu_time(member.handle.id.pid)?;
    let mut cleared = Vec::with_capacity(plan.regions.len());
    let mut rest = plan.regions.as_slice();
    while !rest.is_empty() && Instant::now() < deadline {
        let found = run_with_sched_fifo(|| calls.clear_access_bits(&member.handle, rest))?;
        if let Ok(answer) = found.answer {
            for (n, region) in rest.iter().take(found.done).enumerate() {
                let part = (n as f64 + 0.5) / found.done.max(1) as f64;
                cleared.push((*region, answer.began + answer.took.mul_f64(part)));
            }
        }
        rest = rest.get(found.passed..).unwrap_or(&[]);
    }
    if cleared.is_empty() {
        return Ok(None);
    }
    Ok(Some(RunningProbeRound {
        regions: cleared,
        begun,
        cpu_before,
        cleared: monotonic_now(),
        reads: 0,
        is_running: false,
        huge_first_access: HashMap::new(),
        for_rate: plan.for_rate,
        shared: HashMap::new(),
    }))
}

/// The time, and the CPU time of a process at this time. Where this thread lost the processor
/// between both, it reads them again.
fn read_time_and_cpu_time(pid: u32) -> Result<(Duration, Duration)> {
    /// Far more than both take, and far less than a time slice.
    const MAX_APART: Duration = Duration::from_micros(100);
    const TRIES: usize = 4;
    for _ in 1..TRIES {
        let before = monotonic_now();
        let cpu = process::cpu_time(pid)?;
        if monotonic_now().saturating_sub(before) <= MAX_APART {
            return Ok((before, cpu));
        }
    }
    Ok((monotonic_now(), process::cpu_time(pid)?))
}

/// The clock that BPF reads too.
fn monotonic_now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests;
