//! Owners of allocated frames: the reverse mapping.

/// A frame's owner. Neighbouring frames of an allocation have neighbouring indices: one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrameOwner {
    /// Anonymous memory of an address space, at this virtual page number.
    Anonymous { space: u32, page: u64 },
    /// A page of the page cache, by its place in the order in which the cache was filled.
    Cache { page: u64 },
    /// The kernel; such a frame can't be moved.
    Kernel { frame: u64 },
    /// Reserved for a virtual page of an address space that was not touched yet (FreeBSD).
    Reserved { space: u32, page: u64 },
    /// Shared memory: a page of a file, whatever maps it.
    File { file: u32, page: u64 },
}

/// Page numbers have 36 bits, address spaces and files 24.
const PAGE_BITS: u32 = 36;
const ID_BITS: u32 = 24;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

impl FrameOwner {
    /// The owner as one number; the next index has the next number.
    pub(crate) fn pack(self) -> u64 {
        let (kind, id, page) = match self {
            Self::Anonymous { space, page } => (0, space, page),
            Self::Cache { page } => (1, 0, page),
            Self::Kernel { frame } => (2, 0, frame),
            Self::Reserved { space, page } => (3, space, page),
            Self::File { file, page } => (4, file, page),
        };
        kind << (PAGE_BITS + ID_BITS) | (u64::from(id) & ID_MASK) << PAGE_BITS | page & PAGE_MASK
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let page = packed & PAGE_MASK;
        let id = (packed >> PAGE_BITS & ID_MASK) as u32;
        match packed >> (PAGE_BITS + ID_BITS) {
            0 => Self::Anonymous { space: id, page },
            1 => Self::Cache { page },
            2 => Self::Kernel { frame: page },
            3 => Self::Reserved { space: id, page },
            _ => Self::File { file: id, page },
        }
    }

    pub(crate) fn is_movable(self) -> bool {
        matches!(self, Self::Anonymous { .. } | Self::Cache { .. } | Self::File { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_everything() {
        for owner in [
            FrameOwner::Anonymous { space: 7, page: PAGE_MASK },
            FrameOwner::Cache { page: 12 },
            FrameOwner::Kernel { frame: 1 << 28 },
            FrameOwner::Reserved { space: 0xff_ffff, page: 0 },
            FrameOwner::File { file: 5, page: PAGE_MASK },
        ] {
            assert_eq!(FrameOwner::unpack(owner.pack()), owner);
        }
        let (low, high) = (FrameOwner::Cache { page: 1 }, FrameOwner::Cache { page: 2 });
        assert_eq!(low.pack() + 1, high.pack());
    }
}
