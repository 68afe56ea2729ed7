//! The scheduler's counts of a thread.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time for which a thread has run, and time for which it was ready but waited for a core. The
/// source is `/proc/PID/task/TID/schedstat` (`Documentation/scheduler/sched-stats.rst`). For a
/// thread that is running, the counts are up to one tick behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a core.
    pub ran: Duration,
    /// Time ready but without a core.
    pub waited: Duration,
}

impl SchedStat {
    /// Counts of the calling thread; `None` where the kernel does not keep them
    /// (`CONFIG_SCHED_INFO`).
    pub fn of_this_thread() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// Counts of the first thread of a process.
    pub fn of_first_thread(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?)
    }

    /// Parses the line of such a file.
    pub fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok().map(Duration::from_nanos);
        Some(Self { ran: next()?, waited: next()? })
    }
}

impl Add for SchedStat {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { ran: self.ran + other.ran, waited: self.waited + other.waited }
    }
}

impl Sub for SchedStat {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let [ran, waited] = [5, 7].map(Duration::from_millis);
        let read = SchedStat::parse("5000000 7000000 12\n");
        assert_eq!(read, Some(SchedStat { ran, waited }));
        assert_eq!(SchedStat::parse("5"), None);
        assert!(SchedStat::of_this_thread().is_some());
    }
}
