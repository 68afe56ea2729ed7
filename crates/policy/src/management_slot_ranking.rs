//! Which processes are managed when more of them qualify than there are slots.

use crate::observation::ProcessId;
use crate::saturating_cast::ratio_or_zero;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A process that is or could be managed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagementSlotCandidate {
    /// The process.
    pub process: ProcessId,
    /// Its user's number.
    pub user: u32,
    /// Its own memory, in bytes (see [`estimate_unshared_bytes_of_family`]).
    pub own_bytes: u64,
    /// CPU time it uses, in cores.
    pub cores: f64,
    /// Whether it has a slot now.
    pub managed: bool,
}

impl ManagementSlotCandidate {
    /// A process that uses a whole core counts as if it had this many times its memory.
    const BUSY_FACTOR: f64 = 8.0;
    /// A process must be this many times as important as the process that it replaces.
    const HYSTERESIS: f64 = 1.5;

    fn importance(&self) -> f64 {
        let busy = 1.0 + (Self::BUSY_FACTOR - 1.0) * self.cores.clamp(0.0, 1.0);
        let kept = if self.managed { Self::HYSTERESIS } else { 1.0 };
        self.own_bytes as f64 * busy * kept
    }

    /// The most important first. On ties managed processes come first, then older ones.
    fn compare_importance(&self, other: &Self) -> Ordering {
        let by_importance = other.importance().total_cmp(&self.importance());
        let by_slot = other.managed.cmp(&self.managed);
        let age = |it: &Self| (it.process.start_ticks, it.process.pid);
        by_importance.then(by_slot).then_with(|| age(self).cmp(&age(other)))
    }
}

/// The most slots of `slots` that one user may hold while processes of other users wait.
pub fn max_slots_per_user(slots: usize) -> usize {
    slots.div_ceil(2)
}

/// The processes that get one of `slots` slots, the most important first.
///
/// Their own memory and CPU time decide. No user gets more than [`max_slots_per_user`] unless slots
/// would stay empty. The result is stable: with its own result as the managed processes and nothing
/// else changed, it is the same.
pub fn choose_managed_processes(
    contenders: &[ManagementSlotCandidate],
    slots: usize,
) -> Vec<ProcessId> {
    let mut order: Vec<&ManagementSlotCandidate> = contenders.iter().collect();
    order.sort_by(|a, b| a.compare_importance(b));
    let share = max_slots_per_user(slots);
    let mut held: HashMap<u32, usize> = HashMap::new();
    let (within, beyond): (Vec<&ManagementSlotCandidate>, Vec<&ManagementSlotCandidate>) =
        order.into_iter().partition(|contender| {
            let held = held.entry(contender.user).or_default();
            *held += 1;
            *held <= share
        });
    within.into_iter().chain(beyond).take(slots).map(|contender| contender.process).collect()
}

/// Estimates how much memory each of several processes has for itself, in bytes. `family` has the
/// anonymous memory of each, the oldest process first.
///
/// The processes were forked from one program without another exec, so they may share memory by
/// copy-on-write. They have at most the memory of the smallest in common. That memory counts for
/// the oldest process. Each of the others counts with an equal part of it, plus what it has beyond.
/// If the smallest has grown since the fork, the estimate is too low for processes that also grew
/// since.
pub fn estimate_unshared_bytes_of_family(family: &[u64]) -> Vec<u64> {
    let shared = family.iter().copied().min().unwrap_or(0);
    let part = shared / family.len().max(1) as u64;
    let own = |(place, bytes): (usize, &u64)| match place {
        0 => *bytes,
        _ => bytes - shared + part,
    };
    family.iter().enumerate().map(own).collect()
}

/// CPU time that processes use, in cores, averaged over about a minute.
#[derive(Clone, Debug, Default)]
pub struct CpuUseAverages(HashMap<ProcessId, ProcessCpuAverage>);

#[derive(Clone, Copy, Debug)]
struct ProcessCpuAverage {
    at: Duration,
    used: Duration,
    cores: f64,
}

impl CpuUseAverages {
    /// Older use weighs less: e^-1 after this time.
    const MEMORY: Duration = Duration::from_secs(60);

    /// Records the CPU time that a process of this `age` has `used` up to `now`; returns its
    /// average. The first value is the average over its life.
    pub fn record_and_average(
        &mut self,
        process: ProcessId,
        now: Duration,
        age: Duration,
        used: Duration,
    ) -> f64 {
        let cores =
            |used: Duration, over: Duration| ratio_or_zero(used.as_secs_f64(), over.as_secs_f64());
        let cores = match self.0.get(&process) {
            Some(before) => {
                let passed = now.saturating_sub(before.at);
                let newest = cores(used.saturating_sub(before.used), passed);
                let kept = (-passed.as_secs_f64() / Self::MEMORY.as_secs_f64()).exp();
                before.cores * kept + newest * (1.0 - kept)
            }
            None => cores(used, age),
        };
        self.0.insert(process, ProcessCpuAverage { at: now, used, cores });
        cores
    }

