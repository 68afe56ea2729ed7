//! To whom an allocated frame belongs: the reverse mapping.

/// Who has a frame. Neighbouring frames of one allocation have neighbouring indices, so that runs of
/// them are kept as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Anonymous memory of a family of address spaces (those that a fork tree shares, as `anon_vma` in
    /// Linux), at this virtual page number.
    Anonymous { family: u32, page: u64 },
    /// The page cache's, by its place in the order in which it was filled.
    Cache { page: u64 },
    /// The kernel's own: it can't be moved.
    Kernel { frame: u64 },
    /// Reserved for a virtual page that was not touched yet (FreeBSD), in an address space.
    Reserved { space: u32, page: u64 },
}

/// Virtual page numbers have 36 bits, families and address spaces 24.
const PAGE_BITS: u32 = 36;
const ID_BITS: u32 = 24;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
const ID_MASK: u64 = (1 << ID_BITS) - 1;

impl Owner {
    /// As one number: that of the next index is one more.
    pub(crate) fn pack(self) -> u64 {
        let (kind, id, page) = match self {
            Self::Anonymous { family, page } => (0, family, page),
            Self::Cache { page } => (1, 0, page),
            Self::Kernel { frame } => (2, 0, frame),
            Self::Reserved { space, page } => (3, space, page),
        };
        kind << (PAGE_BITS + ID_BITS) | (u64::from(id) & ID_MASK) << PAGE_BITS | page & PAGE_MASK
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let page = packed & PAGE_MASK;
        let id = (packed >> PAGE_BITS & ID_MASK) as u32;
        match packed >> (PAGE_BITS + ID_BITS) {
            0 => Self::Anonymous { family: id, page },
            1 => Self::Cache { page },
            2 => Self::Kernel { frame: page },
            _ => Self::Reserved { space: id, page },
        }
    }

    /// Whether compaction can move it.
    pub(crate) fn is_movable(self) -> bool {
        matches!(self, Self::Anonymous { .. } | Self::Cache { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_everything() {
        for owner in [
            Owner::Anonymous {
                family: 7,
                page: PAGE_MASK,
            },
            Owner::Cache { page: 12 },
            Owner::Kernel { frame: 1 << 28 },
            Owner::Reserved {
                space: 0xff_ffff,
                page: 0,
            },
        ] {
            assert_eq!(Owner::unpack(owner.pack()), owner);
        }
        let (low, high) = (Owner::Cache { page: 1 }, Owner::Cache { page: 2 });
        assert_eq!(low.pack() + 1, high.pack());
    }
}
