//! Mappings and access bits of an address space.
//!
//! ```text
//!  address --chunks--> a piece of 1 GiB --> a region --+--> RegionTranslation: its page size
//!                                                      |--> present, protected, accessed: bits
//!                                                      `--> groups: pages of one TLB entry
//!  changes: map, unmap, split
//! ```
//!
//! Read [`Mappings`] first: its fields are this layout. Then read `changes`, and `groups` for
//! processors that coalesce pages. Walks set access bits in `Mappings::mark_pages_accessed`, for a
//! batch at a time and without branches.

mod changes;
mod chunks;
mod groups;

use super::dense_page_numbers::{
    ChunkUpperEntries, REGIONS_PER_CHUNK, page_number, region_of_page,
};
use super::region_translation::RegionTranslation;
use super::sizes::{EntryOrders, EntrySize, LeafSize};
use crate::mmu::{CoalescedPageGroups, MmuError};
pub(crate) use groups::AccessBitMask;
pub(super) use groups::PageGroupState;
use hawkeye_policy::{PAGES_PER_REGION, RegionAddr};
use prefetch_index::prefetch_index;

const WORDS: usize = PAGES_PER_REGION as usize / 64;
const FULL: [u64; WORDS] = [u64::MAX; WORDS];
const ADDRESS_BITS: u32 = 57;
const CHUNKS_PER_BLOCK: usize = 512;
const BLOCK_SHIFT: u32 = 39;

/// Mappings of pages in one address space, up to 8 TiB.
///
/// Memory is held in pieces of 1 GiB, 97 KiB for each piece with a mapping. Piece 0 and block 0 are
/// empty, so that a look-up of an unmapped address takes no branch.
///
/// A [`Translator`](super::Translator)'s TLBs do not see changes: invalidate them.
#[derive(Clone, Debug)]
pub struct Mappings {
    groups: CoalescedPageGroups,
    /// Sizes of entries in the second level.
    pub(super) orders: EntryOrders,
    pub(super) l1_orders: EntryOrders,
    /// Bits of an address that select its entry in the first level, by [`EntrySize`].
    pub(super) l1_entries: [u64; 5],
    /// How walks set access bits, by [`EntrySize`], apart from the host.
    pub(super) marks: [AccessBitMask; 5],
    states: Vec<RegionTranslation>,
    /// Groups of base pages by region, a bit each; empty if there are no groups.
    grouped: Vec<u128>,
    present: Vec<u64>,
    protected: Vec<u64>,
    accessed: Vec<u64>,
    huge_accessed: Vec<u64>,
    /// Access bits of pages of 1 GiB, by piece.
    giant_accessed: Vec<u64>,
    pub(super) places: Vec<ChunkUpperEntries>,
    /// The pieces of each block of 512 GiB.
    blocks: Vec<[u16; CHUNKS_PER_BLOCK]>,
    /// Block number of each 512 GiB of addresses, for [`page_of_address`](Self::page_of_address).
    pub(super) numbers: Vec<u16>,
    /// Tables below the topmost, by the bits of the address above them.
    tops: Vec<u64>,
}

impl Default for Mappings {
    fn default() -> Self {
        Self::new()
    }
}

impl Mappings {
    /// An empty address space without groups.
    pub fn new() -> Self {
        Self::empty_with_checked_groups(CoalescedPageGroups::NONE)
    }

    /// An empty address space for a processor that holds groups of pages in one TLB entry
    /// ([`ProcessorSpec::groups`](crate::mmu::ProcessorSpec::groups)). Use it only with cores of
    /// such a processor: they take groups as they are here.
    pub fn with_groups(groups: CoalescedPageGroups) -> Result<Self, MmuError> {
        groups.check("these mappings")?;
        Ok(Self::empty_with_checked_groups(groups))
    }

    fn empty_with_checked_groups(groups: CoalescedPageGroups) -> Self {
        let l1_orders = EntryOrders::of_first_level(groups);
        let mut mappings = Self {
            groups,
            orders: EntryOrders::new(groups),
            l1_orders,
            l1_entries: EntrySize::ALL.map(|size| !(l1_orders.bytes(size) - 1)),
            marks: AccessBitMask::by_entry_size(groups),
            states: Vec::new(),
            grouped: Vec::new(),
            present: Vec::new(),
            protected: Vec::new(),
            accessed: Vec::new(),
            huge_accessed: Vec::new(),
            giant_accessed: Vec::new(),
            places: Vec::new(),
            blocks: vec![[0; CHUNKS_PER_BLOCK]],
            numbers: vec![0; 1 << (ADDRESS_BITS - BLOCK_SHIFT)],
            tops: Vec::new(),
        };
        mappings.push_chunk(ChunkUpperEntries::default());
        mappings
    }

    /// Size of the pages that map a region; `None` if none does.
    pub fn page_size(&self, region: RegionAddr) -> Option<LeafSize> {
        self.states[self.region_index(region.start())].size()
    }

    /// Size by which the host maps the memory behind a region.
    pub fn host_page_size(&self, region: RegionAddr) -> EntrySize {
        self.states[self.region_index(region.start())].host()
    }

    /// The mapped base pages of a region.
    pub fn present(&self, region: RegionAddr) -> [u64; WORDS] {
        let index = self.region_index(region.start());
        match self.states[index].size() {
            None => [0; WORDS],
            Some(LeafSize::Base) => region_words(&self.present, index),
            Some(_) => FULL,
        }
    }

