//! A region's mapping, in one byte.

use super::sizes::{EntrySize, LeafSize};

/// How a region is mapped, by bits:
/// - 0-2: 0 if unmapped, else the size of its pages or groups plus one;
/// - 3-5: the host's size;
/// - 6: all pages can be loaded from and stored to, and all are held by entries of that size;
/// - 7: some of its base pages, but not all, are in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionTranslation(u8);

const SIZE: u8 = 7;
const HOST_SHIFT: u32 = 3;
const WHOLE: u8 = 1 << 6;
const SOME_GROUPS: u8 = 1 << 7;

/// What one TLB entry holds, by the lower six bits.
static ENTRIES: [EntrySize; 64] = {
    let mut entries = [EntrySize::Base; 64];
    let mut bits: u32 = 0;
    while bits < 64 {
        let size = (bits & SIZE as u32).saturating_sub(1);
        let host = bits >> HOST_SHIFT;
        entries[bits as usize] = EntrySize::from_bits(if size < host { size } else { host });
        bits += 1;
    }
    entries
};

impl RegionTranslation {
    /// Not mapped, with the host's largest pages: outside a virtual machine no host makes entries
    /// smaller.
    pub(super) const UNMAPPED: Self = Self::new(None, EntrySize::Giant, false);

    pub(super) const fn new(size: Option<EntrySize>, host: EntrySize, whole: bool) -> Self {
        let mapped = match size {
            None => 0,
            Some(size) => size as u8 + 1,
        };
        let flag = if whole { WHOLE } else { 0 };
        Self(mapped | (host as u8) << HOST_SHIFT | flag)
    }

    pub(super) const fn with_host(self, host: EntrySize) -> Self {
        Self(self.0 & !(SIZE << HOST_SHIFT) | (host as u8) << HOST_SHIFT)
    }

    /// The same for a region of base pages with some of them in groups.
    pub(super) const fn with_some_groups(self) -> Self {
        Self(self.0 | SOME_GROUPS)
    }

    /// The state of a page in a group, in a region with some groups.
    #[inline]
    pub(super) const fn as_group_member(self) -> Self {
        Self(self.0 & !SIZE | (EntrySize::BaseGroup as u8 + 1))
    }

    #[inline]
    pub(super) const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    #[inline]
    pub(super) const fn to_byte(self) -> u8 {
        self.0
    }

    /// Size of its pages; `None` if none is mapped.
    pub(super) const fn size(self) -> Option<LeafSize> {
        match self.0 & SIZE {
            0 => None,
            _ => Some(self.leaf()),
        }
    }

    /// Size of an entry that its own tables would allow, without the host. Only for mapped regions.
    #[inline]
    pub(super) const fn own_entry_size(self) -> EntrySize {
        EntrySize::from_bits(((self.0 & SIZE) as u32).wrapping_sub(1))
    }

    #[inline]
    pub(super) const fn leaf(self) -> LeafSize {
        self.own_entry_size().leaf()
    }

    #[inline]
    pub(super) const fn host(self) -> EntrySize {
        EntrySize::from_bits((self.0 >> HOST_SHIFT) as u32)
    }

    #[inline]
    pub(super) const fn entry_size(self) -> EntrySize {
        ENTRIES[(self.0 & 63) as usize]
    }

    /// Whether no access to it can fault, and entries of one size hold all of it.
    #[inline]
    pub(super) const fn is_whole(self) -> bool {
        self.0 & WHOLE != 0
    }

    #[inline]
    pub(super) const fn has_some_groups(self) -> bool {
        self.0 & SOME_GROUPS != 0
    }
}
