//! The filler's loop: it reads reports, looks at mappings and filled regions, and hands out fills.

use super::cached_mappings::{CachedMappings, get_or_refresh_mappings};
use super::fault_trace::{FaultTrace, FaultTraceWatchlist};
use super::fill_backoff::{FillBackoff, FillBatch};
use super::prefault_helper_calls::PrefaultHelperCalls;
use super::prefault_rate_and_memory_limit::PrefaultRateAndMemoryLimit;
use super::prefault_region::PrefaultMethod;
use super::prefault_thread_pool::{PrefaultJob, PrefaultOutcome, PrefaultThreadPool};
use super::suppressed_processes::SuppressedProcesses;
use super::trace_backoff::{ResumeRetry, TraceBackoffs};
use super::warm_start::WarmStart;
use super::{PrefaultDelayReason, PrefaultSharedState};
use crate::error::{LinuxError, Result};
use crate::mutex::lock;
use crate::processes::mappings::{ManagedMemory, check_region_eligible};
use crate::processes::process::calling_thread_cpu_time;
use crate::sample::page_table_reader::PageTableReader;
use hawkeye_policy::prefault::{
    PrefaultPredictor, PrefaultResult, PrefaultTask, PrefaultThreadCount, PrefaultableMemory,
    RegionTouch,
};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId, RatePerSecond, RegionSample};
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often an idle filler checks which processes remain.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);
/// An upper bound of the time that a fill takes.
const MAX_FILL_TIME: Duration = Duration::from_millis(1);
/// A region in which fewer base pages than this hold data is not in use.
const IN_USE_PAGES: u16 = PAGES_PER_REGION / 4;

pub(super) struct PrefaultLoop {
    began: Instant,
    shared: Arc<PrefaultSharedState>,
    fault_trace: FaultTrace,
    tables: PageTableReader,
    predictor: PrefaultPredictor,
    mappings: HashMap<ProcessId, CachedMappings>,
    /// Processes with a warm start that is not complete.
    warm: HashMap<ProcessId, WarmStart>,
    /// Processes that do not use what is filled.
    suppressed: SuppressedProcesses,
    pool: PrefaultThreadPool,
    calls: PrefaultHelperCalls,
    trace_backoffs: TraceBackoffs,
    resume_retry: ResumeRetry,
    rate_limit: PrefaultRateAndMemoryLimit,
    backoff: FillBackoff,
}

/// Whether a region is as its task expects it.
fn is_fillable(found: Option<&RegionSample>, touch: RegionTouch) -> bool {
    let Some(found) = found else { return touch == RegionTouch::Untouched };
    let is_fillable = match touch {
        // A refused fill leaves one zero page.
        RegionTouch::Untouched => found.present == 0 && found.zero_mapped <= 1,
        RegionTouch::BeingTouched => !found.is_huge() && found.present > 0,
        // The program may have freed it since.
        RegionTouch::LeftBehind => !found.is_huge() && found.present > IN_USE_PAGES,
    };
    is_fillable && found.swapped == 0
}

impl PrefaultLoop {
    pub(super) fn new(
        shared: Arc<PrefaultSharedState>,
        rate: Option<RatePerSecond>,
        threads: PrefaultThreadCount,
    ) -> Result<(Self, FaultTraceWatchlist)> {
        let (fault_trace, watchlist) = FaultTrace::attach()?;
        let filler = Self {
            began: Instant::now(),
            shared,
            fault_trace,
            tables: PageTableReader::load_bpf_programs()?,
            predictor: PrefaultPredictor::default(),
            mappings: HashMap::new(),
            warm: HashMap::new(),
            suppressed: SuppressedProcesses::default(),
            pool: PrefaultThreadPool::start(threads)?,
            calls: PrefaultHelperCalls::start()?,
            trace_backoffs: TraceBackoffs::default(),
            resume_retry: ResumeRetry::default(),
            rate_limit: PrefaultRateAndMemoryLimit::new(rate),
            backoff: FillBackoff::default(),
        };
        // The CPU time of its start is not the manager's.
        filler.publish_statistics();
        Ok((filler, watchlist))
    }

