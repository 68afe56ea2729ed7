//! What is mapped, in all address spaces, and which access bits are set.

mod changes;
mod groups;
mod pieces;

use super::error::MappingError;
use super::place::{MAX_CHUNKS, Place, REGIONS_PER_CHUNK, page_number, region_of};
use super::sizes::{EntrySize, LeafSize, Orders};
use super::space_id::SpaceId;
use super::state::RegionState;
use crate::mmu::{Groups, MmuError};
pub(crate) use groups::Mark;
pub(super) use groups::Membership;
use hawkeye_policy::RegionAddr;
use prefetch_index::prefetch_index;

/// Words of a region's bits, the first page lowest.
const WORDS: usize = 8;
const FULL: [u64; WORDS] = [u64::MAX; WORDS];
/// Bits of an address.
const ADDRESS_BITS: u32 = 57;
/// What entries of one table above the page directories map: 512 pieces of 1 GiB.
const CHUNKS_PER_BLOCK: usize = 512;
const BLOCK_SHIFT: u32 = 39;

/// Mappings of pages in any number of address spaces, up to 8 TiB in all.
///
/// Memory is held in pieces of 1 GiB, 97 KiB for each that has something mapped in it. Piece 0 and block
/// 0 have nothing in them, so that looking up what is nowhere takes no branch.
///
/// Changes are not seen by a [`Translator`](super::Translator)'s TLBs: tell it, as a kernel does.
#[derive(Clone, Debug)]
pub struct Mappings {
    groups: Groups,
    orders: Orders,
    l1_orders: Orders,
    /// The bits of an address that say which entry of the first level it is in, by [`EntrySize`].
    l1_entries: [u64; 5],
    /// How walks set access bits, by [`EntrySize`].
    marks: [Mark; 5],
    states: Vec<RegionState>,
    /// Groups of base pages by region, a bit each; of none if there are no groups.
    grouped: Vec<u128>,
    present: Vec<u64>,
    /// Base pages that can't be stored to.
    protected: Vec<u64>,
    /// Access bits of base pages.
    accessed: Vec<u64>,
    /// Access bits of huge pages, by region.
    huge_accessed: Vec<u64>,
    /// Those of pages of 1 GiB, by piece.
    giant_accessed: Vec<u64>,
    places: Vec<Place>,
    /// The pieces of each block of 512 GiB.
    blocks: Vec<[u16; CHUNKS_PER_BLOCK]>,
    /// The blocks of each address space; none of one that was removed.
    spaces: Vec<Option<Vec<u16>>>,
    /// Topmost tables but one, by address space and the bits of the address above them.
    tops: Vec<(u16, u64)>,
    free_chunks: Vec<u16>,
    free_blocks: Vec<u16>,
}

impl Default for Mappings {
    fn default() -> Self {
        Self::new()
    }
}

impl Mappings {
    /// No address space. No two pages are ever one TLB entry.
    pub fn new() -> Self {
        Self::of(Groups::NONE)
    }

    /// The same for a processor that holds groups of pages in one TLB entry
    /// ([`Processor::groups`](crate::mmu::Processor::groups)). Use it with cores of such a processor only: they take
    /// groups as they are here.
    ///
    /// # Errors
    ///
    /// Groups that can't be.
    pub fn with_groups(groups: Groups) -> Result<Self, MmuError> {
        groups.check("these mappings")?;
        Ok(Self::of(groups))
    }

    fn of(groups: Groups) -> Self {
        let l1_orders = Orders::in_l1(groups);
        let mut mappings = Self {
            groups,
            orders: Orders::new(groups),
            l1_orders,
            l1_entries: EntrySize::ALL.map(|size| !(l1_orders.bytes(size) - 1)),
            marks: Mark::of_sizes(groups),
            states: Vec::new(),
            grouped: Vec::new(),
            present: Vec::new(),
            protected: Vec::new(),
            accessed: Vec::new(),
            huge_accessed: Vec::new(),
            giant_accessed: Vec::new(),
            places: Vec::new(),
            blocks: vec![[0; CHUNKS_PER_BLOCK]],
            spaces: Vec::new(),
            tops: Vec::new(),
            free_chunks: Vec::new(),
            free_blocks: Vec::new(),
        };
        // No address space has this number.
        mappings.push_chunk(Place::new([0; 3], 0, u16::MAX));
        mappings
    }