    /// Forgets all processes except these.
    pub fn retain_processes(&mut self, processes: &HashSet<ProcessId>) {
        self.0.retain(|process, _| processes.contains(process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn contender(
        pid: u32,
        user: u32,
        mib: u64,
        cores: f64,
        managed: bool,
    ) -> ManagementSlotCandidate {
        ManagementSlotCandidate {
            process: ProcessId { pid, start_ticks: u64::from(pid) },
            user,
            own_bytes: mib * MIB,
            cores,
            managed,
        }
    }

    fn pids(chosen: &[ProcessId]) -> Vec<u32> {
        chosen.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn a_database_displaces_one_of_a_thousand_idle_forks() {
        let mut all: Vec<ManagementSlotCandidate> =
            (1..=1000).map(|pid| contender(pid, 65_534, 1, 0.0, true)).collect();
        all.push(contender(5000, 106, 4096, 0.2, false));
        let chosen = pids(&choose_managed_processes(&all, 1000));
        assert_eq!(chosen.len(), 1000);
        assert_eq!(chosen[0], 5000);
        let youngest = chosen.contains(&1000);
        assert!(!youngest, "of equal processes the youngest loses its slot");
    }

    #[test]
    fn a_little_more_is_not_enough_to_displace_and_half_as_much_again_is() {
        let managed = contender(1, 0, 100, 0.0, true);
        let rival = |mib| contender(2, 0, mib, 0.0, false);
        assert_eq!(pids(&choose_managed_processes(&[managed, rival(149)], 1)), [1]);
        assert_eq!(pids(&choose_managed_processes(&[managed, rival(151)], 1)), [2]);
    }

    #[test]
    fn a_busy_process_comes_before_an_idle_one_of_the_same_size() {
        let (idle, busy) = (contender(1, 0, 100, 0.0, true), contender(2, 0, 100, 1.0, false));
        assert_eq!(pids(&choose_managed_processes(&[idle, busy], 1)), [2]);
    }

    #[test]
    fn memory_shared_by_forks_counts_for_the_oldest() {
        let forks = estimate_unshared_bytes_of_family(&[64 * MIB; 64]);
        assert_eq!((forks[0], forks[1], forks[63]), (64 * MIB, MIB, MIB));
        assert_eq!(estimate_unshared_bytes_of_family(&[500, 530, 500, 500]), [500, 155, 125, 125]);
        assert_eq!(estimate_unshared_bytes_of_family(&[7]), [7]);
        assert!(estimate_unshared_bytes_of_family(&[]).is_empty());
    }

    #[test]
    fn cpu_use_covers_the_lifetime_first_and_then_the_last_minute() {
        let s = Duration::from_secs;
        let process = contender(1, 0, 1, 0.0, false).process;
        let mut usage = CpuUseAverages::default();
        assert_eq!(usage.record_and_average(process, s(0), s(100), s(50)), 0.5);
        let after_a_minute = usage.record_and_average(process, s(60), s(160), s(50));
        assert!((after_a_minute - 0.5 / std::f64::consts::E).abs() < 1e-9);
        assert_eq!(usage.record_and_average(process, s(60), s(160), s(50)), after_a_minute);
        usage.retain_processes(&HashSet::new());
        assert_eq!(usage.record_and_average(process, s(61), s(0), s(0)), 0.0);
    }

    fn crowd() -> impl Strategy<Value = Vec<ManagementSlotCandidate>> {
        let one = (0u32..4, 0u64..64, 0.0f64..2.0, any::<bool>());
        prop::collection::vec(one, 0..40).prop_map(|all| {
            let numbered = all.into_iter().zip(1..);
            numbered
                .map(|((user, mib, cores, managed), pid)| contender(pid, user, mib, cores, managed))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn slots_are_filled_and_shared(crowd in crowd(), slots in 1usize..30) {
            let chosen = choose_managed_processes(&crowd, slots);
            prop_assert_eq!(chosen.len(), slots.min(crowd.len()));
            let is_chosen = |it: &ManagementSlotCandidate| chosen.contains(&it.process);
            for user in 0..4 {
                let of_user = |it: &&ManagementSlotCandidate| it.user == user;
                let held = crowd.iter().filter(of_user).filter(|it| is_chosen(it)).count();
                let others_wait = crowd.iter().any(|it| {
                    let theirs = crowd.iter().filter(|other| other.user == it.user);
                    let theirs = theirs.filter(|other| is_chosen(other)).count();
                    it.user != user && !is_chosen(it) && theirs < max_slots_per_user(slots)
                });
                prop_assert!(held <= max_slots_per_user(slots) || !others_wait);
            }
        }

        #[test]
        fn the_choice_is_stable(crowd in crowd(), slots in 1usize..30) {
            let chosen: HashSet<ProcessId> = choose_managed_processes(&crowd, slots).into_iter().collect();
            let settled: Vec<ManagementSlotCandidate> = crowd
                .iter()
                .map(|it| ManagementSlotCandidate { managed: chosen.contains(&it.process), ..*it })
                .collect();
            let again: HashSet<ProcessId> = choose_managed_processes(&settled, slots).into_iter().collect();
            prop_assert_eq!(chosen, again);
        }

        #[test]
        fn a_forks_own_memory_is_at_most_its_anonymous_memory(family in prop::collection::vec(0u64..1 << 40, 0..40)) {
            for (own, all) in estimate_unshared_bytes_of_family(&family).iter().zip(&family) {
                prop_assert!(own <= all);
            }
        }
    }
}
