//! Recovers memory from bloated huge pages while memory is short.

use super::sliced_process_queue::SlicedProcessQueue;
use super::{BATCH, Manager};
use crate::budget_wait::{BudgetWait, ExhaustedBudget, WaitingWork};
use crate::machine::{CallResult, Machine, MachineError, RecoveryResult, ZeroScanResult};
use hawkeye_policy::{
    BatchDecision, BloatKind, BloatThreshold, CallBatchBackoff, Event, Observation, Policy,
    ProcessId, ProcessSample, Reason, RecoveryPlanner, RecoveryTarget, RegionAddr,
    UrgentWorkPayers,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// Pause before huge pages are listed again because all known ones were searched.
const RELIST: Duration = Duration::from_millis(10);
/// The same while a cgroup is in danger. It can grow by 8 MB in that time.
const RELIST_IN_DANGER: Duration = Duration::from_millis(2);
/// Pause after recovery itself did not work. Each try costs a search.
const UNUSABLE: Duration = Duration::from_secs(1);
/// Pause of recovery after no helper process could be started.
const HELPER_AGAIN: Duration = Duration::from_millis(100);
/// How long a process is taken to stay in its cgroup.
const GROUPS_AGE: Duration = Duration::from_secs(60);
/// Share of the CPU budget that work in advance leaves to other work: searches, frees of what was
/// given back, and listings of processes that lost huge pages.
pub(super) const KEPT_FOR_OTHERS: f64 = 0.5;
/// Pause after such a listing, in multiples of its CPU time: half a per cent of a core.
const LOST_PAUSE: u32 = 200;
/// Pause after it did not work for one process.
const PROCESS_UNUSABLE: Duration = Duration::from_secs(60);

/// Huge pages to search, and the pace of the search.
pub(super) struct RecoveryProgress {
    pub(super) planner: RecoveryPlanner,
    pub(super) backoff: CallBatchBackoff,
    pub(super) unusable_until: Duration,
    /// Processes from which nothing can be recovered, until a time.
    left_alone: HashMap<ProcessId, Duration>,
    pub(super) listing: Option<SlicedProcessQueue>,
    /// When huge pages may next be searched in advance.
    pub(super) track_at: Duration,
    /// Processes that lost huge pages since they were listed, perhaps in part.
    pub(super) lost_huge_pages: BTreeSet<ProcessId>,
    /// When such processes may next be listed, and whether they are being listed.
    list_lost_at: Duration,
    lists_lost: bool,
    /// When parts that processes gave back may next be freed.
    pub(super) free_parts_at: Duration,
    /// When the cgroups of processes may next be read again.
    groups_due: Duration,
}

/// A huge page that recovery will split, and why.
pub(super) struct PlannedSplit {
    pub(super) region: RegionAddr,
    pub(super) reason: Reason,
    /// Duration of the search for its zero pages.
    pub(super) searched_for: Duration,
}

impl RecoveryProgress {
    pub(super) fn new(threshold: BloatThreshold, policy: &dyn Policy) -> Self {
        let (order, kinds) = (policy.properties().recovery_order, policy.sample_kinds());
        Self {
            planner: RecoveryPlanner::new(threshold, order, kinds),
            backoff: CallBatchBackoff::default(),
            unusable_until: Duration::ZERO,
            left_alone: HashMap::new(),
            listing: None,
            track_at: Duration::ZERO,
            lost_huge_pages: BTreeSet::new(),
            list_lost_at: Duration::ZERO,
            lists_lost: false,
            free_parts_at: Duration::ZERO,
            groups_due: GROUPS_AGE,
        }
    }

    fn leave_process_alone(&mut self, now: Duration, process: ProcessId) {
        self.left_alone.retain(|_, until| now < *until);
        self.left_alone.insert(process, now + PROCESS_UNUSABLE);
    }

    /// Lists these processes before others.
    fn list_first(&mut self, due: Vec<ProcessId>, now: Duration) {
        match &mut self.listing {
            Some(listing) => {
                listing.put_first(due);
                listing.again_at = now;
            }
            None => self.listing = Some(SlicedProcessQueue::new(due, now)),
        }
        self.lists_lost = false;
    }

    pub(super) fn observe(&mut self, observation: &Observation) {
        self.planner.observe(observation);
        for sample in &observation.processes {
            let percent = sample.overhead.map(|overhead| overhead.percent);
            self.planner.set_process_overhead(sample.process, percent);
        }
    }
}

fn is_left_alone(
    left_alone: &HashMap<ProcessId, Duration>,
    process: ProcessId,
    now: Duration,
) -> bool {
    left_alone.get(&process).is_some_and(|until| now < *until)
}

impl<M: Machine> Manager<M> {
    /// Scans and splits until the batch's time is up or enough is recovered. Returns when to go on,
    /// if that is before the next look.
    pub(super) fn recover_bloat_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        // A window under way waits only for programs in danger.
        let in_window = self.sampling.in_window();
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.limits.record_total_cpu_time(now, self.machine.management_costs().cpu);
            if !self.memory.guard.is_recovering() {
                self.limits.waits.end_current_wait(now, WaitingWork::Recovery);
                break None;
            }
            // A program might be killed in the meantime, so its danger overrides both the pause and
            // the budget.
            let wait = self.recovery_wait(now);
            let only_urgent = in_window || wait.is_some();
            let waits = only_urgent && !self.memory.guard.will_be_full_within_seconds();
            let wait = wait.filter(|_| waits);
            self.limits.waits.set_wait(now, WaitingWork::Recovery, wait);
            if waits {
                break wait.filter(|_| !in_window).and_then(|wait| wait.until);
            }
            if now < self.recovery.unusable_until {
                break Some(self.recovery.unusable_until);
            }
            if now >= begun + BATCH {
                break Some(now);
            }
            let Self { recovery: RecoveryProgress { planner, left_alone, .. }, memory, .. } = self;
            let short = |process| {
                memory.guard.is_recovering_from(process)
                    && (!only_urgent || memory.guard.is_urgent_for_process(process))
                    && !is_left_alone(left_alone, process, now)
            };
            let Some(target) = planner.take_next_huge_page(now, short) else {
                // Processes with huge pages still to be listed are searched after the listing.
                let mut pause = RELIST;
                if self.recovery.listing.is_none() {
                    self.memory.guard.on_search_exhausted(now, only_urgent);
                    if self.memory.guard.is_a_group_in_danger() {
                        pause = RELIST_IN_DANGER;
                    }
                }
                break self.memory.guard.is_recovering().then_some(now + pause);
            };
            called = true;
            if self.search_and_split_and_charge(target, now) == BatchDecision::StopBatch {
                break Some(now);
            }
        };
        let now = self.machine.now();
        if called {
            self.recovery.backoff.end_batch(now);
        }
        if self.memory.guard.will_be_full_within_seconds() {
            return more;
        }
        if called {
            let wait = self.recovery_wait(now).filter(|_| more.is_some());
            self.limits.waits.set_wait(now, WaitingWork::Recovery, wait);
        }
        more.map(|at| at.max(self.recovery.backoff.pause_ends_at()))
    }

    /// What recovery without danger waits for. Listing huge pages waits for the same CPU time.
    fn recovery_wait(&self, now: Duration) -> Option<BudgetWait> {
        let cpu_at = self.limits.cpu.ready_at(now);
        let pause_ends_at = self.recovery.backoff.pause_ends_at();
        let budget = match cpu_at >= pause_ends_at {
            true => {
                let percent = self.limits.cpu.limit_percent_of_core();
                ExhaustedBudget::RecoveryCpu { percent }
            }
            false => ExhaustedBudget::RecoveryPause,
        };
        let until = cpu_at.max(pause_ends_at);
        (until > now).then_some(BudgetWait { budget, until: Some(until) })
    }

    fn search_and_split_and_charge(
        &mut self,
        target: RecoveryTarget,
        now: Duration,
    ) -> BatchDecision {
        // The split may end the danger.
        let Some(payers) = self.memory.guard.payers_of_urgent_work(target.process) else {
            return self.search_and_split(target, now);
        };
        let before = self.machine.management_costs().cpu;
        let decision = self.search_and_split(target, now);
        let cpu = self.machine.management_costs().cpu.saturating_sub(before);
        self.charge_urgent_work(&payers, cpu);
        decision
    }

    fn charge_urgent_work(&mut self, payers: &UrgentWorkPayers, cpu: Duration) {
        self.memory.guard.record_urgent_work(self.machine.now(), payers, cpu);
        self.limits.urgent += cpu;
    }

    /// Searches one huge page and splits it if that pays; returns whether the batch may go on.
    /// While memory is in danger, those that come next are split with it if they are of the same
    /// process and the machine can do that.
    fn search_and_split(&mut self, target: RecoveryTarget, now: Duration) -> BatchDecision {
        let RecoveryTarget { process, kind, .. } = target;
        let first = match self.search_huge_page(target, now) {
            Ok(split) => split,
            Err(decision) => return decision,
        };
        let mut splits = vec![first];
        let mut decision = BatchDecision::Continue;
        let in_danger = self.memory.guard.is_urgent_for_process(process);
        let together = match in_danger && kind == BloatKind::ZeroPages {
            true => self.machine.page_properties().splits_per_call,
            false => 1,
        };
        for _ in 1..together {
            let Self { recovery: RecoveryProgress { planner, left_alone, .. }, memory, .. } = self;
            let in_danger =
                |it| memory.guard.is_urgent_for_process(it) && !is_left_alone(left_alone, it, now);
            let Some(next) = planner.take_next_huge_page(now, in_danger) else { break };
            if (next.process, next.kind) != (process, kind) {
                planner.put_back_huge_page(now, next.process, next.region);
                break;
            }
            match self.search_huge_page(next, now) {
                Ok(split) => splits.push(split),
                Err(BatchDecision::Continue) => {}
                Err(BatchDecision::StopBatch) => {
                    decision = BatchDecision::StopBatch;
                    break;
                }
            }
        }
        decision.and(self.split_huge_pages(process, kind, splits))
    }

    /// Searches one huge page. The error says that it is not split, and whether the batch may go
    /// on.
    fn search_huge_page(
        &mut self,
        target: RecoveryTarget,
        now: Duration,
    ) -> Result<PlannedSplit, BatchDecision> {
        let RecoveryTarget { process, region, known_zero_pages, .. } = target;
        let Some(shortage) = self.memory.guard.shortage_for_process(process) else {
            return Err(BatchDecision::Continue);
        };
        let urgent = self.memory.guard.is_urgent_for_process(process);
        let (zero_pages, searched_for) = match known_zero_pages {
            Some(zero_pages) => (zero_pages, Duration::ZERO),
            None => {
                let enough = self.recovery.planner.pages_to_count(urgent);
                match self.machine.count_zero_pages_in_huge_page(process, region, enough) {
                    Ok(ZeroScanResult { zero_pages, took }) => {
                        self.dispatch_event(now, Event::Searched { process, region, zero_pages });
                        (zero_pages, took)
                    }
                    Err(error) => {
                        return Err(self.record_page_error(now, process, region, &error));
                    }
                }
            }
        };
        let Self { recovery: RecoveryProgress { planner, left_alone, .. }, memory, .. } = self;
        // The page waits for no other that could not be taken next.
        let short = |process| {
            memory.guard.is_recovering_from(process) && !is_left_alone(left_alone, process, now)
        };
        match planner.split_reason(target, zero_pages, shortage, urgent, short) {
            Some(reason) => Ok(PlannedSplit { region, reason, searched_for }),
            None => Err(self.recovery.backoff.record_call_duration(searched_for)),
        }
    }

    /// Splits huge pages of one process; returns whether the batch may go on.
    pub(super) fn split_huge_pages(
        &mut self,
        process: ProcessId,
        kind: BloatKind,
        splits: Vec<PlannedSplit>,
    ) -> BatchDecision {
        let regions: Vec<RegionAddr> = splits.iter().map(|split| split.region).collect();
        let results = self.machine.recover_bloat(process, &regions, kind);
        // Programs have grown during the call.
        let now = self.machine.now();
        debug_assert_eq!(results.len(), regions.len());
        let mut decision = BatchDecision::Continue;
        for (split, result) in splits.into_iter().zip(results) {
            decision = decision.and(self.record_split(process, split, result, now));
        }
        decision
    }

    fn record_split(
        &mut self,
        process: ProcessId,
        PlannedSplit { region, reason, searched_for }: PlannedSplit,
        result: CallResult<RecoveryResult>,
        now: Duration,
    ) -> BatchDecision {
        match result {
            Ok(RecoveryResult { bytes, took, longest_call, .. }) => {
                let event = Event::Recovered { process, region, reason, bytes, took, searched_for };
                self.dispatch_event(now, event);
                self.recovery.backoff.record_call_duration(longest_call)
            }
            Err(error) => {
                if matches!(error, MachineError::Refused { .. }) {
                    self.dispatch_event(now, Event::NotSplit { process, region });
                }
                self.record_page_error(now, process, region, &error)
            }
        }
    }

    /// Records an error of a huge page that the planner gave out. One that could not even be tried
    /// goes back to it.
    fn record_page_error(
        &mut self,
        now: Duration,
        process: ProcessId,
        region: RegionAddr,
        error: &MachineError,
    ) -> BatchDecision {
        if matches!(error, MachineError::NoHelper(_)) {
            self.recovery.planner.put_back_huge_page(now, process, region);
        }
        self.record_recovery_error(now, error)
    }

    pub(super) fn record_recovery_error(
        &mut self,
        now: Duration,
        error: &MachineError,
    ) -> BatchDecision {
        self.record_error(now, error);
        match error {
            // Recovery itself does not work, so trying it on every page of the machine is
            // pointless.
            MachineError::PageSize(_) | MachineError::Other(_) => {
                self.recovery.unusable_until = now + UNUSABLE;
                // Between the watermarks promotion goes on.
                self.memory.guard.stop_recovery();
                BatchDecision::StopBatch
            }
            MachineError::NoHelper(_) => {
                self.recovery.unusable_until = now + HELPER_AGAIN;
                BatchDecision::StopBatch
            }
            MachineError::NoSwap(process) => {
                self.recovery.leave_process_alone(now, *process);
                BatchDecision::Continue
            }
            MachineError::Gone(_)
            | MachineError::NotAnswering(_)
            | MachineError::Refused { .. } => BatchDecision::Continue,
        }
    }

    /// Recovery is fair between cgroups.
    pub(super) fn set_missing_groups(&mut self) {
        let Self { recovery, machine, .. } = self;
        let now = machine.now();
        if now >= recovery.groups_due {
            recovery.groups_due = now + GROUPS_AGE;
            recovery.planner.forget_groups();
        }
        recovery.planner.set_missing_groups(|process| machine.describe(process).cgroup);
    }

    /// Recovery needs a listing even where the policy needs no samples, or its next window is far.
    /// So does a process that lost huge pages: it may have given parts of them back.
    pub(super) fn list_huge_pages_for_recovery(&mut self, now: Duration) {
        if self.settings.measure_only || !self.may_recover_now() || self.is_out_of_cpu_time(now) {
            return;
        }
        let (guard, current) = (&mut self.memory.guard, &self.processes.current);
        let only_urgent = self.sampling.in_window() || self.limits.cpu.is_exhausted(now);
        if self.recovery.listing.as_ref().is_none_or(|_| self.recovery.lists_lost) {
            let due = guard.take_processes_due_for_listing(now, current, only_urgent);
            if !due.is_empty() {
                self.recovery.list_first(due, now);
            }
        }
        if self.recovery.listing.is_none() {
            let affordable_at = self.limits.cpu.time_when_above_reserve(now, KEPT_FOR_OTHERS);
            if only_urgent || now < affordable_at.max(self.recovery.list_lost_at) {
                return;
            }
            let lost = std::mem::take(&mut self.recovery.lost_huge_pages);
            let lost: Vec<_> = lost.into_iter().filter(|it| current.contains(it)).collect();
            if lost.is_empty() {
                return;
            }
            self.recovery.listing = Some(SlicedProcessQueue::new(lost, now));
            self.recovery.lists_lost = true;
        }
        self.continue_huge_page_listing(now);
    }

    fn continue_huge_page_listing(&mut self, now: Duration) {
        let due = |listing: &mut SlicedProcessQueue| listing.again_at <= now;
        let Some(mut listing) = self.recovery.listing.take_if(due) else { return };
        let until = self.slice_end();
        let mut observation = Observation { at: now, ..Observation::default() };
        let mut read = HashSet::new();
        let mut costs = Vec::new();
        let mut list = |machine: &mut M, process| {
            let before = machine.management_costs().cpu;
            let listed = machine.list_huge_pages(process, until);
            costs.push((process, machine.management_costs().cpu.saturating_sub(before)));
            listed
        };
        while let Some((process, listed)) =
            listing.run_next(&mut self.machine, now, until, &mut list)
        {
            match listed {
                Ok(regions) => {
                    read.insert(process);
                    observation.processes.push(ProcessSample::from_present_pages(process, regions));
                }
                Err(error) => {
                    if matches!(error, MachineError::Gone(_)) {
                        read.insert(process);
                    }
                    self.record_error(now, &error);
                }
            }
        }
        let cpu = costs.iter().map(|(_, cpu)| *cpu).sum::<Duration>();
        self.recovery.list_lost_at = self.recovery.list_lost_at.max(now) + cpu * LOST_PAUSE;
        for (process, cpu) in costs {
            if let Some(payers) = self.memory.guard.payers_of_urgent_work(process) {
                self.charge_urgent_work(&payers, cpu);
            }
        }
        observation.unread.extend(self.processes.current.iter().filter(|p| !read.contains(p)));
        self.recovery.planner.observe_listing(&observation);
        self.set_missing_groups();
        if listing.is_done() {
            self.recovery.lists_lost = false;
            self.memory.guard.on_listing_done(now);
        } else {
            self.recovery.listing = Some(listing);
        }
    }
}
