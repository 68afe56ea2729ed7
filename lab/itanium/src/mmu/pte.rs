//! Entries of page tables.

/// A page-table entry: the short format of 8 bytes, with the page size in the bits that the
/// hardware ignores (thesis, section 5.2.2). Every base page has one. The entries of a large page
/// differ only in their frame (section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte {
    /// Number of the frame, in base pages; 0 without a frame.
    pub frame: u32,
    /// The page has 2^order base pages.
    pub order: u8,
    /// Backed by memory.
    pub present: bool,
    /// Writable without a fault.
    pub writable: bool,
}

impl Pte {
    /// An entry for a page of this size without memory.
    pub const fn without_memory(order: u8) -> Self {
        Self {
            frame: 0,
            order,
            present: false,
            writable: false,
        }
    }

    /// The entry of the first page of a page with memory.
    pub const fn present(frame: u32, order: u8, writable: bool) -> Self {
        Self {
            frame,
            order,
            present: true,
            writable,
        }
    }

    /// Whether the short format's walker takes the entry in a region of this preferred page size.
    /// The kernel keeps entries of all other pages invalid for the walker, which would insert them
    /// with that size (section 5.4.1).
    pub const fn valid_for_walker(self, preferred: u8) -> bool {
        self.present && self.order == preferred
    }
}
