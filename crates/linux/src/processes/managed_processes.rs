//! Keeps the set of managed processes: which ones join, stay and leave.
//!
//! `slot_allocation.rs` allots slots where more processes are large than can be managed.

mod named_processes;
mod slot_allocation;

use crate::error::{LinuxError, Result};
use crate::processes::descriptor_limit::process_capacity_of_descriptors;
use crate::processes::join_pauses::JoinPauses;
use crate::processes::proc_scanner::ProgramIdentity;
use crate::processes::process::{self, ProcessHandle};
use crate::processes::process_attributes::read_process_attributes;
use crate::processes::process_selector::ProcessSelector;
use crate::processes::user_names::UserNames;
use crate::sample::sampler::{SampledProcess, Sampler};
use crate::stop_signals::Waker;
use hawkeye_manager::{MachineError, SliceProgress};
use hawkeye_policy::management_slot_ranking::max_slots_per_user;
use hawkeye_policy::{
    ProcessAttributes, ProcessId, ProcessSelectionSettings, ProcessSettings, Rules,
};
use named_processes::{ListingSteps, NamedProcesses};
use serde::Serialize;
use slot_allocation::SlotAllocation;
use std::collections::BTreeMap;
use std::iter;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The processes to manage.
pub enum ManagedTarget {
    /// These processes, until all have ended.
    Processes(Vec<ProcessHandle>),
    /// One process and its descendants, until it ends. It gets the signals that end management.
    Family(ProcessHandle),
    /// All processes that are large enough and that the rules include, until a signal.
    Machine {
        /// Finds and judges processes.
        selector: Box<ProcessSelector>,
        /// Wakes the manager.
        waker: Waker,
    },
}

impl ManagedTarget {
    /// The whole machine as the target, and the waker of its manager.
    pub fn whole_machine_with_waker(
        rules: Rules,
        selection: ProcessSelectionSettings,
    ) -> Result<(Self, Waker)> {
        let waker = Waker::new()?;
        let target = Self::Machine {
            selector: Box::new(ProcessSelector::new(rules, selection)?),
            waker: waker.clone(),
        };
        Ok((target, waker))
    }

    /// Descriptors to wait for: the ends of running processes, or the waker. Empty when nothing is
    /// left to manage.
    pub(crate) fn wait_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Family(root) => vec![root.fd()],
            Self::Processes(handles) => alive_handles(handles).map(ProcessHandle::fd).collect(),
            Self::Machine { waker, selector } => {
                iter::once(waker.fd()).chain(selector.exec_report_fd()).collect()
            }
        }
    }

    /// Descriptors that the target holds for the processes that it names.
    fn held_descriptors(&self) -> u64 {
        match self {
            Self::Processes(handles) => (handles.len() * ProcessHandle::DESCRIPTORS) as u64,
            Self::Family(_) | Self::Machine { .. } => 0,
        }
    }

    pub(crate) fn selector(&self) -> Option<&ProcessSelector> {
        match self {
            Self::Machine { selector, .. } => Some(selector),
            Self::Processes(_) | Self::Family(_) => None,
        }
    }

    pub(crate) fn selector_mut(&mut self) -> Option<&mut ProcessSelector> {
        match self {
            Self::Machine { selector, .. } => Some(selector),
            Self::Processes(_) | Self::Family(_) => None,
        }
    }
}

fn alive_handles(handles: &[ProcessHandle]) -> impl Iterator<Item = &ProcessHandle> {
    handles.iter().filter(|handle| handle.is_alive())
}

/// A managed process, for display.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManagedProcessView {
    /// The process.
    pub process: ProcessId,
    /// Its command, user, cgroup, unit and pod.
    pub identity: ProcessAttributes,
    /// The rules under which it is managed.
    pub terms: ProcessSettings,
    /// Whether none of its memory can become huge, because of `PR_SET_THP_DISABLE`.
    pub thp_disabled: bool,
    /// Memory that its owner excludes by `MADV_NOHUGEPAGE`, in bytes.
    pub refused_bytes: u64,
}

