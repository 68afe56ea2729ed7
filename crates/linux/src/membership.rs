//! Who is under management: joining, staying, leaving.

use crate::bell::Bell;
use crate::error::LinuxError;
use crate::identity::{UserNames, identify};
use crate::process::{self, ProcessHandle};
use crate::roster::{Roster, VERDICT_AGE};
use crate::sampler::{Member, Sampler};
use hawkeye_manager::MachineError;
use hawkeye_policy::{Identity, ProcessId, Rules, Selection, Terms};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
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
            let Ok(identity) = identify(pid, &mut self.users) else {
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
        self.admit_started(roster, sampler, most, now);
        let Some(large) = roster.sweep(now) else {
            return;
        };
        let stays: HashSet<u32> = large.iter().map(|seen| seen.pid).collect();
        self.members
            .retain(|pid, joined| stays.contains(pid) || now < joined.starts_until);
        self.renew_verdicts(roster, now);
        for pid in roster.candidates(&large, now) {
            if self.members.len() >= most {
                break;
            }
            if self.members.contains_key(&pid) {
                continue;
            }
            let joined = match roster.judge(pid, &mut self.users, now) {
                Ok(Some((identity, terms))) => process::may_be_managed(pid, &terms)
                    .and_then(|()| self.admit(pid, identity, terms, sampler, now)),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match joined {
                Ok(()) | Err(LinuxError::NoSuchProcess(_)) => {}
                Err(error) => roster.refuse(pid, now, &error),
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
        for (pid, identity, terms) in roster.warm_starts(&mut self.users) {
            if self.members.len() >= most {
                break;
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
            starts_until: Duration::ZERO,
        };
        self.members.insert(pid, joined);
        Ok(())
    }

    /// Asks anew about those whose verdict is old: they may be called otherwise by now, or be elsewhere.
    fn renew_verdicts(&mut self, roster: &Roster, now: Duration) {
        let users = &mut self.users;
        self.members.retain(|pid, joined| {
            if now < joined.judged + VERDICT_AGE {
                return true;
            }
            // One that can't be read just now is judged by what it was.
            if let Ok(identity) = identify(*pid, users) {
                joined.member.identity = identity;
            }
            joined.judged = now;
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

impl Joined {
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
