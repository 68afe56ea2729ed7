//! The payer of the kernel's work: the thread or program that loses the time.

use super::SpaceId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A thread of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelThread {
    /// kswapd: reclaims when memory runs low.
    Kswapd,
    /// Zeroes free memory.
    Zeroing,
    /// Merges pages of zeros.
    Merging,
}

/// The program or thread that waits while something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payer {
    /// The program that owns an address space.
    Program(SpaceId),
    /// A thread of the kernel.
    Kernel(KernelThread),
    /// The huge-page manager.
    Manager,
}

/// Time that was charged to threads of the kernel and to the manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    pub(super) by_thread: BTreeMap<KernelThread, Duration>,
    pub(super) by_manager: Duration,
}
