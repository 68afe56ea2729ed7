//! Names of address spaces.

/// An address space. The number of one that was removed is given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub(super) u16);
