//! Whose time the kernel's work takes.

use super::SpaceId;
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
