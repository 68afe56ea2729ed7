//! What follows a sweep: old verdicts are renewed, the slots go to the most important processes, and those
//! of them that are new join.

use super::{Joined, Membership};
use crate::error::LinuxError;
use crate::processes::census::{Program, Sighting};
use crate::processes::identity::identify;
use crate::processes::process;
use crate::processes::roster::{Roster, VERDICT_AGE};
use crate::sample::sampler::{Member, Sampler};
use hawkeye_policy::ranking::choose;
use hawkeye_policy::{Contender, Identity, ProcessId, Terms};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How far it has come. Each step ends at its deadline and goes on where it was.
pub(super) struct Contest {
    large: Vec<Sighting>,
    /// Members whose verdicts are still to be renewed.
    to_renew: VecDeque<u32>,
    slots: Option<Slots>,
}

/// Who competes for the slots.
struct Slots {
    most: usize,
    contenders: Vec<Contender>,
    /// Newcomers that the rules were asked about.
    judged: HashSet<ProcessId>,
    /// Those of them that the rules include, and that have not joined yet.
    included: VecDeque<Newcomer>,
    /// Who gets a slot; `None` while some of them are still to be judged.
    chosen: Option<HashSet<ProcessId>>,
}

struct Newcomer {
    process: ProcessId,
    identity: Identity,
    terms: Terms,
}

impl Membership {
    /// Lets go who is small now, or runs another program.
    pub(super) fn begin_contest(&mut self, large: Vec<Sighting>, now: Duration) -> Contest {
        let seen: HashMap<u32, &Sighting> =
            large.iter().map(|seen| (seen.process.pid, seen)).collect();
        self.members.retain(|pid, joined| {
            let executed = seen.get(pid).is_some_and(|seen| joined.has_executed(seen));
            !executed && (seen.contains_key(pid) || now < joined.starts_until)
        });
        let old = self.members.iter().filter(|(pid, joined)| {
            let program = seen.get(pid).map(|seen| &seen.program);
            let same = program.is_none() || program == joined.program.as_ref();
            let fresh = now < joined.judged + VERDICT_AGE;
            !(same && fresh) || joined.member.identity.user_pending
        });
        let to_renew = old.map(|(pid, _)| *pid).collect();
        Contest {
            large,
            to_renew,
            slots: None,
        }
    }

    /// Goes on until the deadline; what is left then.
    pub(super) fn go_on(
        &mut self,
        mut contest: Contest,
        roster: &mut Roster,
        sampler: &mut dyn Sampler,
        most: usize,
        now: Duration,
        deadline: Instant,
    ) -> Option<Contest> {
        let late = || Instant::now() >= deadline;
        while let Some(pid) = contest.to_renew.pop_front() {
            self.renew_verdict(pid, contest.program(pid), roster, now);
            if late() {
                return Some(contest);
            }
        }
        let mut slots = match contest.slots.take() {
            Some(slots) => slots,
            None => self.begin_slots(&contest.large, roster, most, now),
        };
        if slots.chosen.is_none() {
            if !slots.judge(roster, now, late) {
                contest.slots = Some(slots);
                return Some(contest);
            }
            self.take_slots(&slots, roster);
        }
        while let Some(newcomer) = slots.included.pop_front() {
            if slots.has_chosen(newcomer.process) {
                let program = contest.program(newcomer.process.pid).cloned();
                self.join(newcomer, program, roster, sampler, now);
            }
            if late() {
                contest.slots = Some(slots);
                return Some(contest);
            }
        }
        None
    }

    /// Asks the rules again about a process whose verdict is old, whose command or user has changed, or
    /// whose user had no known name.
    fn renew_verdict(
        &mut self,
        pid: u32,
        program: Option<&Program>,
        roster: &Roster,
        now: Duration,
    ) {
        let Some(joined) = self.members.get_mut(&pid) else {
            return;
        };
        // One that can't be read just now is judged by what it was.
        if let Ok(identity) = identify(pid, roster.users()) {
            joined.member.identity = identity;
        }
        joined.judged = now;
        joined.program = program.cloned();
        let stays =
            joined.judge(roster) && process::may_be_managed(pid, &joined.member.terms).is_ok();
        if !stays {
            self.members.remove(&pid);
        }
    }

