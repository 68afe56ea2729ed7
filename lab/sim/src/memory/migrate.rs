//! Who may move away from where.

/// What a pageblock is used for (`enum migratetype` of `include/linux/mmzone.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrateType {
    /// The kernel's own memory.
    Unmovable,
    /// What compaction can move: programs' memory and the page cache.
    Movable,
    /// Kernel memory that can be given back (caches of inodes and directory entries).
    Reclaimable,
}

impl MigrateType {
    /// All.
    pub const ALL: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Whom to raid when there is nothing left, in this order (`fallbacks` in `mm/page_alloc.c`).
    pub(crate) fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}
