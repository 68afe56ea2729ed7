//! Applies the result of a scan: renews old verdicts, gives the slots to the most important
//! processes, and admits new ones.

use super::{ManagedProcess, ManagedProcesses, ProcessUpdateContext};
use crate::error::LinuxError;
use crate::processes::proc_scanner::{ProgramIdentity, ScannedProcess};
use crate::processes::process;
use crate::processes::process_selector::{ProcessSelector, VERDICT_AGE};
use crate::sample::sampler::SampledProcess;
use hawkeye_policy::management_slot_ranking::choose_managed_processes;
use hawkeye_policy::{ManagementSlotCandidate, ProcessAttributes, ProcessId, ProcessSettings};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// The state between two steps; each step ends at its deadline.
pub(super) struct SlotAllocation {
    large: Vec<ScannedProcess>,
    /// Managed processes with verdicts to renew.
    to_renew: VecDeque<u32>,
    slots: Option<SlotRanking>,
}

struct SlotRanking {
    most: usize,
    candidates: Vec<ManagementSlotCandidate>,
    /// Newcomers that the rules have judged.
    evaluated: HashSet<ProcessId>,
    /// Newcomers that the rules include and that have not joined yet.
    included: VecDeque<(ProcessId, ProcessAttributes, ProcessSettings)>,
    /// Processes that get a slot; `None` until all of them are judged.
    chosen: Option<HashSet<ProcessId>>,
}

impl ManagedProcesses {
    /// Removes processes that are small now or run another program.
    pub(super) fn prune_for_slot_allocation(
        &mut self,
        large: Vec<ScannedProcess>,
        now: Duration,
    ) -> SlotAllocation {
        let seen: HashMap<u32, &ScannedProcess> =
            large.iter().map(|seen| (seen.process.pid, seen)).collect();
        self.members.retain(|pid, joined| {
            let programs = seen.get(pid).map(|seen| &seen.program).zip(joined.program.as_ref());
            let executed = programs.is_some_and(|(now, before)| now.executed_since(before));
            !executed && (seen.contains_key(pid) || now < joined.starts_until)
        });
        let old = self.members.iter().filter(|(pid, joined)| {
            let program = seen.get(pid).map(|seen| &seen.program);
            let same = program.is_none() || program == joined.program.as_ref();
            let fresh = now < joined.evaluated_at + VERDICT_AGE;
            !(same && fresh) || joined.member.identity.user_pending
        });
        let to_renew = old.map(|(pid, _)| *pid).collect();
        SlotAllocation { large, to_renew, slots: None }
    }

    /// Works until the deadline. Returns the allocation if it is not finished.
    pub(super) fn continue_slot_allocation(
        &mut self,
        mut allocation: SlotAllocation,
        step: &mut ProcessUpdateContext,
    ) -> Option<SlotAllocation> {
        while let Some(pid) = allocation.to_renew.pop_front() {
            self.reevaluate_process(pid, allocation.program_of_pid(pid), step);
            if step.is_past_deadline() {
                return Some(allocation);
            }
        }
        let mut slots = match allocation.slots.take() {
            Some(slots) => slots,
            None => self.begin_slot_ranking(&allocation.large, step),
        };
        if slots.chosen.is_none() {
            if !slots.evaluate_chosen_candidates(step) {
                allocation.slots = Some(slots);
                return Some(allocation);
            }
            self.remove_outranked(&slots, step.selector);
        }
        while let Some((process, identity, terms)) = slots.included.pop_front() {
            if slots.has_slot(process) {
                let program = allocation.program_of_pid(process.pid).cloned();
                self.admit_with_slot(process, identity, terms, program, step);
            }
            if step.is_past_deadline() {
                allocation.slots = Some(slots);
                return Some(allocation);
            }
        }
        None
    }

    /// Applies the rules again to a process with an old verdict, a changed command or user, or a
    /// user without a known name.
    fn reevaluate_process(
        &mut self,
        pid: u32,
        program: Option<&ProgramIdentity>,
        step: &ProcessUpdateContext,
    ) {
        let Some(joined) = self.members.get_mut(&pid) else {
            return;
        };
        // A process that cannot be read now keeps its last identity.
        if let Ok(identity) = step.selector.read_attributes(pid) {
            joined.member.identity = identity;
        }
        joined.evaluated_at = step.now;
        joined.program = program.cloned();
        let stays = joined.apply_rules(step.selector)
            && process::check_rule_for_real_time(pid, &joined.member.terms).is_ok();
        if !stays {
            self.members.remove(&pid);
        }
    }