#[derive(Default)]
pub(crate) struct ManagedProcesses {
    members: BTreeMap<u32, ManagedProcess>,
    /// In the order in which they joined.
    order: Vec<ProcessId>,
    users: UserNames,
    /// Settings of processes that the target names.
    named_settings: ProcessSettings,
    /// Whether any process that joined had `PR_SET_THP_DISABLE` set.
    pub(crate) saw_thp_disabled: bool,
    /// Processes that have just started another program.
    started: Vec<ProcessId>,
    named: NamedProcesses,
    /// Named processes that could not join.
    named_pauses: JoinPauses,
    /// Whether the log says that not all named processes fit.
    logged_full: bool,
    /// The limit of this process's open files.
    descriptors: u64,
    /// The unfinished work after the last scan.
    slot_allocation: Option<SlotAllocation>,
}

/// Inputs of one step of following the machine.
struct ProcessUpdateContext<'a> {
    selector: &'a mut ProcessSelector,
    sampler: &'a mut dyn Sampler,
    /// Most processes that are managed at a time.
    max_processes: usize,
    now: Duration,
    deadline: Instant,
}

impl ProcessUpdateContext<'_> {
    fn is_past_deadline(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Records that a process could not join. The selector does not need to know of one that has
    /// ended.
    fn record_join_refusal(&mut self, pid: u32, error: &LinuxError) {
        if !matches!(error, LinuxError::NoSuchProcess(_)) {
            self.selector.record_refusal(pid, self.now, error);
        }
    }
}

struct ManagedProcess {
    member: SampledProcess,
    /// When the rules last judged it.
    evaluated_at: Duration,
    /// The program that it ran then; `None` if no scan has seen it.
    program: Option<ProgramIdentity>,
    /// Until this time it stays even if it is small.
    starts_until: Duration,
}

/// A process with a warm start must be large after this time.
const WARM_START: Duration = Duration::from_secs(60);

impl ManagedProcesses {
    /// Starts without processes. This process may open `descriptors` files.
    pub(crate) fn new(descriptors: u64) -> Self {
        Self { descriptors, ..Self::default() }
    }

    /// Removes processes that have ended or left, and admits new ones. Each takes
    /// `descriptors_each` file descriptors, which limits their number. What is not done at the
    /// deadline is left for the next call.
    pub(crate) fn update(
        &mut self,
        target: &mut ManagedTarget,
        sampler: &mut dyn Sampler,
        descriptors_each: usize,
        now: Duration,
        deadline: Instant,
    ) -> SliceProgress<()> {
        let handles = self.members.values().map(|joined| &joined.member.handle);
        let mut alive = process::which_are_alive(handles).into_iter();
        self.members.retain(|_, _| alive.next().unwrap_or(true));
        let free = self.descriptors.saturating_sub(target.held_descriptors());
        let capacity = process_capacity_of_descriptors(free, descriptors_each);
        let slice = match target {
            ManagedTarget::Processes(handles) => {
                let pids: Vec<u32> = alive_handles(handles).map(|it| it.id.pid).collect();
                let list = || Box::new(pids.into_iter().map(Some)) as _;
                self.admit_named(list, sampler, capacity, now, deadline)
            }
            ManagedTarget::Family(root) => {
                let pid = root.id.pid;
                let list = || Box::new(process::search_process_and_descendants(pid)) as _;
                self.admit_named(list, sampler, capacity, now, deadline)
            }
            ManagedTarget::Machine { selector, .. } => {
                let max_processes = selector.max_processes().min(capacity);
                let sampler = &mut *sampler;
                let step = ProcessUpdateContext { selector, sampler, max_processes, now, deadline };
                self.scan_and_allocate_slots(step)
            }
        };
        self.remove_left_from_join_order();
        self.release_sampler_of_ended(sampler);
        slice
    }

