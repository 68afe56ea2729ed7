//! Who is under management: joining, staying, leaving.

use crate::bell::Bell;
use crate::census::{Program, Sighting};
use crate::error::LinuxError;
use crate::identity::identify;
use crate::process::{self, ProcessHandle};
use crate::roster::{Roster, VERDICT_AGE};
use crate::sampler::{Member, Sampler};
use crate::user_names::UserNames;
use hawkeye_manager::MachineError;
use hawkeye_policy::ranking::{choose, user_share};
use hawkeye_policy::{Contender, Identity, ProcessId, Rules, Selection, Terms};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Which processes are managed.
pub enum Scope {
    /// These, until all have ended.
    Processes(Vec<ProcessHandle>),
    /// One and its descendants, until it ends. It gets the signals that end management.
    Family(ProcessHandle),
    /// All that are large enough and that the rules include, until a signal.
    Machine {
        /// Finds and judges them.
        roster: Box<Roster>,
        /// Wakes the manager.
        bell: Bell,
    },
}

impl Scope {
    /// The whole machine, and the bell that wakes its manager.
    pub fn machine(rules: Rules, selection: Selection) -> Result<(Self, Bell), LinuxError> {
        let roster = Box::new(Roster::new(rules, selection)?);
        let bell = Bell::new()?;
        let waits_for = bell.clone();
        let scope = Self::Machine {
            roster,
            bell: waits_for,
        };
        Ok((scope, bell))
    }

    /// What to wait for: the ends of processes that are there, or the bell. Empty when nothing is left
    /// to manage.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Family(root) => vec![root.fd()],
            Self::Processes(handles) => alive(handles).map(ProcessHandle::fd).collect(),
            Self::Machine { bell, roster } => iter::once(bell.fd()).chain(roster.fd()).collect(),
        }
    }

    pub(crate) fn roster(&self) -> Option<&Roster> {
        match self {
            Self::Machine { roster, .. } => Some(roster),
            Self::Processes(_) | Self::Family(_) => None,
        }
    }

    pub(crate) fn roster_mut(&mut self) -> Option<&mut Roster> {
        match self {
            Self::Machine { roster, .. } => Some(roster),
            Self::Processes(_) | Self::Family(_) => None,
        }
    }
}

fn alive(handles: &[ProcessHandle]) -> impl Iterator<Item = &ProcessHandle> {
    handles.iter().filter(|handle| handle.alive())
}

/// A managed process, as shown to people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberView {
    /// Which.
    pub process: ProcessId,
    /// Who it is: command, user, cgroup, unit, pod.
    pub identity: Identity,
    /// On which terms it is managed.
    pub terms: Terms,
    /// Whether nothing of it can become huge, because it was told `PR_SET_THP_DISABLE`.
    pub thp_disabled: bool,
    /// Memory that its owner keeps out by `MADV_NOHUGEPAGE`, in bytes.
    pub refused_bytes: u64,
}

/// Everybody under management.
#[derive(Default)]
pub(crate) struct Membership {
    members: BTreeMap<u32, Joined>,
    /// In order of arrival.
    order: Vec<ProcessId>,
    users: UserNames,
    saw_thp_disabled: bool,
    /// Who has just become another program.
    started: Vec<ProcessId>,
}

struct Joined {
    member: Member,
    /// When the rules were last asked about it.
    judged: Duration,
    /// What it ran then; `None` where no sweep has seen it.
    program: Option<Program>,
    /// Until then it stays though it is small.
    starts_until: Duration,
}

/// A process that is to have a warm start is expected to be large after this time.
const WARM_START: Duration = Duration::from_secs(60);

impl Membership {
    /// Lets go who has ended or left, and admits who is new: as many as file descriptors are enough for, where each
    /// takes so many.
    pub(crate) fn update(
        &mut self,
        scope: &mut Scope,
        sampler: &Sampler,
        descriptors_each: usize,
        now: Duration,
    ) {
        self.members
            .retain(|_, joined| joined.member.handle.alive());
        match scope {
            Scope::Processes(handles) => {
                let pids: Vec<u32> = alive(handles).map(|handle| handle.id.pid).collect();
                self.admit_named(pids, sampler, now);
            }
            Scope::Family(root) => self.admit_named(process::family(root.id.pid), sampler, now),
            Scope::Machine { roster, .. } => {
                let most = roster.max_processes(descriptors_each);
                self.follow(roster, sampler, most, now);
            }
        }
        self.keep_order();
    }

    fn keep_order(&mut self) {
        let members = &self.members;
        self.order.retain(|id| {
            let joined = members.get(&id.pid);
            joined.is_some_and(|joined| joined.member.handle.id == *id)
        });
    }

