//! The load that every service carries, and the clock of its work.

use crate::error::BenchResult;
use std::process::Command;
use std::time::{Duration, Instant};

/// The amount of data and the course of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChurnLoad {
    /// Values when a service is full.
    pub mib: u64,
    /// How often most values are deleted, and others stored.
    pub deletions: u64,
    /// Time for which a service that is half full waits before the load goes on. A daemon finds it
    /// meanwhile.
    pub settle: Duration,
    /// Time between a deletion and the next fill. It does not count as work.
    pub pause: Duration,
}

/// Share of the values that is deleted.
pub(super) const DELETED_PERCENT: u32 = 85;

/// Makes a command run elsewhere, such as in a cgroup.
pub(super) type CommandWrapper<'a> = &'a dyn Fn(&Command) -> Command;

/// Operations, and the time that they took.
#[derive(Debug, Default)]
pub(super) struct WorkClock {
    operations: u64,
    worked: Duration,
}

impl WorkClock {
    pub(super) fn time<T>(
        &mut self,
        operations: u64,
        work: impl FnOnce() -> BenchResult<T>,
    ) -> BenchResult<T> {
        let begun = Instant::now();
        let done = work()?;
        self.worked += begun.elapsed();
        self.operations += operations;
        Ok(done)
    }

    pub(super) fn operations_per_s(&self) -> f64 {
        self.operations as f64 / self.worked.as_secs_f64()
    }
}
