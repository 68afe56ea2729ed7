//! The running kernel as a machine to manage.

mod explanation;
mod freed_parts;
mod profiles_and_page_sizes;

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::CgroupLimits;
use crate::memory::recovery_method::RecoveryMethod;
use crate::memory::{fragmentation, system_memory};
use crate::page_sizes::page_size_control::PageSizeControl;
use crate::prefault::profile_store::{ProfileRecorder, ProgramProfile};
use crate::prefault::{PrefaultDelayReason, PrefaultStatistics, Prefaulter, StartingPrefaulter};
use crate::probe::ChosenKernelMethods;
use crate::processes::descriptor_limit::raise_descriptor_limit;
use crate::processes::managed_processes::{ManagedProcessView, ManagedProcesses, ManagedTarget};
use crate::processes::process;
use crate::processes::profile_requests::{PodAnnotationStatus, ProfileRequestSources};
use crate::promote::reserve::RESERVE;
use crate::promote::target_call::{CallHelperPool, SERIES_TIME};
use crate::sample::sampler::{ProcessWorkSlice, Sampler};
use crate::sample::shared_pages;
use crate::stop_signals::{StopSignals, WaitResult};
use crate::test_costs;
use hawkeye_manager::machine::{CallResult, ResumableCallResult};
use hawkeye_manager::{
    BudgetWait, ExhaustedBudget, HugePageReserveControl, LoopWakeReason, Machine, MachineError,
    ManagementCosts, Prefault, ProcessFootprint, PromotionResult, RecoveryResult, Sampling,
    SliceProgress, TimedOutCallResults, TimedOutPromotionResult, ZeroScanResult,
};
use hawkeye_policy::saturating_cast::u32_from_f64;
use hawkeye_policy::walk_rate::PageBitmap;
use hawkeye_policy::{
    BASE_PAGE_BYTES, BloatKind, Errno, FileRegion, HUGE_PAGE_BYTES, MAX_FILE_HOLES,
    MachinePageProperties, MemoryScope, MemoryState, MemoryUse, PAGES_PER_REGION, PageOrder,
    ProcessId, ProcessSample, ProcessSelectionSettings, ProcessSettings, Promotion, RegionAddr,
    RegionSample, ReserveState, ReserveTarget, Rules, SampleKinds,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The running kernel, with the processes to manage on it.
pub struct LinuxMachine {
    began: Instant,
    target: ManagedTarget,
    signals: StopSignals,
    sampler: Box<dyn Sampler>,
    recovery: RecoveryMethod,
    first_touch_cost: Duration,
    members: ManagedProcesses,
    calls: CallHelperPool,
    /// Promotions that have not been answered yet.
    promotions_under_way: HashMap<ProcessId, PendingPromotion>,
    /// File regions with too many holes, and when that was seen.
    sparse_files: HashMap<FileRegion, Instant>,
    peak_excluded_bytes: u64,
    groups: CgroupLimits,
    prefaulter: Option<Prefaulter>,
    starting_prefaulter: Option<StartingPrefaulter>,
    /// CPU time of a filler that could not start.
    failed_prefaulter_cpu: Duration,
    prefault_start_result: Option<Result<()>>,
    sizing: PageSizeControl,
    profile_recorder: Option<ProfileRecorder>,
}

struct PendingPromotion {
    region: RegionAddr,
    from_reserve: bool,
}

impl Drop for LinuxMachine {
    fn drop(&mut self) {
        RESERVE.stop();
    }
}

/// With more swapped pages than this, a promotion would mostly wait for the disk (tcmalloc's
/// limit).
const MAX_SWAPPED: u16 = 128;
/// A process that has not answered a call for this long is reported.
const NOT_ANSWERING_AFTER: Duration = Duration::from_secs(1);
/// Time after which no further process is listed for one promotion.
const LISTING_TIME: Duration = Duration::from_millis(10);
/// Time after which the search for a file region's pages goes on in no other process.
const FILE_PAGES_TIME: Duration = Duration::from_millis(10);
/// For this long a file region that lacks pages is not searched again, through whichever process.
const SPARSE_FILE_PAUSE: Duration = Duration::from_secs(20);
/// Attempts to split a huge page that something else references: compaction, a debugger that reads
/// it, DAMON. All of them release it within microseconds.
const SPLIT_TRIES: u32 = 3;

impl LinuxMachine {
    /// Starts managing the processes of `target`. Each takes file descriptors, so this raises the
    /// limit of open files of this process to its hard limit.
    pub fn new(backend: ChosenKernelMethods, target: ManagedTarget, signals: StopSignals) -> Self {
        // Before anything reads the limit.
        let descriptors = raise_descriptor_limit();
        let mut calls = CallHelperPool::default();
        if let Err(error) = calls.start_idle_helper() {
            // The first call tries again, and returns the error.
            tracing::warn!("{error}");
        }
        Self {
            began: Instant::now(),
            target,
            signals,
            sampler: backend.sampler.into_sampler(),
            recovery: backend.recovery,
            first_touch_cost: backend.first_touch_cost,
            members: ManagedProcesses::new(descriptors),
            calls,
            promotions_under_way: HashMap::new(),
            sparse_files: HashMap::new(),
            peak_excluded_bytes: 0,
            groups: CgroupLimits::of_this_machine(),
            prefaulter: None,
            starting_prefaulter: None,
            failed_prefaulter_cpu: Duration::ZERO,
            prefault_start_result: None,
            sizing: PageSizeControl::new(),
            profile_recorder: None,
        }
    }

    /// Fills ahead of all managed processes from now on, and `warm_bytes` at the start of each one.
    pub fn enable_prefault(&mut self, mut prefaulter: Prefaulter, warm_bytes: u64) {
        prefaulter.warm_regions = warm_bytes / HUGE_PAGE_BYTES;
        self.prefaulter = Some(prefaulter);
    }

    /// Fills ahead of all managed processes once the filler has started.
    pub fn enable_prefault_when_ready(&mut self, starting: StartingPrefaulter) {
        self.starting_prefaulter = Some(starting);
    }

    /// Whether that filler could start. `None` until it is known, and once it was returned.
    pub fn take_prefault_start_result(&mut self) -> Option<Result<()>> {
        self.prefault_start_result.take()
    }

    fn enable_prefault_if_ready(&mut self) {
        let Some(starting) = self.starting_prefaulter.take() else { return };
        match starting.try_into_ready() {
            Ok((started, cpu)) => {
                if started.is_err() {
                    self.failed_prefaulter_cpu = cpu;
                }
                let started = started.map(|prefaulter| self.enable_prefault(prefaulter, 0));
                self.prefault_start_result = Some(started);
            }
            Err(starting) => self.starting_prefaulter = Some(starting),
        }
    }

    /// What was filled ahead so far; `None` if nothing is filled ahead.
    pub fn prefault_statistics(&self) -> Option<PrefaultStatistics> {
        self.prefaulter.as_ref().map(Prefaulter::statistics)
    }

    /// Promotes shared memory of the processes that the target names, too. For a whole machine, the
    /// rules decide. No effect where it cannot be promoted.
    pub fn promote_shared_memory(&mut self) {
        self.members.set_shared_memory_of_named();
    }

    /// Whether some process was left alone because of `PR_SET_THP_DISABLE`.
    pub fn has_seen_thp_disabled_process(&self) -> bool {
        self.members.saw_thp_disabled
    }

    /// Calls into other processes that took longer than 30 ms.
    pub fn slow_target_call_count(&self) -> u64 {
        let filler = self.prefault_statistics().unwrap_or_default();
        self.calls.statistics.slow + filler.slow_calls
    }

    /// The highest number of bytes that owners excluded by `MADV_NOHUGEPAGE` at one time.
    pub fn peak_madv_nohugepage_bytes(&self) -> u64 {
        self.peak_excluded_bytes
    }

    /// All managed processes, in the order in which they joined.
    pub fn managed_processes(&self) -> Vec<ManagedProcessView> {
        self.members.process_views()
    }

    /// Changes the rules for the whole machine. A process that stays keeps its state; one that the
    /// new rules exclude is let go. No effect if the target names its processes.
    pub fn set_rules(&mut self, rules: Rules, selection: ProcessSelectionSettings) {
        if let ManagedTarget::Machine { selector, .. } = &mut self.target {
            selector.set_rules(rules, selection);
            self.members.reapply_rules(selector);
        }
    }

    /// Changes where workloads may ask for a profile. At first they may not ask anywhere.
    pub fn set_profile_request_sources(&mut self, sources: ProfileRequestSources) {
        if let ManagedTarget::Machine { selector, .. } = &mut self.target {
            selector.set_profile_request_sources(sources);
        }
    }

    /// How reading pods' annotations goes; `None`: they are not read.
    pub fn pod_annotation_status(&self) -> Option<PodAnnotationStatus> {
        self.target.selector()?.pod_annotation_status()
    }

    fn run_sampler_slice<T>(
        &mut self,
        process: ProcessId,
        until: Duration,
        work: impl FnOnce(&mut dyn Sampler, &mut ProcessWorkSlice) -> Result<T>,
    ) -> CallResult<T> {
        let mut slice = ProcessWorkSlice {
            deadline: self.began + until,
            member: self.members.get_mut(process)?,
            calls: &mut self.calls,
        };
        let result = work(&mut *self.sampler, &mut slice);
        result.map_err(|error| error.into_machine_error(process))
    }

    /// Adds to the record of a process, if one is kept.
    fn update_profile(&mut self, process: ProcessId, change: impl FnOnce(&mut ProgramProfile)) {
        let recorder = self.profile_recorder.as_mut();
        if let Some(seen) = recorder.and_then(|recorder| recorder.current_run_profile_mut(process))
        {
            change(seen);
        }
    }

    /// Checks whether a region should not be promoted as it is now. Returns the outcome in that
    /// case.
    fn check_before_promotion(
        &mut self,
        promotion: &Promotion,
    ) -> CallResult<Option<PromotionResult>> {
        let Promotion { process, region, expected_present, file: expected_file, .. } = *promotion;
        let failed = |error: LinuxError| error.into_machine_error(process);
        let member = self.members.get_mut(process)?;
        // Rules may have changed since it was proposed.
        if !member.terms.promotes {
            return Ok(Some(PromotionResult::NotCandidate));
        }
        let found = self.sampler.read_region(member, region, &mut self.calls);
        let Some(found) = found.map_err(failed)? else {
            return Ok(Some(PromotionResult::Freed));
        };
        // Watermarks were checked for the expected kind of memory.
        if found.is_huge() || found.swapped >= MAX_SWAPPED || found.file != expected_file {
            return Ok(Some(PromotionResult::NotCandidate));
        }
        // A small change is normal. A larger one means that the owner frees the region.
        if found.present < expected_present - expected_present / 16 {
            return Ok(Some(PromotionResult::Freed));
        }
        if let Some(file) = found.file {
            if self.sparse_files.contains_key(&file) || self.is_protected(file) {
                return Ok(Some(PromotionResult::NotCandidate));
            }
            let pages = PAGES_PER_REGION - self.count_mapped_file_pages(file, &found);
            if pages > MAX_FILE_HOLES {
                self.sparse_files.insert(file, Instant::now());
                return Ok(Some(PromotionResult::FileHoles { pages }));
            }
        }
        let (member, calls) = (self.members.get_mut(process)?, &mut self.calls);
        if let Some(pages) = shared_pages::shared_page_count_above_limit(calls, process, &found) {
            return Ok(Some(PromotionResult::Shared { pages }));
        }
        let eligible = self.sampler.is_region_still_eligible(member, region, found.file, calls);
        Ok((!eligible.map_err(failed)?).then_some(PromotionResult::NotCandidate))
    }

    /// Whether some managed process protects a file region, by its last listing. It counts as
    /// protected while a process could not be listed.
    fn is_protected(&mut self, file: FileRegion) -> bool {
        if !self.list_unlisted_processes() {
            return true;
        }
        let processes = self.members.processes_in_join_order().iter();
        let mut members = processes.filter_map(|process| self.members.get(*process));
        members.any(|it| it.eligible.protects_file_region(file) && it.handle.is_alive())
    }

    /// Lists the mappings of the processes that have no listing: those not sampled yet, and those
    /// that cannot have huge pages. Returns whether all have one now.
    fn list_unlisted_processes(&mut self) -> bool {
        let begun = Instant::now();
        let processes = self.members.processes_in_join_order().iter().copied();
        let is_listed = |process| self.members.get(process).is_none_or(|it| it.is_listed);
        let unlisted: Vec<ProcessId> = processes.filter(|process| !is_listed(*process)).collect();
        unlisted.into_iter().all(|process| {
            // One that has ended protects nothing.
            let Ok(member) = self.members.get_mut(process) else { return true };
            if begun.elapsed() >= LISTING_TIME {
                return false;
            }
            let managed = self.sampler.managed_memory(member);
            let listed = self.sampler.list_mappings(member, &mut self.calls);
            listed.map(|mappings| member.set_mappings(&mappings, managed)).is_ok()
        })
    }

    /// Base pages that a file region has for certain: those that its managed processes map. `found`
    /// is the region in one of them; the others are read only where that is too little.
    ///
    /// The file may have further pages that no managed process maps. To look for those, it would
    /// have to be opened, which its other users can see.
    fn count_mapped_file_pages(&mut self, file: FileRegion, found: &RegionSample) -> u16 {
        const ENOUGH: u16 = PAGES_PER_REGION - MAX_FILE_HOLES;
        let begun = Instant::now();
        let (mut mapped, mut most) = (PageBitmap::default(), found.present);
        for process in self.members.processes_in_join_order().to_vec() {
            if most >= ENOUGH || begun.elapsed() >= FILE_PAGES_TIME {
                break;
            }
            let Ok(member) = self.members.get_mut(process) else { continue };
            let Some(region) = member.eligible.region_of_file(file) else { continue };
            let (sampler, calls) = (&mut self.sampler, &mut self.calls);
            let mut maps_file = |calls: &mut CallHelperPool| {
                let same = sampler.is_region_still_eligible(member, region, Some(file), calls);
                same.is_ok_and(|same| same)
            };
            // Checked before and afterwards: the pages are those of this file.
            if !maps_file(calls) {
                continue;
            }
            let Ok(pages) = calls.find_mapped_pages_of_region(process, region) else { continue };
            if maps_file(calls) {
                let mapped_here = (0..PAGES_PER_REGION).filter(|page| pages.contains(*page));
                mapped_here.for_each(|page| mapped.insert(page));
                most = most.max(mapped.count());
            }
        }
        most
    }
}

impl Machine for LinuxMachine {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait_until(&mut self, deadline: Duration) -> LoopWakeReason {
        loop {
            let timeout = deadline.saturating_sub(self.now());
            let others = self.target.wait_descriptors();
            if others.is_empty() {
                return LoopWakeReason::Stop;
            }
            match (self.signals.wait(&others, timeout), &mut self.target) {
                (WaitResult::TimedOut, _) => return LoopWakeReason::Deadline,
                (WaitResult::Readable, ManagedTarget::Family(_)) => return LoopWakeReason::Stop,
                (WaitResult::Readable, ManagedTarget::Processes(_)) => {}
                (WaitResult::Readable, ManagedTarget::Machine { waker, selector }) => {
                    if selector.read_exec_reports() {
                        return LoopWakeReason::Joined;
                    }
                    if waker.clear() {
                        return LoopWakeReason::Called;
                    }
                }
                (WaitResult::Signal(libc::SIGHUP), ManagedTarget::Machine { .. }) => {
                    return LoopWakeReason::Reload;
                }
                // As in `perf stat`, the program decides what a signal means, and the manager waits
                // for its end. The terminal has already sent it SIGINT or SIGQUIT.
                (WaitResult::Signal(signal), ManagedTarget::Family(root)) => {
                    if let Ok(signal @ (Signal::SIGTERM | Signal::SIGHUP)) = signal.try_into() {
                        let pid = Pid::from_raw(process::saturating_pid_t(root.id.pid));
                        let _ = kill(pid, signal);
                    }
                }
                (WaitResult::Signal(_), _) => return LoopWakeReason::Stop,
            }
        }
    }

    fn admit_and_list_processes(&mut self, until: Duration) -> SliceProgress<Vec<ProcessId>> {
        let now = self.now();
        let deadline = self.began + until;
        self.enable_prefault_if_ready();
        let prefaulter = self.prefaulter.as_ref();
        let each = self.sampler.descriptors_per_process()
            + prefaulter.map_or(0, |_| Prefaulter::DESCRIPTORS);
        let updated =
            self.members.update(&mut self.target, &mut *self.sampler, each, now, deadline);
        let started = self.members.take_warm_started_processes();
        if let Some(recorder) = &mut self.profile_recorder {
            let sizes = || self.sizing.observed_page_sizes(now).unwrap_or_default().sizes;
            recorder.open_and_save_profiles(self.members.processes_in_join_order(), now, sizes);
        }
        if let Some(prefaulter) = &self.prefaulter {
            let recorder = self.profile_recorder.as_ref();
            prefaulter.update_followed_processes(&self.members, &started, recorder);
        }
        let members = &self.members;
        self.sizing.retain_processes(|process| members.get(process).is_some());
        self.sparse_files.retain(|_, seen| seen.elapsed() < SPARSE_FILE_PAUSE);
        updated.map(|()| self.members.processes_in_join_order().to_vec())
    }

    fn read_memory_state(&mut self) -> CallResult<MemoryState> {
        let now = self.now();
        let machine = self.read_memory_use(&MemoryScope::Machine)?;
        let groups = self.groups.read_limited_cgroups(now, self.members.processes_in_join_order());
        Ok(MemoryState {
            machine,
            groups,
            limits_unknown: self.groups.processes_with_unknown_limits().to_vec(),
            pressure_percent: system_memory::memory_pressure_percent(),
            fmfi: fragmentation::read_unusable_free_index(),
        })
    }

    fn read_memory_use(&mut self, scope: &MemoryScope) -> CallResult<MemoryUse> {
        match scope {
            MemoryScope::Machine => {
                let now = self.now();
                let usage = system_memory::machine_memory_use()
                    .map_err(|error| MachineError::Other(error.to_string()))?;
                if let ManagedTarget::Machine { selector, .. } = &mut self.target {
                    selector.record_used_memory(now, usage.used_bytes);
                }
                Ok(usage)
            }
            MemoryScope::Group(path) => {
                let usage = self.groups.memory_use_of_cgroup(Path::new(path)).map_err(|error| {
                    MachineError::Other(format!("can't read the memory of cgroup {path}: {error}"))
                })?;
                usage.ok_or_else(|| {
                    MachineError::Other(format!("cgroup {path} no longer has a memory limit"))
                })
            }
        }
    }

    fn take_timed_out_call_results(&mut self) -> TimedOutCallResults {
        let mut ended = Vec::new();
        for finished in self.calls.take_late_calls() {
            let process = finished.process;
            let Some(pending) = self.promotions_under_way.remove(&process) else {
                continue;
            };
            let PendingPromotion { region, from_reserve } = pending;
            let took = finished.answer.as_ref().map_or(finished.waited, |a| a.took);
            let outcome = match finished.answer.map(|answer| (answer.result, answer.cpu)) {
                Some((Ok(_), cpu)) => Ok(PromotionResult::Done { took, cpu, from_reserve }),
                Some((Err(errno), _)) => {
                    let call = finished.call;
                    Err(LinuxError::Call { call, errno }.into_machine_error(process))
                }
                None => Err(MachineError::Gone(process)),
            };
            if outcome.is_ok() {
                self.update_profile(process, |seen| seen.promoted += 1);
                if let Ok(member) = self.members.get_mut(process) {
                    member.huge_bytes.forget();
                }
            }
            ended.push(TimedOutPromotionResult { process, region, outcome, took });
        }
        let waiting = self.calls.unresponsive_processes();
        let waiting = waiting.filter(|found| found.waited >= NOT_ANSWERING_AFTER);
        TimedOutCallResults { ended, waiting: waiting.collect() }
    }

    fn page_properties(&self) -> MachinePageProperties {
        self.sizing.shape
    }

    fn promote(&mut self, promotion: &Promotion) -> CallResult<PromotionResult> {
        let Promotion { process, region, order, .. } = *promotion;
        // Neither MADV_COLLAPSE nor khugepaged makes pages of other sizes (up to 7.2).
        if order != PageOrder::HUGE {
            return Err(MachineError::PageSize(order));
        }
        if self.calls.has_unanswered_call(process) {
            return Err(MachineError::NotAnswering(process));
        }
        if let Some(outcome) = self.check_before_promotion(promotion)? {
            return Ok(outcome);
        }
        let member = self.members.get_mut(process)?;
        let mut from_reserve = false;
        let result = self.calls.collapse(&member.handle, region, || {
            let cpu = RESERVE.give_back_page();
            from_reserve |= cpu.is_some();
            cpu
        });
        match result {
            Err(LinuxError::NotAnswering(_)) => {
                if !self.calls.has_unanswered_call(process) {
                    // No call was made, because too many other processes do not answer.
                    return Err(MachineError::NotAnswering(process));
                }
                let pending = PendingPromotion { region, from_reserve };
                self.promotions_under_way.insert(process, pending);
                Ok(PromotionResult::Pending)
            }
            Ok(answer) => {
                member.huge_bytes.forget();
                self.update_profile(process, |seen| seen.promoted += 1);
                let given = test_costs::spend_promotion_cost(from_reserve);
                let (took, cpu) = given.map_or((answer.took, answer.cpu), |cost| (cost, cost));
                Ok(PromotionResult::Done { took, cpu, from_reserve })
            }
            Err(error) => {
                let error = error.into_machine_error(process);
                // The kernel returns the errors of a memory shortage for a hole as well.
                if error.is_huge_page_shortage()
                    && matches!(self.sampler.read_region(member, region, &mut self.calls), Ok(None))
                {
                    return Ok(PromotionResult::Freed);
                }
                Err(error)
            }
        }
    }

    fn count_zero_pages_in_huge_page(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> CallResult<ZeroScanResult> {
        let member = self.members.get_mut(process)?;
        let begun = Instant::now();
        let found = self.sampler.count_zero_pages(member, region, enough, &mut self.calls);
        let zero_pages = match found.map_err(|error| error.into_machine_error(process))? {
            Some(zero_pages) => zero_pages,
            None => {
                let part = self.find_partly_mapped(process, region)?;
                part.map_or(0, |(_, part)| part.freed)
            }
        };
        Ok(ZeroScanResult { zero_pages, took: begun.elapsed() })
    }

    fn recover_bloat(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        kind: BloatKind,
    ) -> CallResult<RecoveryResult> {
        if kind == BloatKind::FreedPart {
            return self.free_unmapped_part(process, region);
        }
        let member = self.members.get_mut(process)?;
        let failed = |error: LinuxError| error.into_machine_error(process);
        let refused = |call, errno| MachineError::Refused { call, process, errno };
        let begun = Instant::now();
        if !member.lost_huge_pages.is_known_huge(region) {
            let found =
                self.sampler.read_region(member, region, &mut self.calls).map_err(failed)?;
            if !found.is_some_and(|found| found.is_huge() && found.present > 0) {
                // Something else split it, or its memory is gone: no memory would come from us.
                return Err(refused("splitting a huge page that is gone", Errno::EAGAIN));
            }
        }
        let mut longest_call = Duration::ZERO;
        let mut tries = 0;
        let left = loop {
            let eligible =
                self.sampler.is_region_still_eligible(member, region, None, &mut self.calls);
            if !eligible.map_err(failed)? {
                let call = "splitting a huge page that is no longer eligible";
                return Err(refused(call, Errno::EPERM));
            }
            let calls = &mut self.calls;
            let call =
                self.recovery.split_and_give_back_zero_pages(&member.handle, region, calls)?;
            longest_call = longest_call.max(call);
            let left = self.sampler.read_region(member, region, calls).map_err(failed)?;
            if !left.is_some_and(|left| self.recovery.split_was_skipped(&left)) {
                break left;
            }
            tries += 1;
            if tries == SPLIT_TRIES || begun.elapsed() >= SERIES_TIME {
                return Err(refused("splitting a huge page", Errno::EBUSY));
            }
        };
        member.huge_bytes.forget();
        member.lost_huge_pages.record_split(region);
        let took = begun.elapsed();
        self.update_profile(process, |seen| seen.split += 1);
        let left_present = left.map_or(0, |r| r.present);
        Ok(RecoveryResult {
            bytes: u64::from(PAGES_PER_REGION - left_present.min(PAGES_PER_REGION))
                * BASE_PAGE_BYTES,
            left_present,
            took,
            longest_call,
        })
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessFootprint> {
        // Before the count: what changes meanwhile is counted at the next look.
        let rss_bytes =
            process::rss_bytes(process.pid).map_err(|e| e.into_machine_error(process))?;
        let known = self.members.get_mut(process)?.huge_bytes.at_size(rss_bytes);
        let counted = match known {
            Some(bytes) => SliceProgress::Done(bytes),
            None => self.run_sampler_slice(process, until, |sampler, slice| {
                let counted = sampler.count_huge_bytes(slice)?;
                if let SliceProgress::Done(bytes) = counted {
                    slice.member.huge_bytes.record(bytes);
                }
                Ok(counted)
            })?,
        };
        let huge_bytes = match counted {
            SliceProgress::Done(bytes) => bytes,
            SliceProgress::Unfinished(wait) => return Ok(SliceProgress::Unfinished(wait)),
        };
        if let Some(looks) = &mut self.sizing.mapped_sizes {
            looks.take_results_and_request_if_due(process, self.began.elapsed());
        }
        self.update_profile(process, |seen| {
            seen.resident_bytes = seen.resident_bytes.max(rss_bytes);
        });
        let lost_huge_pages = self.members.get_mut(process)?.lost_huge_pages.not_searched();
        Ok(SliceProgress::Done(ProcessFootprint { rss_bytes, huge_bytes, lost_huge_pages }))
    }

    fn management_costs(&self) -> ManagementCosts {
        // The filler's zeroing is work that the programs would have done.
        let starting = self.starting_prefaulter.as_ref();
        let starting = starting.map_or(self.failed_prefaulter_cpu, StartingPrefaulter::cpu_time);
        let filler = self.prefault_statistics().unwrap_or_default();
        let own =
            process::managing_cpu_time() + self.calls.statistics.helper_cpu + filler.helper_cpu;
        ManagementCosts {
            cpu: own.saturating_sub(filler.cpu + starting),
            longest_call: self.calls.statistics.longest.max(filler.longest_call),
        }
    }
}

impl Sampling for LinuxMachine {
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: SampleKinds,
        until: Duration,
    ) -> ResumableCallResult<()> {
        self.run_sampler_slice(process, until, |sampler, slice| {
            // Coverage is for promotions alone, and costs a clear of the whole process.
            match slice.member.terms.promotes || !needs.includes_coverage() {
                true => sampler.start_window(slice, needs),
                false => Ok(SliceProgress::Done(())),
            }
        })
    }

    fn probe(&mut self, process: ProcessId, until: Duration) -> CallResult<Option<Duration>> {
        self.run_sampler_slice(process, until, |sampler, slice| {
            sampler.continue_walk_probing(slice)
        })
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessSample> {
        let sampled =
            self.run_sampler_slice(process, until, |sampler, slice| sampler.read_sample(slice))?;
        let mut sample = match sampled {
            SliceProgress::Done(sample) => sample,
            SliceProgress::Unfinished(wait) => return Ok(SliceProgress::Unfinished(wait)),
        };
        let member = self.members.get_mut(process)?;
        sample.terms = member.terms;
        if !member.terms.promotes {
            // Recovery needs its huge pages, and what became of those it has split. Nothing else
            // was probed.
            sample.regions.retain(|region| region.is_huge() || region.zero_mapped > 0);
            sample.overhead = None;
        }
        self.mark_partly_mapped(process, &mut sample.regions, until)?;
        let member = self.members.get_mut(process)?;
        self.sizing.add_page_size_choice_inputs(&mut sample, &member.eligible);
        if let Some(recorder) = &mut self.profile_recorder {
            recorder.record_sample(&sample);
        }
        self.peak_excluded_bytes = self.peak_excluded_bytes.max(self.members.nohugepage_bytes());
        Ok(SliceProgress::Done(sample))
    }

    fn list_huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<Vec<RegionSample>> {
        let list = |sampler: &mut dyn Sampler, slice: &mut ProcessWorkSlice| {
            sampler.list_huge_pages(slice)
        };
        let listed = self.run_sampler_slice(process, until, list)?;
        let SliceProgress::Done(mut regions) = listed else { return Ok(listed) };
        self.mark_partly_mapped(process, &mut regions, until)?;
        Ok(SliceProgress::Done(regions))
    }

    fn cpu_time(&self, process: ProcessId) -> Option<Duration> {
        // Processes that the target names are few, and all that they do is shown.
        self.target.selector()?;
        process::cpu_time(process.pid).ok()
    }

    fn abandon_all_windows(&mut self) {
        self.sampler.abandon_all_windows();
    }

    fn first_touch_cost(&self) -> Duration {
        self.first_touch_cost
    }
}

impl HugePageReserveControl for LinuxMachine {
    fn reserve_state(&self) -> ReserveState {
        let state = RESERVE.state();
        let filled = u32_from_f64(state.filled as f64);
        let fill_cpu =
            test_costs::configured_fill_cost().map_or(state.fill_cpu, |cost| cost * filled);
        ReserveState { fill_cpu, ..state }
    }

    fn set_reserve_target(&mut self, target: ReserveTarget, most: u32) -> CallResult<()> {
        let pages = match self.groups.own_remaining_memory_bytes() {
            // The reserve is charged to the manager's own cgroup: at most a quarter of what would
            // be left there without it.
            Some(room_bytes) if target.pages > 0 => {
                let room = u32_from_f64((room_bytes / HUGE_PAGE_BYTES) as f64);
                target.pages.min(RESERVE.state().held.saturating_add(room) / 4)
            }
            _ => target.pages,
        };
        let set = RESERVE.set_target(ReserveTarget { pages, ..target }, most);
        set.map_err(|error| MachineError::Other(error.to_string()))
    }
}

impl Prefault for LinuxMachine {
    fn take_prefaulted_bytes(&mut self, process: ProcessId) -> u64 {
        let prefaulter = self.prefaulter.as_ref();
        prefaulter.map_or(0, |prefaulter| prefaulter.take_prefaulted_bytes(process))
    }

    fn process_settings(&self, process: ProcessId) -> Option<ProcessSettings> {
        self.prefaulter.as_ref()?;
        self.members.get(process).map(|member| member.terms)
    }

    fn prefault_wait(&self) -> Option<BudgetWait> {
        let (reason, until) = self.prefault_statistics()?.delay?;
        let left = until.saturating_duration_since(Instant::now());
        let budget = match reason {
            PrefaultDelayReason::NoSpareCore => ExhaustedBudget::PrefaultCores,
            PrefaultDelayReason::LongCall => ExhaustedBudget::PrefaultPause,
            PrefaultDelayReason::Rate => ExhaustedBudget::PrefaultRate,
        };
        let until = Some(self.now() + left);
        (!left.is_zero()).then_some(BudgetWait { budget, until })
    }

    fn set_prefault_limit(&mut self, process: ProcessId, room_bytes: u64) {
        if let Some(prefaulter) = &self.prefaulter {
            let cgroup = self.groups.last_cgroup_of_process(process);
            // One that has just joined may have a limit that was not read yet.
            let is_known = cgroup.is_some() || !self.groups.are_there();
            let room_bytes = if is_known { room_bytes } else { 0 };
            prefaulter.set_prefault_room_in_cgroup(process, room_bytes, cgroup);
        }
    }
}