    fn begin_slot_ranking(
        &self,
        large: &[ScannedProcess],
        step: &mut ProcessUpdateContext,
    ) -> SlotRanking {
        let now = step.now;
        // A process that has just started keeps its slot.
        let is_starting = |joined: &ManagedProcess| now < joined.starts_until;
        let starting = self.members.values().filter(|joined| is_starting(joined));
        let most = step.max_processes.saturating_sub(starting.count());
        let competes = |seen: &&ScannedProcess| {
            let joined = self.members.get(&seen.process.pid);
            !joined.is_some_and(is_starting)
        };
        let competing: Vec<ScannedProcess> = large.iter().filter(competes).cloned().collect();
        let is_managed = |process| self.get(process).is_some();
        SlotRanking {
            most,
            candidates: step.selector.collect_slot_candidates(&competing, is_managed, now),
            evaluated: HashSet::new(),
            included: VecDeque::new(),
            chosen: None,
        }
    }

    fn remove_outranked(&mut self, slots: &SlotRanking, selector: &mut ProcessSelector) {
        let lost = slots.candidates.iter().filter(|it| !slots.has_slot(it.process));
        for it in lost {
            selector.record_outranked(it.process, slots.most);
            if self.get(it.process).is_some() {
                self.members.remove(&it.process.pid);
                tracing::debug!("process {} has lost its slot to another process", it.process);
            }
        }
    }

    fn admit_with_slot(
        &mut self,
        process: ProcessId,
        identity: ProcessAttributes,
        terms: ProcessSettings,
        program: Option<ProgramIdentity>,
        step: &mut ProcessUpdateContext,
    ) {
        let admitted = process::check_rule_for_real_time(process.pid, &terms)
            .and_then(|()| SampledProcess::open(process.pid, identity, terms))
            .and_then(|member| {
                // Another process may have its pid by now.
                if member.handle.id != process {
                    return Err(LinuxError::NoSuchProcess(process.pid));
                }
                self.admit_process(member, step.sampler, step.now)
            });
        match admitted {
            Ok(joined) => joined.program = program,
            Err(error) => step.record_join_refusal(process.pid, &error),
        }
    }
}

impl SlotAllocation {
    fn program_of_pid(&self, pid: u32) -> Option<&ProgramIdentity> {
        let seen = self.large.iter().find(|seen| seen.process.pid == pid);
        seen.map(|seen| &seen.program)
    }
}

impl SlotRanking {
    fn has_slot(&self, process: ProcessId) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_some_and(|chosen| chosen.contains(&process))
    }

    /// Judges the processes that would get a slot, until all of these are judged. Returns whether
    /// they are. A candidate that the rules exclude is removed, and another one may get its slot.
    fn evaluate_chosen_candidates(&mut self, step: &mut ProcessUpdateContext) -> bool {
        loop {
            let chosen: HashSet<ProcessId> =
                choose_managed_processes(&self.candidates, self.most).into_iter().collect();
            let is_new = |it: &&ManagementSlotCandidate| {
                !it.managed && chosen.contains(&it.process) && !self.evaluated.contains(&it.process)
            };
            let new: Vec<ProcessId> =
                self.candidates.iter().filter(is_new).map(|it| it.process).collect();
            if new.is_empty() {
                self.chosen = Some(chosen);
                return true;
            }
            for process in new {
                self.evaluated.insert(process);
                match step.selector.evaluate(process.pid, step.now) {
                    Ok(Some((identity, terms))) => {
                        self.included.push_back((process, identity, terms));
                    }
                    Ok(None) => self.drop_candidate(process),
                    Err(error) => {
                        step.record_join_refusal(process.pid, &error);
                        self.drop_candidate(process);
                    }
                }
                if step.is_past_deadline() {
                    return false;
                }
            }
        }
    }

    fn drop_candidate(&mut self, process: ProcessId) {
        self.candidates.retain(|it| it.process != process);
    }
}
