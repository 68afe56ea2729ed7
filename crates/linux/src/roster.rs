//! Which of the machine's processes are managed: those that are large enough and that the rules include.

use crate::census::{Census, Sighting, Sweep};
use crate::error::LinuxError;
use crate::execs::Execs;
use crate::identity::{UserNames, identify};
use crate::process::{self, thread_cpu};
use hawkeye_policy::{Identity, ProcessId, Rules, Selection, Terms, Verdict};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Finds processes and judges them. Who is managed at the moment is the caller's to know.
#[derive(Debug)]
pub struct Roster {
    census: Census,
    rules: Rules,
    selection: Selection,
    next_sweep: Duration,
    /// File descriptors that this process may have.
    descriptors: u64,
    /// Large processes that are not managed.
    passed_over: HashMap<u32, PassedOver>,
    costs: SweepCosts,
    /// Where some rule wants warm starts.
    execs: Option<Execs>,
    /// Processes just started that may fall under such a rule.
    started: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PassedOver {
    until: Duration,
    /// How long the next failure counts; zero for those whom the rules exclude.
    next: Duration,
}

/// What finding processes has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SweepCosts {
    /// Sweeps done.
    pub sweeps: u64,
    /// CPU time they took together.
    pub cpu: Duration,
    /// CPU time of the last one.
    pub last: Duration,
    /// Processes that the last one came by.
    pub processes: usize,
}

/// How long a verdict holds: programs are executed, renamed, and moved to other cgroups.
pub const VERDICT_AGE: Duration = Duration::from_secs(60);
/// A process that could not be managed is tried again after this long, and then after twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(480);
/// Between its fork and its exec a process looks like its parent: as large, and not worth a look.
const LEAST_AGE: Duration = Duration::from_secs(1);

impl Roster {
    /// Starts with nobody known. Each managed process takes file descriptors, so this process's own limit is raised as
    /// far as it may.
    pub fn new(rules: Rules, selection: Selection) -> Result<Self, LinuxError> {
        Ok(Self {
            census: Census::open()?,
            descriptors: raise_descriptor_limit(),
            execs: hear_of_starts(&rules),
            started: Vec::new(),
            rules,
            selection,
            next_sweep: Duration::ZERO,
            passed_over: HashMap::new(),
            costs: SweepCosts::default(),
        })
    }

    /// Other rules from now on; everybody whom the old ones excluded is judged anew.
    pub fn set_rules(&mut self, rules: Rules, selection: Selection) {
        if rules.want_warm_starts() != self.execs.is_some() {
            self.execs = hear_of_starts(&rules);
        }
        self.rules = rules;
        self.selection = selection;
        self.passed_over.clear();
        self.next_sweep = Duration::ZERO;
    }

