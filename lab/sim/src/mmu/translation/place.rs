//! Numbers of pages, regions and pieces of 1 GiB over all address spaces, without gaps between the
//! pieces: what TLBs and tables are told apart by.

use super::lines::Line;

/// Pieces of 1 GiB that can be mapped at a time, the one that stands for "unmapped" included.
pub(super) const MAX_CHUNKS: usize = 1 << 13;
pub(super) const REGIONS_PER_CHUNK: usize = 512;
pub(super) const CHUNK_BYTES: u64 = 1 << 30;

/// Where a piece of 1 GiB is, and which entries of the upper tables lead to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Entries of the topmost three of five levels, from the lowest: PDPTE, PML4E, PML5E.
    pub(super) upper: [u32; 3],
    /// The lines that these are in.
    pub(super) lines: [Line; 3],
    /// Its address in GiB.
    pub(super) gib: u32,
    pub(super) space: u16,
}

impl Place {
    pub(super) fn new(upper: [u32; 3], gib: u32, space: u16) -> Self {
        let [pdpte, pml4e, pml5e] = upper;
        let lines = [Line::of(2, pdpte), Line::of(3, pml4e), Line::of(4, pml5e)];
        Self {
            upper,
            lines,
            gib,
            space,
        }
    }
}

/// A base page by the number of its piece and its place in there.
#[inline]
pub(super) const fn page_number(chunk: u32, address: u64) -> u32 {
    chunk << 18 | (address >> 12) as u32 & 0x3_ffff
}

#[inline]
pub(super) const fn chunk_of(page: u32) -> usize {
    (page >> 18) as usize
}

#[inline]
pub(super) const fn region_of(page: u32) -> usize {
    (page >> 9) as usize
}