    fn release_sampler_of_ended(&self, sampler: &mut dyn Sampler) {
        sampler.retain_processes(&|process| self.get(process).is_some());
    }

    fn remove_left_from_join_order(&mut self) {
        let members = &self.members;
        self.order.retain(|id| {
            let joined = members.get(&id.pid);
            joined.is_some_and(|joined| joined.member.handle.id == *id)
        });
    }

    /// Admits processes in the order in which the target names them, up to `capacity`.
    fn admit_named(
        &mut self,
        list: impl FnOnce() -> ListingSteps,
        sampler: &mut dyn Sampler,
        capacity: usize,
        now: Duration,
        deadline: Instant,
    ) -> SliceProgress<()> {
        self.named_pauses.forget_ended(now);
        let mut named = std::mem::take(&mut self.named);
        let progress = named.visit_until(list, now, deadline, |pid| {
            if !self.members.contains_key(&pid) && !self.named_pauses.is_paused(pid, now) {
                if self.members.len() < capacity {
                    self.admit_named_process(pid, sampler, now);
                } else {
                    self.log_full_once(capacity);
                }
            }
        });
        self.named = named;
        progress
    }

    /// Manages shared memory of the processes that the target names, from their next sample on.
    pub(crate) fn set_shared_memory_of_named(&mut self) {
        self.named_settings.shared_memory = true;
        for joined in self.members.values_mut() {
            joined.member.terms.shared_memory = true;
        }
    }

    fn admit_named_process(&mut self, pid: u32, sampler: &mut dyn Sampler, now: Duration) {
        let admitted = read_process_attributes(pid, &self.users)
            .and_then(|identity| SampledProcess::open(pid, identity, self.named_settings))
            .and_then(|member| self.admit_process(member, sampler, now).map(|_| ()));
        match admitted {
            // A process that ended since it was listed does not join.
            Ok(()) | Err(LinuxError::NoSuchProcess(_)) => {}
            Err(error) => self.named_pauses.record_refusal(pid, now, &error),
        }
    }

    fn log_full_once(&mut self, capacity: usize) {
        if !std::mem::replace(&mut self.logged_full, true) {
            tracing::warn!(
                "only {capacity} processes are managed at a time: the hard limit of open files ({}) allows no more; raise it (ulimit -Hn)",
                self.descriptors
            );
        }
    }

    fn scan_and_allocate_slots(&mut self, mut step: ProcessUpdateContext) -> SliceProgress<()> {
        // The rules may exclude the new program, so the process is left alone until the next scan.
        for pid in step.selector.take_executed_pids() {
            self.members.remove(&pid);
        }
        self.admit_warm_started(&mut step);
        let allocation = match self.slot_allocation.take() {
            Some(allocation) => allocation,
            None => match step.selector.scan_if_due(step.now, step.deadline) {
                SliceProgress::Done(Some(large)) => self.prune_for_slot_allocation(large, step.now),
                SliceProgress::Done(None) => return SliceProgress::Done(()),
                SliceProgress::Unfinished(wait) => return SliceProgress::Unfinished(wait),
            },
        };
        self.slot_allocation = self.continue_slot_allocation(allocation, &mut step);
        match self.slot_allocation {
            None => SliceProgress::Done(()),
            Some(_) => SliceProgress::Unfinished(Duration::ZERO),
        }
    }

