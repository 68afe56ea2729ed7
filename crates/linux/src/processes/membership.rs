//! Who is under management: joining, staying, leaving.
//!
//! `contest.rs` gives slots where more processes are large than can be managed.

mod contest;

use crate::error::{LinuxError, Result};
use crate::processes::census::{Program, Sighting};
use crate::processes::identity::identify;
use crate::processes::process::{self, ProcessHandle};
use crate::processes::roster::Roster;
use crate::processes::user_names::UserNames;
use crate::sample::sampler::{Member, Sampler, Slice};
use crate::stop::bell::Bell;
use contest::Contest;
use hawkeye_manager::MachineError;
use hawkeye_policy::ranking::user_share;
use hawkeye_policy::{Identity, ProcessId, Rules, Selection, Terms};
use serde::Serialize;
use std::collections::BTreeMap;
use std::iter;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

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
    pub fn machine(rules: Rules, selection: Selection) -> Result<(Self, Bell)> {
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
    /// Named processes that are still to join.
    named: Option<Named>,
    /// What is left to be done about the last sweep.
    contest: Option<Contest>,
}

type Named = Box<dyn Iterator<Item = u32> + Send>;

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
    /// takes so many. What is not done at the deadline is gone on with at the next call.
    pub(crate) fn update(
        &mut self,
        scope: &mut Scope,
        sampler: &mut dyn Sampler,
        descriptors_each: usize,
        now: Duration,
        deadline: Instant,
    ) -> Slice<()> {
        self.members
            .retain(|_, joined| joined.member.handle.alive());
        let slice = match scope {
            Scope::Processes(handles) => {
                let pids = || alive(handles).map(|handle| handle.id.pid);
                let named = || Box::new(pids().collect::<Vec<_>>().into_iter()) as Named;
                self.admit_named(named, sampler, now, deadline)
            }
            Scope::Family(root) => {
                let named = || Box::new(process::family(root.id.pid)) as Named;
                self.admit_named(named, sampler, now, deadline)
            }
            Scope::Machine { roster, .. } => {
                let most = roster.max_processes(descriptors_each);
                self.follow(roster, sampler, most, now, deadline)
            }
        };
        self.keep_order();
        self.forget_the_gone(sampler);
        slice
    }

    /// The sampler forgets processes that are not managed any more.
    fn forget_the_gone(&self, sampler: &mut dyn Sampler) {
        sampler.retain(&|process| self.get(process).is_some());
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
        named: impl Fn() -> Named,
        sampler: &mut dyn Sampler,
        now: Duration,
        deadline: Instant,
    ) -> Slice<()> {
        let mut named = self.named.take().unwrap_or_else(named);
        while let Some(pid) = named.next() {
            if !self.members.contains_key(&pid) {
                self.admit_one(pid, sampler, now);
            }
            if Instant::now() >= deadline {
                self.named = Some(named);
                return Slice::Unfinished(Duration::ZERO);
            }
        }
        Slice::Done(())
    }

    fn admit_one(&mut self, pid: u32, sampler: &mut dyn Sampler, now: Duration) {
        // A process that ended between the listing and now just doesn't join.
        let Ok(identity) = identify(pid, &self.users) else {
            return;
        };
        let opened = Member::open(pid, identity, Terms::default());
        match opened.and_then(|member| self.admit(member, sampler, now)) {
            Ok(()) | Err(LinuxError::NoSuchProcess(_)) => {}
            Err(error) => tracing::warn!("process {pid} can't be managed: {error}"),
        }
    }

    /// Follows what a sweep of the machine has seen, if one is due.
    fn follow(
        &mut self,
        roster: &mut Roster,
        sampler: &mut dyn Sampler,
        most: usize,
        now: Duration,
        deadline: Instant,
    ) -> Slice<()> {
        // What runs now may be excluded: until the next sweep it is left alone.
        for pid in roster.take_executed() {
            self.members.remove(&pid);
        }
        self.admit_started(roster, sampler, most, now);
        let contest = match self.contest.take() {
            Some(contest) => contest,
            None => match roster.sweep(now, deadline) {
                Slice::Done(Some(large)) => self.begin_contest(large, now),
                Slice::Done(None) => return Slice::Done(()),
                Slice::Unfinished(wait) => return Slice::Unfinished(wait),
            },
        };
        self.contest = self.go_on(contest, roster, sampler, most, now, deadline);
        match self.contest {
            None => Slice::Done(()),
            Some(_) => Slice::Unfinished(Duration::ZERO),
        }
    }

    /// Those who are to have a warm start join at once.
    fn admit_started(
        &mut self,
        roster: &mut Roster,
        sampler: &mut dyn Sampler,
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
            let opened = Member::open(pid, identity, terms);
            match opened.and_then(|member| self.admit(member, sampler, now)) {
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

    fn admit(&mut self, member: Member, sampler: &mut dyn Sampler, judged: Duration) -> Result<()> {
        // Processes that have left make room: descriptors may be few.
        self.forget_the_gone(sampler);
        sampler.bind(member.handle.id)?;
        self.saw_thp_disabled |= member.thp_disabled;
        if !self.order.contains(&member.handle.id) {
            self.order.push(member.handle.id);
        }
        let joined = Joined {
            judged,
            program: None,
            starts_until: Duration::ZERO,
            member,
        };
        self.members.insert(joined.member.handle.id.pid, joined);
        Ok(())
    }

    /// Asks other rules about everybody.
    pub(crate) fn judge_again(&mut self, roster: &Roster) {
        self.members.retain(|_, joined| joined.judge(roster));
        // Those who were to join were judged by the rules before.
        self.contest = None;
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
