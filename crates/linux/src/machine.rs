//! The running kernel as a machine to manage.
//!
//! This file implements [`Machine`]. Other traits of the manager are implemented in `sampling`,
//! `prefault_control`, `profiles_and_page_sizes` and `explanation`. Steps of its calls are in
//! `promotion_checks` (before a promotion), `splits` (recovery) and `freed_parts` (the search for
//! parts of huge pages that processes gave back).
//!
//! ```text
//!  Machine::admit_and_list_processes --> processes: ManagedProcesses
//!  Sampling                          --> sample: Sampler
//!  Machine::promote                  --> promotion_checks --> promote: CallHelperPool, reserve
//!  Machine::recover_bloat            --> splits           --> promote, memory::recovery_method
//!  Machine::read_memory_state        --> memory: system_memory, CgroupLimits
//! ```

mod explanation;
mod freed_parts;
mod prefault_control;
mod profiles_and_page_sizes;
mod promotion_checks;
mod sampling;
mod splits;

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::CgroupLimits;
use crate::memory::recovery_method::RecoveryMethod;
use crate::memory::{fragmentation, system_memory};
use crate::page_sizes::page_size_control::PageSizeControl;
use crate::prefault::Prefaulter;
use crate::prefault::profile_store::{ProfileRecorder, ProgramProfile};
use crate::probe::ChosenKernelMethods;
use crate::processes::descriptor_limit::raise_descriptor_limit;
use crate::processes::managed_processes::{ManagedProcessView, ManagedProcesses, ManagedTarget};
use crate::processes::process;
use crate::processes::profile_requests::{PodAnnotationStatus, ProfileRequestSources};
use crate::promote::reserve::RESERVE;
use crate::promote::target_call::CallHelperPool;
use crate::sample::sampler::{ProcessWorkSlice, Sampler};
use crate::stop_signals::{StopSignals, WaitResult};
use crate::test_costs;
use hawkeye_manager::machine::{CallResult, ResumableCallResult};
use hawkeye_manager::{
    HugePageReserveControl, LoopWakeReason, Machine, MachineError, ManagementCosts,
    ProcessFootprint, PromotionResult, RecoveryResult, SliceProgress, TimedOutCallResults,
    TimedOutPromotionResult, ZeroScanResult,
};
use hawkeye_policy::saturating_cast::u32_from_f64;
use hawkeye_policy::{
    BloatKind, FileRegion, HUGE_PAGE_BYTES, MachinePageProperties, MemoryScope, MemoryState,
    MemoryUse, PageOrder, ProcessId, ProcessSelectionSettings, Promotion, RegionAddr, ReserveState,
    ReserveTarget, Rules,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prefault_control::PrefaultControl;
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
    /// Duration of the call of the last split, for each huge page.
    last_split: Option<Duration>,
    first_touch_cost: Duration,
    members: ManagedProcesses,
    calls: CallHelperPool,
    /// Promotions that have not been answered yet.
    promotions_under_way: HashMap<ProcessId, PendingPromotion>,
    /// File regions with too many holes, and when that was seen.
    sparse_files: HashMap<FileRegion, Instant>,
    peak_excluded_bytes: u64,
    groups: CgroupLimits,
    prefault: PrefaultControl,
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

/// A process that has not answered a call for this long is reported.
const NOT_ANSWERING_AFTER: Duration = Duration::from_secs(1);

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
            last_split: None,
            first_touch_cost: backend.first_touch_cost,
            members: ManagedProcesses::new(descriptors),
            calls,
            promotions_under_way: HashMap::new(),
            sparse_files: HashMap::new(),
            peak_excluded_bytes: 0,
            groups: CgroupLimits::of_this_machine(),
            prefault: PrefaultControl::default(),
            sizing: PageSizeControl::new(),
            profile_recorder: None,
        }
    }

    /// Promotes shared memory of the processes that the target names, too. For a whole machine, the
    /// rules decide. No effect where it cannot be promoted.
    pub fn promote_shared_memory(&mut self) {
        self.members.set_shared_memory_of_named();
    }

    /// Whether nothing of some process was promoted because of `PR_SET_THP_DISABLE`.
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
        if let Some(selector) = self.target.selector_mut() {
            selector.set_rules(rules, selection);
            self.members.reapply_rules(selector);
        }
    }

    /// Changes where workloads may ask for a profile. At first they may not ask anywhere.
    pub fn set_profile_request_sources(&mut self, sources: ProfileRequestSources) {
        if let Some(selector) = self.target.selector_mut() {
            selector.set_profile_request_sources(sources);
        }
    }

    /// How reading pods' annotations goes; `None`: they are not read.
    pub fn pod_annotation_status(&self) -> Option<PodAnnotationStatus> {
        self.target.selector()?.pod_annotation_status()
    }

    /// Memory in use on the machine. Where it has grown much, new processes may be large, so a scan
    /// for them is due.
    fn read_machine_memory_and_schedule_scan(&mut self) -> CallResult<MemoryUse> {
        let now = self.now();
        let usage = system_memory::machine_memory_use()
            .map_err(|error| MachineError::Other(error.to_string()))?;
        if let Some(selector) = self.target.selector_mut() {
            selector.record_used_memory(now, usage.used_bytes);
        }
        Ok(usage)
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
        self.prefault.enable_if_ready();
        let prefaulter = self.prefault.running.as_ref();
        let each = self.sampler.descriptors_per_process()
            + prefaulter.map_or(0, |_| Prefaulter::DESCRIPTORS);
        let updated =
            self.members.update(&mut self.target, &mut *self.sampler, each, now, deadline);
        let started = self.members.take_warm_started_processes();
        if let Some(recorder) = &mut self.profile_recorder {
            let sizes = || self.sizing.observed_page_sizes(now).unwrap_or_default().sizes;
            recorder.open_and_save_profiles(self.members.processes_in_join_order(), now, sizes);
        }
        if let Some(prefaulter) = &self.prefault.running {
            let recorder = self.profile_recorder.as_ref();
            prefaulter.update_followed_processes(&self.members, &started, recorder);
        }
        let members = &self.members;
        self.sizing.retain_processes(|process| members.get(process).is_some());
        self.forget_old_sparse_files();
        updated.map(|()| self.members.processes_in_join_order().to_vec())
    }

    fn read_memory_state(&mut self) -> CallResult<MemoryState> {
        let now = self.now();
        let machine = self.read_machine_memory_and_schedule_scan()?;
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
            MemoryScope::Machine => self.read_machine_memory_and_schedule_scan(),
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
        let splits_per_call = self.recovery.splits_per_call();
        MachinePageProperties { splits_per_call, ..self.sizing.shape }
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
        regions: &[RegionAddr],
        kind: BloatKind,
    ) -> Vec<CallResult<RecoveryResult>> {
        match kind {
            BloatKind::ZeroPages => self.free_zero_pages(process, regions),
            BloatKind::FreedPart => {
                let regions = regions.iter();
                regions.map(|region| self.free_unmapped_part(process, *region)).collect()
            }
        }
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
        let mut not_searched = self.members.get_mut(process)?.lost_huge_pages.not_searched();
        let has_lost_huge_pages = not_searched.next().is_some();
        Ok(SliceProgress::Done(ProcessFootprint { rss_bytes, huge_bytes, has_lost_huge_pages }))
    }

    fn management_costs(&self) -> ManagementCosts {
        // The filler's zeroing is work that the programs would have done.
        let filler = self.prefault_statistics().unwrap_or_default();
        let own =
            process::managing_cpu_time() + self.calls.statistics.helper_cpu + filler.helper_cpu;
        ManagementCosts {
            cpu: own.saturating_sub(filler.cpu + self.prefault.start_cpu_time()),
            longest_call: self.calls.statistics.longest.max(filler.longest_call),
        }
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