    /// What to wait for to hear of programs that are started.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.execs.as_ref().map(Execs::fd)
    }

    /// Hears who was started; whether a warm start may be wanted for some of them.
    pub fn hear(&mut self) -> bool {
        let heard = self.execs.as_ref().map(Execs::heard).unwrap_or_default();
        let wanted = heard
            .into_iter()
            .filter(|program| self.rules.may_want_warm_start(&program.command));
        self.started.extend(wanted.map(|program| program.pid));
        !self.started.is_empty()
    }

    /// Who was started since the last call and is to have a warm start, and on which terms.
    pub fn warm_starts(&mut self, users: &mut UserNames) -> Vec<(u32, Identity, Terms)> {
        self.hear();
        let started = std::mem::take(&mut self.started);
        let judge = |pid| {
            // One that has ended already wants nothing.
            let who = identify(pid, users).ok()?;
            let terms = self.verdict(&who)?;
            terms.warm_bytes.map(|_| (pid, who, terms))
        };
        started.into_iter().filter_map(judge).collect()
    }

    /// What finding processes has cost.
    pub fn costs(&self) -> SweepCosts {
        self.costs
    }

    /// How many processes are managed at a time, at the most, where each takes so many file descriptors.
    pub fn max_processes(&self, descriptors_each: usize) -> usize {
        let room = room(self.descriptors, descriptors_each);
        self.selection.max_processes().min(room)
    }

    /// Looks at all processes, if it is time: those large enough to stay, the large ones first.
    pub fn sweep(&mut self, now: Duration) -> Option<Vec<Sighting>> {
        if now < self.next_sweep {
            return None;
        }
        let begun = thread_cpu();
        let found = self.census.sweep(self.selection.leaves_under_bytes());
        let took = thread_cpu().saturating_sub(begun);
        self.next_sweep = now.saturating_add(self.selection.pause_after(took));
        let Sweep {
            processes,
            mut large,
        } = match found {
            Ok(sweep) => sweep,
            Err(error) => {
                tracing::warn!("processes can't be looked for at the moment: {error}");
                return None;
            }
        };
        self.costs = SweepCosts {
            sweeps: self.costs.sweeps + 1,
            cpu: self.costs.cpu + took,
            last: took,
            processes,
        };
        large.retain(|seen| seen.pid != std::process::id());
        large.sort_by_key(|seen| std::cmp::Reverse(seen.anonymous_bytes));
        let there: HashSet<u32> = large.iter().map(|seen| seen.pid).collect();
        self.passed_over.retain(|pid, _| there.contains(pid));
        Some(large)
    }

    /// Who among these might join: large enough, and neither excluded nor refused just now.
    pub fn candidates(&self, large: &[Sighting], now: Duration) -> Vec<u32> {
        let passed_over = |pid| {
            let entry = self.passed_over.get(&pid);
            entry.is_some_and(|entry: &PassedOver| now < entry.until)
        };
        large
            .iter()
            .filter(|seen| seen.anonymous_bytes >= self.selection.joins_at_bytes())
            .map(|seen| seen.pid)
            .filter(|pid| !passed_over(*pid))
            .collect()
    }

    /// Whether a process is to be managed, and on which terms; `None` if not, or not yet.
    ///
    /// # Errors
    /// It has ended, or can't be read.
    pub fn judge(
        &mut self,
        pid: u32,
        users: &mut UserNames,
        now: Duration,
    ) -> Result<Option<(Identity, Terms)>, LinuxError> {
        let who = identify(pid, users)?;
        if age(pid).is_none_or(|age| age < LEAST_AGE) {
            return Ok(None);
        }
        Ok(match self.verdict(&who) {
            Some(terms) => Some((who, terms)),
            None => {
                let until = now.saturating_add(VERDICT_AGE);
                let next = Duration::ZERO;
                self.passed_over.insert(pid, PassedOver { until, next });
                None
            }
        })
    }

    /// On which terms one who is known is managed; `None`: not at all.
    pub fn verdict(&self, who: &Identity) -> Option<Terms> {
        match self.rules.judge(who) {
            Verdict::Include(terms) => Some(terms),
            Verdict::Exclude { .. } => None,
        }
    }

    /// Why a process that could be managed is not, as a sentence.
    pub fn why_not(&self, pid: u32) -> Option<String> {
        let who = identify(pid, &mut UserNames::default()).ok()?;
        if let Verdict::Exclude { rule } = self.rules.judge(&who) {
            let rule = rule.and_then(|place| self.rules.get(place));
            return Some(rule.map_or_else(
                || format!("process {pid} falls under no rule, and such processes are left alone"),
                |rule| format!("rule {:?} excludes process {pid}", rule.name),
            ));
        }
        if self.passed_over.contains_key(&pid) {
            return Some(format!(
                "process {pid} could not be managed when that was last tried; the log says why"
            ));
        }
        Some(format!(
            "process {pid} is not under management: it has less than {} MiB of anonymous memory, was started just now, or there are {} larger ones",
            self.selection.joins_at_bytes() >> 20,
            self.selection.max_processes()
        ))
    }

    /// A process could not be managed: it is left alone for a while. Only the first time is reported.
    pub fn refuse(&mut self, pid: u32, now: Duration, error: &LinuxError) {
        let before = self.passed_over.get(&pid).map(|entry| entry.next);
        let pause = before.filter(|next| !next.is_zero()).unwrap_or(FIRST_PAUSE);
        if before.is_none_or(|next| next.is_zero()) {
            tracing::warn!("process {pid} can't be managed for now: {error}");
        }
        let entry = PassedOver {
            until: now.saturating_add(pause),
            next: (pause * 2).min(LONGEST_PAUSE),
        };
        self.passed_over.insert(pid, entry);
    }
}

