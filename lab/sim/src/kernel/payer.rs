//! Whose time the kernel's work takes.

use super::SpaceId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A thread of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelThread {
    /// Reclaims when memory runs low.
    Kswapd,
    /// Promotes.
    Khugepaged,
    /// Zeroes free memory.
    Zeroing,
    /// Merges pages of zeros.
    Merging,
}

impl KernelThread {
    /// All.
    pub const ALL: [Self; 4] = [Self::Kswapd, Self::Khugepaged, Self::Zeroing, Self::Merging];
}

/// Who waits while something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// The program that owns an address space.
    Program(SpaceId),
    /// A thread of the kernel.
    Kernel(KernelThread),
    /// The huge-page manager.
    Manager,
}

/// Time, and who pays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid {
    /// Who.
    pub by: Payer,
    /// How much.
    pub time: Duration,
}

/// Time that was charged to threads of the kernel and to the manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    by_thread: BTreeMap<KernelThread, Duration>,
    by_manager: Duration,
}

impl Accounts {
    pub(super) fn charge_thread(&mut self, thread: KernelThread, time: Duration) {
        *self.by_thread.entry(thread).or_default() += time;
    }

    pub(super) fn charge_manager(&mut self, time: Duration) {
        self.by_manager += time;
    }

    pub(super) fn thread_time(&self, thread: KernelThread) -> Duration {
        self.by_thread.get(&thread).copied().unwrap_or_default()
    }

    pub(super) fn manager_time(&self) -> Duration {
        self.by_manager
    }
}