    /// Access bits of a region's base pages; of a larger page, all or none.
    pub fn accessed(&self, region: RegionAddr) -> [u64; WORDS] {
        let index = self.region_index(region.start());
        let all = match self.states[index].size() {
            None => false,
            Some(LeafSize::Base) => return region_words(&self.accessed, index),
            Some(LeafSize::Huge) => is_bit_set(&self.huge_accessed, index),
            Some(LeafSize::Giant) => is_bit_set(&self.giant_accessed, index / REGIONS_PER_CHUNK),
        };
        if all { FULL } else { [0; WORDS] }
    }

    /// Clears the access bits of a region; of a page of 1 GiB, its only one; of a group of huge
    /// pages, those of all of them. A page in a TLB is not marked again until its entry is gone.
    pub fn clear_accessed(&mut self, region: RegionAddr) {
        let index = self.region_index(region.start());
        match self.states[index].size() {
            None => {}
            Some(LeafSize::Base) => {
                self.accessed[index * WORDS..][..WORDS].fill(0);
                self.update_groups(index);
            }
            Some(LeafSize::Huge) => {
                let mark = self.marks[self.states[index].own_entry_size() as usize];
                mark.clear_page_bits_in_plane(&mut self.huge_accessed, index);
            }
            Some(LeafSize::Giant) => clear_bit(&mut self.giant_accessed, index / REGIONS_PER_CHUNK),
        }
    }

    /// The base page that holds an address; one of piece 0 if nothing is mapped there.
    #[inline(always)]
    pub(super) fn page_of_address(&self, blocks: &[u16], address: u64) -> u32 {
        self.address_block(blocks, address).page(address)
    }

    #[inline(always)]
    pub(super) fn address_block(&self, blocks: &[u16], address: u64) -> AddressBlock<'_> {
        let number = address >> BLOCK_SHIFT;
        let block = blocks.get(number as usize).copied().unwrap_or_default();
        AddressBlock { number, chunks: &self.blocks[usize::from(block)] }
    }

    #[inline]
    pub(super) fn region_state(&self, page: u32) -> RegionTranslation {
        self.states[region_of_page(page)]
    }

    /// Whether a base page in a region of base pages is present, and whether it is writable.
    #[inline]
    pub(super) fn page_permissions(&self, page: u32) -> (bool, bool) {
        let (word, bit) = ((page / 64) as usize, page % 64);
        let present = self.present[word] >> bit & 1 == 1;
        (present, present && self.protected[word] >> bit & 1 == 0)
    }

    /// Sets the access bits of the pages that hold these base pages, and returns how many were
    /// clear. Each comes with the level at which its walk ends, and with how that sets bits.
    #[inline(always)]
    pub(super) fn mark_pages_accessed(
        &mut self,
        pages: impl Iterator<Item = (u32, usize, AccessBitMask)>,
    ) -> u64 {
        // No branch by size, and unconditional writes: both conditions are unpredictable.
        let planes =
            [&mut self.accessed[..], &mut self.huge_accessed[..], &mut self.giant_accessed[..]];
        let mut were_clear = 0;
        for (page, leaf, mark) in pages {
            let (word, mask) = mark.word_and_bits(page >> (9 * leaf as u32));
            let word = &mut planes[leaf][word];
            were_clear += u64::from(*word & mask == 0);
            *word |= mask;
        }
        were_clear
    }

    /// Prefetches the access bit that [`mark_pages_accessed`](Self::mark_pages_accessed) will set.
    /// Those of base pages do not fit into the caches of the simulating machine.
    #[inline(always)]
    pub(super) fn prefetch_access_bit(&self, page: u32, leaf: usize) {
        if leaf == 0 {
            prefetch_index(&self.accessed, (page / 64) as usize);
        }
    }

    /// Index of a region; one of piece 0 if nothing is mapped there.
    fn region_index(&self, address: u64) -> usize {
        region_of_page(self.page_of_address(&self.numbers, address))
    }
}

/// Addresses of 512 GiB, and the pieces that they are in.
#[derive(Clone, Copy)]
pub(super) struct AddressBlock<'a> {
    number: u64,
    chunks: &'a [u16; CHUNKS_PER_BLOCK],
}

impl AddressBlock<'_> {
    #[inline(always)]
    pub(super) fn has_address(&self, address: u64) -> bool {
        address >> BLOCK_SHIFT == self.number
    }

    #[inline(always)]
    pub(super) fn page(&self, address: u64) -> u32 {
        let chunk = self.chunks[(address >> 30) as usize % CHUNKS_PER_BLOCK];
        page_number(u32::from(chunk), address)
    }
}

fn is_bit_set(plane: &[u64], bit: usize) -> bool {
    plane[bit / 64] >> (bit % 64) & 1 == 1
}

fn set_bit(plane: &mut [u64], bit: usize) {
    plane[bit / 64] |= 1 << (bit % 64);
}

fn clear_bit(plane: &mut [u64], bit: usize) {
    plane[bit / 64] &= !(1 << (bit % 64));
}

fn region_words(plane: &[u64], index: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words.copy_from_slice(&plane[index * WORDS..][..WORDS]);
    words
}