    fn begin_slots(
        &self,
        large: &[Sighting],
        roster: &mut Roster,
        most: usize,
        now: Duration,
    ) -> Slots {
        // One that has just started keeps its slot.
        let is_starting = |joined: &Joined| now < joined.starts_until;
        let starting = self.members.values().filter(|joined| is_starting(joined));
        let most = most.saturating_sub(starting.count());
        let competes = |seen: &&Sighting| {
            let joined = self.members.get(&seen.process.pid);
            !joined.is_some_and(is_starting)
        };
        let competing: Vec<Sighting> = large.iter().filter(competes).cloned().collect();
        Slots {
            most,
            contenders: roster.contenders(&competing, |process| self.get(process).is_some(), now),
            judged: HashSet::new(),
            included: VecDeque::new(),
            chosen: None,
        }
    }

    /// Those who hold a slot that others get lose it.
    fn take_slots(&mut self, slots: &Slots, roster: &mut Roster) {
        let lost = slots
            .contenders
            .iter()
            .filter(|it| !slots.has_chosen(it.process));
        for it in lost {
            roster.note_outranked(it.process, slots.most);
            if self.get(it.process).is_some() {
                self.members.remove(&it.process.pid);
                tracing::debug!("process {} gives its slot to another", it.process);
            }
        }
    }

    fn join(
        &mut self,
        newcomer: Newcomer,
        program: Option<Program>,
        roster: &mut Roster,
        sampler: &mut dyn Sampler,
        now: Duration,
    ) {
        let Newcomer {
            process,
            identity,
            terms,
        } = newcomer;
        let admitted = process::may_be_managed(process.pid, &terms)
            .and_then(|()| Member::open(process.pid, identity, terms))
            .and_then(|member| {
                // Its pid may be another's by now.
                if member.handle.id != process {
                    return Err(LinuxError::NoSuchProcess(process.pid));
                }
                self.admit(member, sampler, now)
            });
        match admitted {
            Ok(()) => {
                if let Some(joined) = self.members.get_mut(&process.pid) {
                    joined.program = program;
                }
            }
            Err(LinuxError::NoSuchProcess(_)) => {}
            Err(error) => roster.refuse(process.pid, now, &error),
        }
    }
}

impl Contest {
    fn program(&self, pid: u32) -> Option<&Program> {
        let seen = self.large.iter().find(|seen| seen.process.pid == pid);
        seen.map(|seen| &seen.program)
    }
}

impl Slots {
    fn has_chosen(&self, process: ProcessId) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_some_and(|chosen| chosen.contains(&process))
    }

    /// Asks the rules about those who would get a slot, until all who do are judged; whether that is so.
    /// Contenders that the rules exclude are taken out, and others may get their slots.
    fn judge(&mut self, roster: &mut Roster, now: Duration, late: impl Fn() -> bool) -> bool {
        loop {
            let chosen: HashSet<ProcessId> =
                choose(&self.contenders, self.most).into_iter().collect();
            let is_new = |it: &&Contender| {
                !it.managed && chosen.contains(&it.process) && !self.judged.contains(&it.process)
            };
            let new: Vec<ProcessId> = self
                .contenders
                .iter()
                .filter(is_new)
                .map(|it| it.process)
                .collect();
            if new.is_empty() {
                self.chosen = Some(chosen);
                return true;
            }
            for process in new {
                self.judged.insert(process);
                match roster.judge(process.pid, now) {
                    Ok(Some((identity, terms))) => self.included.push_back(Newcomer {
                        process,
                        identity,
                        terms,
                    }),
                    Ok(None) | Err(LinuxError::NoSuchProcess(_)) => self.exclude(process),
                    Err(error) => {
                        roster.refuse(process.pid, now, &error);
                        self.exclude(process);
                    }
                }
                if late() {
                    return false;
                }
            }
        }
    }

    fn exclude(&mut self, process: ProcessId) {
        self.contenders.retain(|it| it.process != process);
    }
}
