//! Gapless numbers of pages, regions and pieces of 1 GiB in an address space: TLB and table keys.

use super::table_caches::TableCacheLine;

/// Most mapped pieces of 1 GiB, with the one that stands for "unmapped".
pub(super) const MAX_CHUNKS: usize = 1 << 13;
pub(super) const REGIONS_PER_CHUNK: usize = 512;
pub(super) const CHUNK_BYTES: u64 = 1 << 30;

/// Position of a piece of 1 GiB, and the entries of the upper tables that lead to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkUpperEntries {
    /// Entries of the topmost three of five levels, from the lowest: PDPTE, PML4E, PML5E.
    pub(super) upper: [u32; 3],
    pub(super) lines: [TableCacheLine; 3],
    pub(super) gib: u32,
}

impl ChunkUpperEntries {
    pub(super) fn new(upper: [u32; 3], gib: u32) -> Self {
        let [pdpte, pml4e, pml5e] = upper;
        let lines = [
            TableCacheLine::of_entry(2, pdpte),
            TableCacheLine::of_entry(3, pml4e),
            TableCacheLine::of_entry(4, pml5e),
        ];
        Self { upper, lines, gib }
    }
}

#[inline]
pub(super) const fn page_number(chunk: u32, address: u64) -> u32 {
    chunk << 18 | (address >> 12) as u32 & 0x3_ffff
}

#[inline]
pub(super) const fn chunk_of_page(page: u32) -> usize {
    (page >> 18) as usize
}

#[inline]
pub(super) const fn region_of_page(page: u32) -> usize {
    (page >> 9) as usize
}