    fn admit_named(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        sampler: &Sampler,
        now: Duration,
    ) {
        for pid in pids {
            if self.members.contains_key(&pid) {
                continue;
            }
            // A process that ended between the listing and now just doesn't join.
            let Ok(identity) = identify(pid, &self.users) else {
                continue;
            };
            match self.admit(pid, identity, Terms::default(), sampler, now) {
                Ok(()) | Err(LinuxError::NoSuchProcess(_)) => {}
                Err(error) => tracing::warn!("process {pid} can't be managed: {error}"),
            }
        }
    }

    /// Follows what a sweep of the machine has seen, if one is due.
    fn follow(&mut self, roster: &mut Roster, sampler: &Sampler, most: usize, now: Duration) {
        // What runs now may be excluded: until the next sweep it is left alone.
        for pid in roster.take_executed() {
            self.members.remove(&pid);
        }
        self.admit_started(roster, sampler, most, now);
        let Some(large) = roster.sweep(now) else {
            return;
        };
        let seen: HashMap<u32, &Sighting> =
            large.iter().map(|seen| (seen.process.pid, seen)).collect();
        self.members.retain(|pid, joined| {
            let executed = seen.get(pid).is_some_and(|seen| joined.has_executed(seen));
            !executed && (seen.contains_key(pid) || now < joined.starts_until)
        });
        self.renew_verdicts(roster, &seen, now);
        self.fill_slots(roster, sampler, &large, most, now);
    }

    /// Gives the slots to the most important processes; the others lose theirs.
    fn fill_slots(
        &mut self,
        roster: &mut Roster,
        sampler: &Sampler,
        large: &[Sighting],
        most: usize,
        now: Duration,
    ) {
        // One that has just started keeps its slot.
        let starting = |joined: &&Joined| now < joined.starts_until;
        let slots = most.saturating_sub(self.members.values().filter(starting).count());
        let is_starting = |pid: &u32| {
            self.members
                .get(pid)
                .is_some_and(|joined| now < joined.starts_until)
        };
        let competing: Vec<Sighting> = large
            .iter()
            .filter(|seen| !is_starting(&seen.process.pid))
            .cloned()
            .collect();
        let mut contenders =
            roster.contenders(&competing, |process| self.get(process).is_some(), now);
        let (chosen, newcomers) = choose_and_judge(roster, &mut contenders, slots, now);
        for it in contenders.iter().filter(|it| !chosen.contains(&it.process)) {
            roster.note_outranked(it.process, slots);
            if self.members.remove(&it.process.pid).is_some() {
                tracing::debug!("process {} gives its slot to another", it.process);
            }
        }
        let programs = large.iter().map(|seen| (seen.process, &seen.program));
        let programs: HashMap<ProcessId, &Program> = programs.collect();
        for (process, identity, terms) in newcomers {
            if !chosen.contains(&process) {
                continue;
            }
            let admitted = process::may_be_managed(process.pid, &terms)
                .and_then(|()| self.admit(process.pid, identity, terms, sampler, now));
            match admitted {
                Ok(()) => {
                    if let Some(joined) = self.members.get_mut(&process.pid) {
                        joined.program = programs.get(&process).copied().cloned();
                    }
                }
                Err(LinuxError::NoSuchProcess(_)) => {}
                Err(error) => roster.refuse(process.pid, now, &error),
            }
        }
    }

    /// Those who are to have a warm start join at once.
    fn admit_started(
        &mut self,
        roster: &mut Roster,
        sampler: &Sampler,
        most: usize,
        now: Duration,
    ) {
        for (pid, identity, terms) in roster.warm_starts() {
            if self.members.len() >= most {
                break;
            }
            let of_user = |joined: &&Joined| joined.member.identity.uid == identity.uid;
            if self.members.values().filter(of_user).count() >= user_share(most) {
                continue;
            }
            // One that was there before has become another program.
            self.members.remove(&pid);
            match self.admit(pid, identity, terms, sampler, now) {
                Ok(()) => {
                    if let Some(joined) = self.members.get_mut(&pid) {
                        joined.starts_until = now + WARM_START;
                        self.started.push(joined.member.handle.id);
                    }
                }
                Err(LinuxError::NoSuchProcess(_)) => {}
                Err(error) => roster.refuse(pid, now, &error),
            }
        }
    }

    fn admit(
        &mut self,
        pid: u32,
        identity: Identity,
        terms: Terms,
        sampler: &Sampler,
        judged: Duration,
    ) -> Result<(), LinuxError> {
        let mut member = Member::open(pid, identity, terms)?;
        sampler.bind(&mut member)?;
        self.saw_thp_disabled |= member.thp_disabled;
        if !self.order.contains(&member.handle.id) {
            self.order.push(member.handle.id);
        }
        let joined = Joined {
            member,
            judged,
            program: None,
            starts_until: Duration::ZERO,
        };
        self.members.insert(pid, joined);
        Ok(())
    }