    /// Adds an address space in which nothing is mapped.
    ///
    /// # Errors
    ///
    /// There are 8,192.
    pub fn add_space(&mut self) -> Result<SpaceId, MappingError> {
        let blocks = Some(vec![0; 1 << (ADDRESS_BITS - BLOCK_SHIFT)]);
        if let Some(free) = self.spaces.iter().position(Option::is_none) {
            self.spaces[free] = blocks;
            return Ok(SpaceId(free as u16));
        }
        if self.spaces.len() >= MAX_CHUNKS {
            return Err(MappingError::TooManySpaces);
        }
        self.spaces.push(blocks);
        Ok(SpaceId(self.spaces.len() as u16 - 1))
    }

    /// Unmaps everything in an address space and forgets it. Cores must forget its pages
    /// ([`Translator::invalidate_space`](super::Translator::invalidate_space)) before.
    pub fn remove_space(&mut self, space: SpaceId) {
        let Some(slot) = self.spaces.get_mut(usize::from(space.0)) else {
            return;
        };
        for block in slot.take().unwrap_or_default() {
            if block != 0 {
                let chunks =
                    std::mem::replace(&mut self.blocks[usize::from(block)], [0; CHUNKS_PER_BLOCK]);
                let chunks = chunks.into_iter().filter(|chunk| *chunk != 0);
                self.free_chunks.extend(chunks);
                self.free_blocks.push(block);
            }
        }
        self.tops
            .iter_mut()
            .filter(|top| top.0 == space.0)
            .for_each(|top| top.0 = u16::MAX);
    }

    /// By what a region is mapped; `None` if no page of it is.
    pub fn size(&self, space: SpaceId, region: RegionAddr) -> Option<LeafSize> {
        self.states[self.index(space, region.start())].size()
    }

    /// By what the host maps the memory behind a region.
    pub fn host(&self, space: SpaceId, region: RegionAddr) -> EntrySize {
        self.states[self.index(space, region.start())].host()
    }

    /// The base pages of a region that are mapped.
    pub fn present(&self, space: SpaceId, region: RegionAddr) -> [u64; WORDS] {
        let index = self.index(space, region.start());
        match self.states[index].size() {
            None => [0; WORDS],
            Some(LeafSize::Base) => words(&self.present, index),
            Some(_) => FULL,
        }
    }

    /// Access bits of a region's base pages; of a larger page, all or none.
    pub fn accessed(&self, space: SpaceId, region: RegionAddr) -> [u64; WORDS] {
        let index = self.index(space, region.start());
        let all = match self.states[index].size() {
            None => false,
            Some(LeafSize::Base) => return words(&self.accessed, index),
            Some(LeafSize::Huge) => is_set(&self.huge_accessed, index),
            Some(LeafSize::Giant) => is_set(&self.giant_accessed, index / REGIONS_PER_CHUNK),
        };
        if all { FULL } else { [0; WORDS] }
    }

    /// Clears the access bits of a region; of a page of 1 GiB, its one. A page that a TLB has is not marked
    /// again until that has forgotten it. Of a group of huge pages, that of all of them.
    pub fn clear_accessed(&mut self, space: SpaceId, region: RegionAddr) {
        let index = self.index(space, region.start());
        match self.states[index].size() {
            None => {}
            Some(LeafSize::Base) => {
                self.accessed[index * WORDS..][..WORDS].fill(0);
                self.see_groups(index);
            }
            Some(LeafSize::Huge) => {
                let mark = self.marks[self.states[index].own() as usize];
                mark.clear(&mut self.huge_accessed, index);
            }
            Some(LeafSize::Giant) => clear(&mut self.giant_accessed, index / REGIONS_PER_CHUNK),
        }
    }

    /// Memory that all of this takes, in bytes.
    pub fn held_bytes(&self) -> u64 {
        let words = [
            &self.present,
            &self.protected,
            &self.accessed,
            &self.huge_accessed,
            &self.giant_accessed,
        ];
        let words: usize = words.iter().map(|plane| plane.capacity() * 8).sum();
        let tables: usize = self
            .spaces
            .iter()
            .flatten()
            .map(|blocks| blocks.len() * 2)
            .sum();
        let grouped = self.grouped.capacity() * size_of::<u128>();
        let blocks = self.blocks.capacity() * CHUNKS_PER_BLOCK * 2;
        (words + grouped + self.states.capacity() + tables + blocks) as u64
    }

    /// The blocks of an address space, for [`page_in`](Self::page_in).
    #[inline]
    pub(super) fn blocks(&self, space: SpaceId) -> &[u16] {
        let blocks = self.spaces.get(usize::from(space.0));
        blocks.and_then(Option::as_deref).unwrap_or_default()
    }

