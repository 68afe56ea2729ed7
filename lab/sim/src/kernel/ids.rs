//! Numbers of address spaces and of files.

use std::fmt;

/// An address space of a [`SimulatedKernel`](super::SimulatedKernel), in order of creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub(crate) u32);

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A file of a [`SimulatedKernel`](super::SimulatedKernel), in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedFileId(pub(crate) u32);
