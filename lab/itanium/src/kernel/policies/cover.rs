//! The thesis' own policy (section 5.5.4): the rule of N. Shimizu and K. Takatori's patches (2003)
//! on Itanium.

use super::PageSizeRules;

/// `mmap` covers a mapping by the largest pages that are aligned and fit. Each page gets its memory
/// at its first touch, or is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover;

impl PageSizeRules for Cover {
    fn sizes_at_map(&self) -> bool {
        true
    }
}
