//! Which processes have done nothing since they were last read, so that a read would show nothing
//! new. Of hundreds of idle containers, almost no process has to be read.

use hawkeye_policy::ProcessId;
use std::collections::HashMap;
use std::time::Duration;

/// A process that has used less CPU time than this has hardly changed: it has gained at most some
/// 20 MiB, which is too little for an early sample.
const LITTLE_CPU: Duration = Duration::from_millis(1);
/// A process is read again after this time in any case. The kernel may have swapped its memory out,
/// or made and split huge pages, while it did nothing.
const READ_AGAIN: Duration = Duration::from_secs(300);

/// The last read of each process: of its size, or of its accesses.
#[derive(Debug, Default)]
pub(super) struct IdleProcesses {
    reads: HashMap<ProcessId, LastRead>,
}

#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Duration,
    /// CPU time of the process when the read began.
    cpu: Duration,
    /// The earlier read since which the process has done nothing. Without one, this read does not
    /// show an idle process: its size may not have settled, and its accesses not have ended.
    idle_since: Option<Duration>,
}

impl LastRead {
    fn has_done_nothing_until(&self, cpu: Duration) -> bool {
        cpu.saturating_sub(self.cpu) < LITTLE_CPU
    }
}

impl IdleProcesses {
    /// Whether the process was idle when it was last read, and has been since. It has used `cpu` so
    /// far; `None`: not known, so it may have done anything.
    pub(super) fn is_idle(&self, now: Duration, process: ProcessId, cpu: Option<Duration>) -> bool {
        let last = self.reads.get(&process);
        last.is_some_and(|last| now < last.at.saturating_add(READ_AGAIN))
            && self.idle_since(process, cpu).is_some()
    }

    /// Since when a process has done nothing, however long ago it was read.
    pub(super) fn idle_since(&self, process: ProcessId, cpu: Option<Duration>) -> Option<Duration> {
        let last = self.reads.get(&process)?;
        let is_idle = last.has_done_nothing_until(cpu?);
        last.idle_since.filter(|_| is_idle)
    }

    /// A read of a process, which began when the process had used `cpu`. `changed`: it differs from
    /// the read before.
    pub(super) fn record_read(
        &mut self,
        now: Duration,
        process: ProcessId,
        cpu: Option<Duration>,
        changed: bool,
    ) {
        let before = self.reads.remove(&process);
        if let Some(cpu) = cpu {
            let before = before.filter(|it| !changed && it.has_done_nothing_until(cpu));
            let idle_since = before.map(|before| before.idle_since.unwrap_or(before.at));
            self.reads.insert(process, LastRead { at: now, cpu, idle_since });
        }
    }

    /// What was read of a process no longer holds.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.reads.remove(&process);
    }

    /// The same of all processes.
    pub(super) fn forget_all(&mut self) {
        self.reads.clear();
    }

    pub(super) fn retain_processes(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.reads.retain(|process, _| is_there(*process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::process_with_pid;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Looks at a process at these times, in seconds, with the CPU time that it has used, in ms.
    /// Reads it where that is due. Returns the times of the reads.
    fn reads(looks: impl IntoIterator<Item = (u64, u64)>) -> Vec<u64> {
        let (mut idle, process) = (IdleProcesses::default(), process_with_pid(1));
        let looks = looks.into_iter().filter(|(at_s, cpu_ms)| {
            let due = !idle.is_idle(S(*at_s), process, Some(MS(*cpu_ms)));
            if due {
                idle.record_read(S(*at_s), process, Some(MS(*cpu_ms)), false);
            }
            due
        });
        looks.map(|(at_s, _)| at_s).collect()
    }

    #[test]
    fn a_process_that_does_nothing_is_read_twice_and_then_every_five_minutes() {
        assert_eq!(reads((0..700).map(|at_s| (at_s, 70))), [0, 1, 301, 601]);
    }

    #[test]
    fn a_process_that_runs_is_read_at_once_and_until_it_was_seen_idle() {
        let looks = [(0, 5), (1, 5), (2, 5), (3, 5), (4, 9), (5, 20), (6, 20), (7, 20)];
        assert_eq!(reads(looks), [0, 1, 4, 5, 6]);
        // It always does something.
        assert_eq!(reads((0..9).map(|at_s| (at_s, 2 * at_s))).len(), 9);
    }

    #[test]
    fn little_cpu_time_adds_up() {
        let mut idle = IdleProcesses::default();
        let process = process_with_pid(1);
        for at_s in [0, 1] {
            idle.record_read(S(at_s), process, Some(MS(10)), false);
        }
        let used_us = |us| Some(MS(10) + Duration::from_micros(us));
        assert_eq!(idle.idle_since(process, used_us(600)), Some(S(0)));
        assert!(!idle.is_idle(S(3), process, used_us(1200)));
    }

    #[test]
    fn nothing_is_idle_that_has_changed_or_is_not_known() {
        let mut idle = IdleProcesses::default();
        let process = process_with_pid(1);
        let cpu = Some(MS(10));
        assert!(!idle.is_idle(S(0), process, cpu), "it was never read");
        idle.record_read(S(0), process, cpu, false);
        idle.record_read(S(1), process, cpu, true);
        assert!(!idle.is_idle(S(2), process, cpu), "its size had changed");
        idle.record_read(S(2), process, cpu, false);
        assert!(idle.is_idle(S(3), process, cpu));
        assert!(!idle.is_idle(S(3), process, None));
        idle.forget(process);
        assert!(!idle.is_idle(S(3), process, cpu), "something was done to it");
        for at_s in [4, 5] {
            idle.record_read(S(at_s), process, None, false);
        }
        assert!(!idle.is_idle(S(6), process, cpu));
    }
}