/// Where some rule wants warm starts; without BPF there are none.
fn hear_of_starts(rules: &Rules) -> Option<Execs> {
    if !rules.want_warm_starts() {
        return None;
    }
    let execs = Execs::attach();
    execs
        .inspect_err(|error| tracing::warn!("no process is warm from its start: {error}"))
        .ok()
}

/// Raises the limit of open files as far as it may; what it is then.
fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// How many processes that many file descriptors are enough for, with some left for everything else.
fn room(descriptors: u64, each: usize) -> usize {
    const OTHERS: u64 = 128;
    let left = usize::try_from(descriptors.saturating_sub(OTHERS)).unwrap_or(usize::MAX);
    (left / each.max(1)).max(1)
}

/// Time since a process was started; `None` where it has ended.
fn age(pid: u32) -> Option<Duration> {
    let stat = procfs::process::Process::new(pid as i32)
        .ok()?
        .stat()
        .ok()?;
    let start_ticks = stat.starttime;
    Some(process::age(ProcessId { pid, start_ticks }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::Unmatched;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const MIB: u64 = 1 << 20;

    fn roster() -> Roster {
        let rules = Rules::new(Vec::new(), Unmatched::Include);
        Roster::new(rules, Selection::default()).expect("/proc is there")
    }

    fn seen(pid: u32, mib: u64) -> Sighting {
        Sighting {
            pid,
            anonymous_bytes: mib * MIB,
        }
    }

    #[test]
    fn nobody_is_looked_for_more_often_than_set() {
        let mut roster = roster();
        assert!(roster.sweep(S(0)).is_some());
        assert!(roster.sweep(S(4)).is_none());
        roster.set_rules(Rules::default(), Selection::default());
        assert!(roster.sweep(S(4)).is_some(), "new rules, a new look");
        assert_eq!(roster.costs().sweeps, 2);
        assert!(roster.costs().processes > 0);
    }

    #[test]
    fn no_more_join_than_file_descriptors_are_enough_for() {
        assert_eq!(room(1024, 1), 896);
        assert_eq!(room(1024, 10), 89);
        assert_eq!(room(0, 10), 1);
        assert!(room(u64::MAX, 10) > 1_000_000);
    }

    #[test]
    fn the_manager_never_manages_itself() {
        let _memory = vec![1u8; 80 << 20];
        let found = roster().sweep(S(0)).expect("the first sweep is due");
        assert!(found.iter().all(|seen| seen.pid != std::process::id()));
    }

    #[test]
    fn joining_takes_more_memory_than_staying() {
        let large = [seen(7, 100), seen(8, 40)];
        assert_eq!(roster().candidates(&large, S(0)), [7]);
    }

    #[test]
    fn one_that_fails_is_tried_again_ever_more_seldom() {
        let mut roster = roster();
        let large = [seen(7, 100)];
        let mut now = S(0);
        for seconds in [30, 60, 120, 240, 480, 480] {
            assert_eq!(roster.candidates(&large, now), [7]);
            roster.refuse(7, now, &LinuxError::NoSuchProcess(7));
            now += S(seconds);
            assert!(
                roster
                    .candidates(&large, now - Duration::from_nanos(1))
                    .is_empty()
            );
        }
        assert_eq!(roster.candidates(&large, now), [7]);
    }

    #[test]
    fn who_is_excluded_is_judged_again_in_a_minute_or_under_new_rules() {
        let rules = Rules::new(Vec::new(), Unmatched::Exclude);
        let mut roster = Roster::new(rules, Selection::default()).expect("/proc is there");
        let init = 1;
        let large = [seen(init, 100)];
        let judged = roster.judge(init, &mut UserNames::default(), S(0));
        assert!(judged.is_ok_and(|included| included.is_none()));
        assert!(roster.candidates(&large, S(59)).is_empty());
        assert_eq!(roster.candidates(&large, S(60)), [init]);
        roster.set_rules(Rules::default(), Selection::default());
        assert_eq!(roster.candidates(&large, S(1)), [init]);
    }

    #[test]
    fn a_process_that_has_ended_is_nobody() {
        let judged = roster().judge(u32::MAX / 2, &mut UserNames::default(), S(0));
        assert!(matches!(judged, Err(LinuxError::NoSuchProcess(_))));
    }
}