    /// Asks the rules again about a process when its verdict is old, when its command or user has changed,
    /// or when the name of its user was not known.
    fn renew_verdicts(&mut self, roster: &Roster, seen: &HashMap<u32, &Sighting>, now: Duration) {
        self.members.retain(|pid, joined| {
            let program = seen.get(pid).map(|seen| &seen.program);
            let same = program.is_none() || program == joined.program.as_ref();
            let fresh = now < joined.judged + VERDICT_AGE;
            if same && fresh && !joined.member.identity.user_pending {
                return true;
            }
            // One that can't be read just now is judged by what it was.
            if let Ok(identity) = identify(*pid, roster.users()) {
                joined.member.identity = identity;
            }
            joined.judged = now;
            joined.program = program.cloned();
            joined.judge(roster) && process::may_be_managed(*pid, &joined.member.terms).is_ok()
        });
    }

    /// Asks other rules about everybody.
    pub(crate) fn judge_again(&mut self, roster: &Roster) {
        self.members.retain(|_, joined| joined.judge(roster));
        self.keep_order();
    }

    /// Who has become another program since the last call, and is to have a warm start.
    pub(crate) fn take_started(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.started)
    }

    /// What of a process is to be filled at its start, in bytes; 0 for one that has been there for long.
    pub(crate) fn warm_bytes(&self, process: ProcessId) -> u64 {
        let joined = self.members.get(&process.pid);
        let starting = joined.filter(|joined| !joined.starts_until.is_zero());
        starting
            .and_then(|j| j.member.terms.warm_bytes)
            .unwrap_or(0)
    }

    /// In order of arrival.
    pub(crate) fn order(&self) -> &[ProcessId] {
        &self.order
    }

    /// One of them.
    pub(crate) fn get(&self, process: ProcessId) -> Option<&Member> {
        let joined = self.members.get(&process.pid)?;
        Some(&joined.member).filter(|member| member.handle.id == process)
    }

    /// One of them, if it has not ended.
    pub(crate) fn get_mut(&mut self, process: ProcessId) -> Result<&mut Member, MachineError> {
        self.members
            .get_mut(&process.pid)
            .map(|joined| &mut joined.member)
            .filter(|member| member.handle.id == process && member.handle.alive())
            .ok_or(MachineError::Gone(process))
    }

    /// What is unfinished of a window is not gone on with.
    pub(crate) fn abandon_window(&mut self) {
        for joined in self.members.values_mut() {
            joined.member.abandon_window();
        }
    }

    /// Whether somebody was ever told `PR_SET_THP_DISABLE`.
    pub(crate) fn saw_thp_disabled(&self) -> bool {
        self.saw_thp_disabled
    }

    /// Bytes that owners keep out by `MADV_NOHUGEPAGE`.
    pub(crate) fn refused_bytes(&self) -> u64 {
        let members = self.members.values();
        members.map(|j| j.member.eligible.refused_bytes).sum()
    }

    /// Everybody, first come first.
    pub(crate) fn views(&self) -> Vec<MemberView> {
        let members = self.order.iter().filter_map(|id| self.members.get(&id.pid));
        members
            .map(|Joined { member, .. }| MemberView {
                process: member.handle.id,
                identity: member.identity.clone(),
                terms: member.terms,
                thp_disabled: member.thp_disabled,
                refused_bytes: member.eligible.refused_bytes,
            })
            .collect()
    }
}

/// The processes that get slots, and of those that the rules had to be asked about: their identities and
/// terms. Contenders that the rules exclude are taken out.
fn choose_and_judge(
    roster: &mut Roster,
    contenders: &mut Vec<Contender>,
    slots: usize,
    now: Duration,
) -> (HashSet<ProcessId>, Vec<(ProcessId, Identity, Terms)>) {
    let mut newcomers: Vec<(ProcessId, Identity, Terms)> = Vec::new();
    let mut judged = HashSet::new();
    loop {
        let chosen: HashSet<ProcessId> = choose(contenders, slots).into_iter().collect();
        let is_new = |it: &&Contender| !it.managed && chosen.contains(&it.process);
        let new = contenders.iter().filter(is_new).map(|it| it.process);
        let new: Vec<ProcessId> = new.filter(|process| judged.insert(*process)).collect();
        if new.is_empty() {
            return (chosen, newcomers);
        }
        for process in new {
            match roster.judge(process.pid, now) {
                Ok(Some((identity, terms))) => newcomers.push((process, identity, terms)),
                Ok(None) | Err(LinuxError::NoSuchProcess(_)) => {
                    contenders.retain(|it| it.process != process);
                }
                Err(error) => {
                    roster.refuse(process.pid, now, &error);
                    contenders.retain(|it| it.process != process);
                }
            }
        }
    }
}

impl Joined {
    /// Whether it has executed something since a sweep first saw it.
    fn has_executed(&self, seen: &Sighting) -> bool {
        let before = self.program.as_ref();
        before.is_some_and(|before| seen.program.executed_since(before))
    }

    /// Takes the terms that hold now; whether it stays at all.
    fn judge(&mut self, roster: &Roster) -> bool {
        match roster.verdict(&self.member.identity) {
            Some(terms) => {
                self.member.terms = terms;
                true
            }
            None => false,
        }
    }
}