    pub(super) fn run(&mut self) {
        let mut busy = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let pause = self.pool.shortest_worker_pause_or_zero();
            if !pause.is_zero() {
                lock(&self.shared.done).delay = self.current_delay();
                std::thread::sleep(pause.min(IDLE_INTERVAL));
                // Streams stay where their programs are.
                self.wait_and_process_reports(Duration::ZERO);
                continue;
            }
            let wait = self.wait_time_for_reports(busy);
            self.pause_or_resume_tracing();
            self.wait_and_process_reports(wait);
            self.check_warm_start_mappings(busy || self.predictor.count_prefaults_under_way() > 0);
            self.check_prefaulted_regions_used();
            self.check_stream_progress();
            busy = self.assign_next_prefault();
            self.publish_statistics();
        }
        let lost = self.fault_trace.lost_report_count();
        tracing::debug!("{lost} reports of first touches were lost");
    }

    /// The delay that ends last.
    fn current_delay(&self) -> Option<(PrefaultDelayReason, Instant)> {
        let now = self.now();
        let delays = [
            (PrefaultDelayReason::NoSpareCore, self.pool.time_without_spare_core()),
            (PrefaultDelayReason::LongCall, self.backoff.pause_left(now)),
            (PrefaultDelayReason::Rate, self.rate_limit.wait_left(now)),
        ];
        let (reason, left) = delays.into_iter().max_by_key(|(_, left)| *left)?;
        (!left.is_zero()).then(|| (reason, Instant::now() + left))
    }

    fn publish_statistics(&self) {
        let delay = self.current_delay();
        let mut done = lock(&self.shared.done);
        let calls = || self.pool.worker_calls().chain([self.calls.statistics()]);
        done.helper_cpu = calls().map(|calls| calls.helper_cpu).sum();
        done.longest_call = calls().map(|calls| calls.longest).max().unwrap_or_default();
        done.slow_calls = calls().map(|calls| calls.slow).sum();
        done.cpu = calling_thread_cpu_time() + self.pool.worker_cpu_time() + done.helper_cpu;
        done.ahead = self.predictor.count_regions_prefaulted_ahead();
        done.unused = self.predictor.count_unused_regions();
        done.delay = delay;
        done.pauses = self.pool.spare_cores.pauses + self.backoff.pauses;
    }

    /// Pauses the reports of processes with random touches: each costs its program some ten
    /// nanoseconds. While all are paused, page faults of no program cost anything.
    fn pause_or_resume_tracing(&mut self) {
        let followed: Vec<ProcessId> = lock(&self.shared.followed).keys().copied().collect();
        let (now, trace) = (self.now(), &self.fault_trace);
        let touches_of = |process: ProcessId| trace.ordered_and_random_touches_of(process.pid);
        let at_random = trace.random_touches();
        for (process, pauses) in self.trace_backoffs.changes(now, &followed, at_random, touches_of)
        {
            trace.set_process_paused(process.pid, pauses);
        }
        let trace = &mut self.fault_trace;
        if self.trace_backoffs.has_paused_all() {
            trace.links.clear();
        } else if trace.links.is_empty() {
            let resumed = self.resume_retry.try_if_due(now, || trace.resume_tracing());
            if let Err(error) = resumed {
                tracing::warn!("watching first touches could not be resumed: {error}");
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// How long the filler can wait for a report or for the end of a fill.
    fn wait_time_for_reports(&self, busy: bool) -> Duration {
        if busy {
            return Duration::ZERO;
        }
        let looks = self.warm.values().map(|warm| warm.next_look);
        let peek = self.predictor.next_progress_check().map(|(at, _)| at);
        let next = looks.chain(peek).min();
        let next = next.map(|at| at.saturating_sub(self.now()));
        let pause = next.map_or(IDLE_INTERVAL, |pause| pause.min(IDLE_INTERVAL));
        // `PrefaultThreadPool::wait_for_outcome_or_fd` returns at once for less; such a loop would
        // use a worker's core.
        let fills = self.predictor.count_prefaults_under_way() > 0;
        if fills { pause.max(MAX_FILL_TIME) } else { pause }
    }

    fn wait_and_process_reports(&mut self, wait: Duration) {
        let reports = &self.fault_trace.reports;
        let heard = if self.pool.has_workers() {
            self.pool.wait_for_outcome_or_fd(reports.fd(), wait);
            reports.take_reports()
        } else {
            reports.wait_for_reports(wait)
        };
        // First: a process at the end of what is filled was not faster than the fillers.
        self.handle_outcomes();
        let now = self.now();
        let mut followed: HashMap<u32, ProcessId> = HashMap::new();
        for (process, one) in lock(&self.shared.followed).iter_mut() {
            followed.insert(process.pid, *process);
            let warm = std::mem::take(&mut one.warm_regions);
            if warm > 0 {
                // The process may run another program now.
                self.mappings.remove(process);
                self.predictor.forget_process(*process);
                self.predictor.request_warm_start(*process, warm);
                let bytes = warm * HUGE_PAGE_BYTES;
                self.warm.insert(*process, WarmStart::new(now, bytes));
            }
        }
        self.predictor.forget_ended_streams(now);
        for one in heard {
            tracing::trace!("{one:?}");
            if let Some(process) = followed.get(&one.pid) {
                self.predictor.on_fault_report(now, *process, one.report);
                self.suppress_process_if_given_up(*process);
            }
        }
        let is_there = |process: ProcessId| followed.get(&process.pid) == Some(&process);
        self.mappings.retain(|process, _| is_there(*process));
        self.warm.retain(|process, _| is_there(*process));
        self.predictor.retain_processes(is_there);
        // A process that was suppressed for long enough may have changed.
        for process in self.suppressed.take_released(now, is_there) {
            self.fault_trace.resume_reports_of_process(process.pid);
            self.predictor.forget_given_up_streams(process);
        }
    }

    /// Suppresses the reports of a process that no longer has a stream worth filling.
    fn suppress_process_if_given_up(&mut self, process: ProcessId) {
        let now = self.now();
        if !self.suppressed.contains(now, process)
            && self.predictor.has_given_up_on_process(now, process)
        {
            self.suppressed.suppress(now, process);
            self.fault_trace.suppress_sparse_touch_reports(process.pid);
        }
    }

    /// Looks for new mappings of processes with a warm start. Memory touched inside the kernel
    /// (`MADV_POPULATE_WRITE`) is not reported, so the mappings are read. Where something is left
    /// to fill already, this can wait longer.
    fn check_warm_start_mappings(&mut self, busy: bool) {
        let now = self.now();
        let may_be_late = if busy { IDLE_INTERVAL } else { Duration::ZERO };
        let predictor = &mut self.predictor;
        self.warm.retain(|process, warm| {
            if warm.is_over(now) {
                predictor.cancel_warm_start(*process);
            }
            predictor.warm_start_regions_left(*process) > 0
        });
        for (process, warm) in &mut self.warm {
            if now < warm.next_look + may_be_late {
                continue;
            }
            let (known, calls) = (&mut self.mappings, self.calls.helper_pool_without_late_calls());
            let known = get_or_refresh_mappings(known, &self.tables, calls, *process, None, now);
            let mapped = known.map(CachedMappings::mapped_ranges).unwrap_or_default();
            for last in warm.last_regions_of_new_ranges(now, &mapped) {
                self.predictor.on_new_mapping(now, *process, last);
            }
        }
    }

    /// Checks whether filled regions are in use. Empty ones mean that it uses single pages.
    fn check_prefaulted_regions_used(&mut self) {
        while let Some(task) = self.predictor.next_use_check() {
            let most = PAGES_PER_REGION - IN_USE_PAGES;
            match self.count_zero_pages_of_task(task, most) {
                Some(empty) => {
                    let (process, region) = (task.process, task.region);
                    tracing::trace!("{process:?} {region}: {empty} base pages empty");
                    self.predictor.on_use_check_result(task, empty < most);
                }
                None => self.predictor.on_prefaulted_region_gone(task),
            }
        }
    }

    /// Checks how far programs have come in filled memory, where they cause no faults.
    fn check_stream_progress(&mut self) {
        while let Some((at, task)) = self.predictor.next_progress_check() {
            let now = self.now();
            if now < at {
                return;
            }
            match self.count_zero_pages_of_task(task, PAGES_PER_REGION) {
                Some(empty) => {
                    let reached = empty < PAGES_PER_REGION;
                    self.predictor.on_progress_check_result(now, task, reached);
                }
                None => self.predictor.on_prefaulted_region_gone(task),
            }
        }
    }

    /// Zero-filled base pages of a region, at most `enough`. `None`: not huge, or unreadable.
    fn count_zero_pages_of_task(&mut self, task: PrefaultTask, enough: u16) -> Option<u16> {
        let target = &self.mappings.get(&task.process)?.target;
        let empty = self.tables.count_zero_pages(target, task.region, enough);
        empty.ok().flatten()
    }

    /// Hands out the most urgent fill. Returns whether there was one and a thread was ready.
    fn assign_next_prefault(&mut self) -> bool {
        let now = self.now();
        let Some(batch) = self.backoff.batch_to_fill_in(now) else { return false };
        let under_way = self.predictor.count_prefaults_under_way();
        if !self.pool.has_ready_thread(&mut self.calls)
            || !self.rate_limit.try_take_prefault(now, under_way)
        {
            return false;
        }
        let (shared, tables, known) = (&self.shared, &self.tables, &mut self.mappings);
        let calls = self.calls.helper_pool_without_late_calls();
        let task = self.predictor.hand_out_next_prefault(now, |process, head| {
            let room_regions = lock(&shared.followed).get_mut(&process)?.checked_room_regions();
            if room_regions == 0 {
                return None;
            }
            let known = get_or_refresh_mappings(known, tables, calls, process, Some(head), now)?;
            let (range, _) = known.find_mapping_of_region(head)?;
            Some(PrefaultableMemory { mapped: range.clone(), room_regions })
        });
        let Some(task) = task else {
            self.rate_limit.give_back_prefault();
            return false;
        };
        match self.prepare_job_if_region_fillable(task, batch) {
            Ok(job) => self.pool.assign_or_run_job(job, &mut self.calls),
            Err(what) => self.apply_prefault_result(task, what),
        }
        true
    }

    /// The job that fills a region, if the region is as the task expects it.
    fn prepare_job_if_region_fillable(
        &mut self,
        task: PrefaultTask,
        batch: FillBatch,
    ) -> Result<PrefaultJob, PrefaultResult> {
        const REFUSED: PrefaultResult = PrefaultResult::Refused;
        let followed = lock(&self.shared.followed).get(&task.process).cloned();
        let handle = followed.ok_or(REFUSED)?.handle;
        let known = self.mappings.get(&task.process).ok_or(REFUSED)?;
        let method = match task.touch {
            // A read would map another base page.
            RegionTouch::BeingTouched | RegionTouch::LeftBehind => PrefaultMethod::Collapse,
            RegionTouch::Untouched => known.find_mapping_of_region(task.region).ok_or(REFUSED)?.1,
        };
        let found = self.tables.read_region(&known.target, task.region);
        let found = found.map_err(|_| REFUSED)?;
        if !is_fillable(found.as_ref(), task.touch) {
            return Err(PrefaultResult::Occupied);
        }
        // The known mappings are older; userfaultfd may watch one since.
        let (target, calls) = (&known.target, self.calls.helper_pool_without_late_calls());
        match self.tables.vma_at_address(target, task.process, task.region.start(), calls) {
            Ok(Some(now))
                if check_region_eligible(
                    std::slice::from_ref(&now),
                    task.region,
                    ManagedMemory::Private,
                )
                .is_ok() => {}
            Err(LinuxError::NotAnswering(_)) => return Err(PrefaultResult::Occupied),
            Err(error) if error.errno() == Some(Errno::EBUSY) => {
                return Err(PrefaultResult::Occupied);
            }
            _ => return Err(REFUSED),
        }
        Ok(PrefaultJob { task, handle, method, batch })
    }

    fn handle_outcomes(&mut self) {
        while let Some(outcome) = self.pool.take_next_outcome() {
            self.backoff.record_fill(self.now(), outcome.batch, outcome.longest_call);
            let what = self.classify_outcome(&outcome);
            if what == PrefaultResult::Done {
                let mut done = lock(&self.shared.done);
                done.longest = done.longest.max(outcome.took);
            }
            self.apply_prefault_result(outcome.task, what);
        }
    }

    /// Judges an outcome by whether a huge page is there now.
    fn classify_outcome(&mut self, outcome: &PrefaultOutcome) -> PrefaultResult {
        let (process, region) = (outcome.task.process, outcome.task.region);
        if let Err(error) = &outcome.result {
            tracing::debug!("region {region} of process {process} was not filled: {error}");
        }
        let Some(known) = self.mappings.get(&process) else {
            return PrefaultResult::Refused;
        };
        let now = self.tables.read_region(&known.target, region);
        match (&outcome.result, now) {
            (Ok(()), Ok(Some(now))) if now.is_huge() => PrefaultResult::Done,
            // The owner was faster, or is collapsing the same region.
            (Err(error), _) if matches!(error.errno(), Some(Errno::EAGAIN | Errno::EBUSY)) => {
                PrefaultResult::Occupied
            }
            _ => PrefaultResult::Refused,
        }
    }

    /// Counts the result of a fill and reports it to the predictor.
    fn apply_prefault_result(&mut self, task: PrefaultTask, what: PrefaultResult) {
        // Fills of touched memory are refused for reasons that say nothing of memory ahead.
        let what = match what {
            PrefaultResult::Refused if task.touch != RegionTouch::Untouched => {
                PrefaultResult::Occupied
            }
            what => what,
        };
        if what == PrefaultResult::Done {
            lock(&self.shared.done).filled += 1;
            for (process, followed) in lock(&self.shared.followed).iter_mut() {
                followed.record_fill(*process == task.process);
            }
        } else {
            self.rate_limit.give_back_prefault();
        }
        tracing::trace!("{:?} {}: {what:?}", task.process, task.region);
        let ended = self.predictor.on_prefault_result(self.now(), task, what);
        if what == PrefaultResult::Refused {
            lock(&self.shared.done).refused += 1;
            // Only once: the other regions under way will be refused as well.
            if let Some(warm) = self.warm.get_mut(&task.process).filter(|_| ended) {
                warm.retry_mapping_later(task.region);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::{PageOrder, RegionAddr};

    #[test]
    fn regions_are_filled_only_as_their_task_expects_them() {
        let region = RegionAddr::containing(HUGE_PAGE_BYTES);
        let full = RegionSample::new_full_and_untouched(region);
        let empty = RegionSample { present: 0, ..full };
        let some = RegionSample { present: 3, ..empty };
        let huge = RegionSample { order: PageOrder::HUGE, ..full };
        let swapped = RegionSample { swapped: 1, ..full };
        let found = [None, Some(empty), Some(some), Some(full), Some(huge), Some(swapped)];
        for (touch, expected) in [
            (RegionTouch::Untouched, [true, true, false, false, false, false]),
            (RegionTouch::BeingTouched, [false, false, true, true, false, false]),
            (RegionTouch::LeftBehind, [false, false, false, true, false, false]),
        ] {
            assert_eq!(found.each_ref().map(|it| is_fillable(it.as_ref(), touch)), expected);
        }
    }
}
