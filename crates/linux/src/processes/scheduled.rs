//! What the scheduler counts of a thread.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time that a thread has run, and time that it could have run but waited for a core (`/proc/PID/task/TID/schedstat`,
/// `Documentation/scheduler/sched-stats.rst`). Of a thread that runs just then it is up to a tick behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// On a core.
    pub ran: Duration,
    /// Ready for one.
    pub waited: Duration,
}

impl Scheduled {
    /// Of the calling thread; `None` where the kernel doesn't keep it (`CONFIG_SCHED_INFO`).
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// Of the first thread of a process.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?)
    }

    /// The line of such a file.
    pub fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok().map(Duration::from_nanos);
        Some(Self {
            ran: next()?,
            waited: next()?,
        })
    }
}

impl Add for Scheduled {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            ran: self.ran + other.ran,
            waited: self.waited + other.waited,
        }
    }
}

impl Sub for Scheduled {
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
        let ms = Duration::from_millis;
        let read = Scheduled::parse("5000000 7000000 12\n");
        assert_eq!(
            read,
            Some(Scheduled {
                ran: ms(5),
                waited: ms(7)
            })
        );
        assert_eq!(Scheduled::parse("5"), None);
        assert!(Scheduled::now().is_some());
    }
}