    /// The base page that an address is in; one of piece 0 if nothing is mapped there.
    #[inline(always)]
    pub(super) fn page_in(&self, blocks: &[u16], address: u64) -> u32 {
        self.block(blocks, address).page(address)
    }

    /// The block that an address is in.
    #[inline(always)]
    pub(super) fn block(&self, blocks: &[u16], address: u64) -> Block<'_> {
        let number = address >> BLOCK_SHIFT;
        let block = blocks.get(number as usize).copied().unwrap_or_default();
        Block {
            number,
            chunks: &self.blocks[usize::from(block)],
        }
    }

    /// How the region of a base page is mapped.
    #[inline]
    pub(super) fn state(&self, page: u32) -> RegionState {
        self.states[region_of(page)]
    }

    /// Whether a base page in a region mapped by base pages is present, and can be stored to.
    #[inline]
    pub(super) fn page(&self, page: u32) -> (bool, bool) {
        let (word, bit) = ((page / 64) as usize, page % 64);
        let present = self.present[word] >> bit & 1 == 1;
        (present, present && self.protected[word] >> bit & 1 == 0)
    }

    /// Sets the access bits of the pages that these base pages are in, each with the level at which walks for it end and
    /// how they set bits; so many were clear.
    #[inline(always)]
    pub(super) fn mark_each(&mut self, pages: impl Iterator<Item = (u32, usize, Mark)>) -> u64 {
        // Without a branch for each size, and written without asking: neither can be foreseen.
        let planes = [
            &mut self.accessed[..],
            &mut self.huge_accessed[..],
            &mut self.giant_accessed[..],
        ];
        let mut were_clear = 0;
        for (page, leaf, mark) in pages {
            let (word, mask) = mark.place(page >> (9 * leaf as u32));
            let word = &mut planes[leaf][word];
            were_clear += u64::from(*word & mask == 0);
            *word |= mask;
        }
        were_clear
    }

    /// How walks for pages that are in entries of this size, the host aside, set access bits.
    #[inline]
    pub(super) fn mark_of(&self, own: EntrySize) -> Mark {
        self.marks[own as usize]
    }

    /// Has the host fetch the access bit that [`mark_each`](Self::mark_each) will set. Those of base pages are too many for
    /// its caches.
    #[inline(always)]
    pub(super) fn fetch_mark(&self, page: u32, leaf: usize) {
        if leaf == 0 {
            prefetch_index(&self.accessed, (page / 64) as usize);
        }
    }

    /// How large entries are in the second level.
    #[inline]
    pub(super) fn orders(&self) -> Orders {
        self.orders
    }

    /// How large they are in the first.
    #[inline]
    pub(super) fn l1_orders(&self) -> Orders {
        self.l1_orders
    }

    /// The bits of an address that say which entry of the first level it is in, by [`EntrySize`].
    #[inline]
    pub(super) fn l1_entries(&self) -> [u64; 5] {
        self.l1_entries
    }

    #[inline]
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Index of a region; one of piece 0 if nothing is mapped there.
    fn index(&self, space: SpaceId, address: u64) -> usize {
        region_of(self.page_in(self.blocks(space), address))
    }
}

/// Addresses of 512 GiB, and the pieces that they are in.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    number: u64,
    chunks: &'a [u16; CHUNKS_PER_BLOCK],
}

impl Block<'_> {
    /// Whether an address is in it.
    #[inline(always)]
    pub(super) fn has(&self, address: u64) -> bool {
        address >> BLOCK_SHIFT == self.number
    }

    /// The base page that an address in it is in; one of piece 0 if nothing is mapped there.
    #[inline(always)]
    pub(super) fn page(&self, address: u64) -> u32 {
        let chunk = self.chunks[(address >> 30) as usize % CHUNKS_PER_BLOCK];
        page_number(u32::from(chunk), address)
    }
}

fn is_set(plane: &[u64], bit: usize) -> bool {
    plane[bit / 64] >> (bit % 64) & 1 == 1
}

fn set(plane: &mut [u64], bit: usize) {
    plane[bit / 64] |= 1 << (bit % 64);
}

fn clear(plane: &mut [u64], bit: usize) {
    plane[bit / 64] &= !(1 << (bit % 64));
}

fn words(plane: &[u64], index: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words.copy_from_slice(&plane[index * WORDS..][..WORDS]);
    words
}