    /// Admits processes with a warm start at once.
    fn admit_warm_started(&mut self, step: &mut ProcessUpdateContext) {
        for (pid, identity, terms) in step.selector.take_warm_start_processes() {
            if self.members.len() >= step.max_processes {
                break;
            }
            let of_user = |joined: &&ManagedProcess| joined.member.identity.uid == identity.uid;
            if self.members.values().filter(of_user).count()
                >= max_slots_per_user(step.max_processes)
            {
                continue;
            }
            // The process was managed before, and has started another program.
            self.members.remove(&pid);
            let opened = SampledProcess::open(pid, identity, terms);
            let admitted =
                opened.and_then(|member| self.admit_process(member, step.sampler, step.now));
            match admitted.map(|joined| {
                joined.starts_until = step.now + WARM_START;
                joined.member.handle.id
            }) {
                Ok(process) => self.started.push(process),
                Err(error) => step.record_join_refusal(pid, &error),
            }
        }
    }

    fn admit_process(
        &mut self,
        member: SampledProcess,
        sampler: &mut dyn Sampler,
        evaluated_at: Duration,
    ) -> Result<&mut ManagedProcess> {
        // Processes that have left free their descriptors, which may be few.
        self.release_sampler_of_ended(sampler);
        let process = member.handle.id;
        sampler.bind(process)?;
        self.saw_thp_disabled |= member.thp_disabled;
        if !self.order.contains(&process) {
            self.order.push(process);
        }
        let joined =
            ManagedProcess { evaluated_at, program: None, starts_until: Duration::ZERO, member };
        self.members.remove(&process.pid);
        Ok(self.members.entry(process.pid).or_insert(joined))
    }

    /// Judges all managed processes again by changed rules.
    pub(crate) fn reapply_rules(&mut self, selector: &ProcessSelector) {
        self.members.retain(|_, joined| joined.apply_rules(selector));
        // Its admissible processes were judged by the rules before.
        self.slot_allocation = None;
        self.remove_left_from_join_order();
    }

    /// Processes with a warm start that have started another program since the last call.
    pub(crate) fn take_warm_started_processes(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.started)
    }

    /// Bytes to fill at the start of a process; 0 for one that was not admitted at its start.
    pub(crate) fn warm_start_target_bytes(&self, process: ProcessId) -> u64 {
        let joined = self.members.get(&process.pid);
        let starting = joined.filter(|joined| !joined.starts_until.is_zero());
        starting.and_then(|j| j.member.terms.warm_bytes).unwrap_or(0)
    }

    pub(crate) fn processes_in_join_order(&self) -> &[ProcessId] {
        &self.order
    }

    pub(crate) fn get(&self, process: ProcessId) -> Option<&SampledProcess> {
        let joined = self.members.get(&process.pid)?;
        Some(&joined.member).filter(|member| member.handle.id == process)
    }

    /// A managed process, if it has not ended.
    pub(crate) fn get_mut(
        &mut self,
        process: ProcessId,
    ) -> Result<&mut SampledProcess, MachineError> {
        self.members
            .get_mut(&process.pid)
            .map(|joined| &mut joined.member)
            .filter(|member| member.handle.id == process && member.handle.is_alive())
            .ok_or(MachineError::Gone(process))
    }

    /// Bytes that owners exclude by `MADV_NOHUGEPAGE`.
    pub(crate) fn nohugepage_bytes(&self) -> u64 {
        let members = self.members.values();
        members.map(|j| j.member.eligible.refused_bytes).sum()
    }

    pub(crate) fn process_views(&self) -> Vec<ManagedProcessView> {
        let members = self.order.iter().filter_map(|id| self.members.get(&id.pid));
        members
            .map(|ManagedProcess { member, .. }| ManagedProcessView {
                process: member.handle.id,
                identity: member.identity.clone(),
                terms: member.terms,
                thp_disabled: member.thp_disabled,
                refused_bytes: member.eligible.refused_bytes,
            })
            .collect()
    }
}

impl ManagedProcess {
    /// Applies the current rules. Returns whether the process may stay.
    fn apply_rules(&mut self, selector: &ProcessSelector) -> bool {
        let terms = selector.settings_for_attributes(&self.member.identity);
        self.member.terms = terms.unwrap_or(self.member.terms);
        terms.is_some()
    }
}

#[cfg(test)]
mod tests;
