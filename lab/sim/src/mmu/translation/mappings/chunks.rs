//! Pieces of 1 GiB, and the tables that lead to them.

use super::{ADDRESS_BITS, BLOCK_SHIFT, CHUNKS_PER_BLOCK, Mappings, WORDS};
use crate::mmu::translation::dense_page_numbers::{
    ChunkUpperEntries, MAX_CHUNKS, REGIONS_PER_CHUNK,
};
use crate::mmu::translation::error::{MappingError, Result};
use crate::mmu::translation::region_translation::RegionTranslation;

impl Mappings {
    /// Index of a region, if its piece exists.
    pub(super) fn known_region_index(&self, address: u64) -> Option<usize> {
        let index = self.region_index(address);
        (index >= REGIONS_PER_CHUNK).then_some(index)
    }

    /// Index of a region; creates its piece if needed.
    pub(super) fn ensure_region_index(&mut self, address: u64) -> Result<usize> {
        if address >> ADDRESS_BITS != 0 {
            return Err(MappingError::Address(address));
        }
        if let Some(index) = self.known_region_index(address) {
            return Ok(index);
        }
        if self.places.len() >= MAX_CHUNKS {
            return Err(MappingError::TooMuchMemory(address));
        }
        let number = &mut self.numbers[(address >> BLOCK_SHIFT) as usize];
        if *number == 0 {
            self.blocks.push([0; CHUNKS_PER_BLOCK]);
            *number = self.blocks.len() as u16 - 1;
        }
        let block = *number;
        let upper = [
            entry_number_over_all_tables(u32::from(block), address >> 30),
            entry_number_over_all_tables(
                self.get_or_create_pml4_table(address >> 48),
                address >> BLOCK_SHIFT,
            ),
            entry_number_over_all_tables(0, address >> 48),
        ];
        let chunk = self.push_chunk(ChunkUpperEntries::new(upper, (address >> 30) as u32));
        self.blocks[usize::from(block)][(address >> 30) as usize % CHUNKS_PER_BLOCK] = chunk;
        Ok(self.region_index(address))
    }

    pub(super) fn push_chunk(&mut self, place: ChunkUpperEntries) -> u16 {
        let chunks = self.places.len() + 1;
        let regions = chunks * REGIONS_PER_CHUNK;
        self.states.resize(regions, RegionTranslation::UNMAPPED);
        for plane in [&mut self.present, &mut self.protected, &mut self.accessed] {
            plane.resize(regions * WORDS, 0);
        }
        if self.groups.base.is_some() {
            self.grouped.resize(regions, 0);
        }
        self.huge_accessed.resize(regions / 64, 0);
        self.giant_accessed.resize(chunks.div_ceil(64), 0);
        self.places.push(place);
        self.places.len() as u16 - 1
    }

    /// Number of the table under the topmost of five levels.
    fn get_or_create_pml4_table(&mut self, high: u64) -> u32 {
        let known = self.tops.iter().position(|top| *top == high);
        let index = known.unwrap_or_else(|| {
            self.tops.push(high);
            self.tops.len() - 1
        });
        index as u32
    }
}

/// Number of an entry over all tables of a level, given that of its table.
fn entry_number_over_all_tables(table: u32, index: u64) -> u32 {
    (table << 9) | (index as u32 % 512)
}
