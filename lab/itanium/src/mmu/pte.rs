//! Entries of page tables.

/// A page-table entry: the short format of 8 bytes, with the page size in the bits that the hardware ignores (thesis, section
/// 5.2.2). Every base page has one; those of a large page differ in their frame only (section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte {
    /// Number of the frame, in base pages; 0 where there is none yet.
    pub frame: u32,
    /// The page has 2^order base pages.
    pub order: u8,
    /// Backed by memory.
    pub present: bool,
    /// May be written to without a fault.
    pub writable: bool,
}

impl Pte {
    /// A page of this size without memory.
    pub const fn sized(order: u8) -> Self {
        Self {
            frame: 0,
            order,
            present: false,
            writable: false,
        }
    }

    /// Whether the short format's walker takes it in a region of this preferred page size: the kernel keeps entries of all other pages
    /// invalid for it, as it would insert them with that size (section 5.4.1).
    pub const fn valid_for_walker(self, preferred: u8) -> bool {
        self.present && self.order == preferred
    }
}
