//! Pieces of 1 GiB, and the tables that lead to them.

use super::{ADDRESS_BITS, BLOCK_SHIFT, CHUNKS_PER_BLOCK, Mappings, SpaceId, WORDS};
use crate::mmu::translation::error::MappingError;
use crate::mmu::translation::place::{MAX_CHUNKS, Place, REGIONS_PER_CHUNK};
use crate::mmu::translation::state::RegionState;

impl Mappings {
    /// Index of a region, if there is a piece for it.
    pub(super) fn known(
        &self,
        space: SpaceId,
        address: u64,
    ) -> Result<Option<usize>, MappingError> {
        if !matches!(self.spaces.get(usize::from(space.0)), Some(Some(_))) {
            return Err(MappingError::NoSuchSpace(space));
        }
        let index = self.index(space, address);
        Ok((index >= REGIONS_PER_CHUNK).then_some(index))
    }

    /// Index of a region, for which there is a piece afterwards.
    pub(super) fn make(&mut self, space: SpaceId, address: u64) -> Result<usize, MappingError> {
        if address >> ADDRESS_BITS != 0 {
            return Err(MappingError::Address { address });
        }
        if let Some(index) = self.known(space, address)? {
            return Ok(index);
        }
        let full = self.places.len() >= MAX_CHUNKS && self.free_chunks.is_empty();
        let Some(Some(blocks)) = self.spaces.get_mut(usize::from(space.0)) else {
            return Err(MappingError::NoSuchSpace(space));
        };
        if full {
            return Err(MappingError::TooMuchMemory { address });
        }
        let block = &mut blocks[(address >> BLOCK_SHIFT) as usize];
        if *block == 0 {
            *block = self.free_blocks.pop().unwrap_or_else(|| {
                self.blocks.push([0; CHUNKS_PER_BLOCK]);
                self.blocks.len() as u16 - 1
            });
        }
        let block = *block;
        let top = self.top(space.0, address >> 48);
        let upper = [
            entry(u32::from(block), address >> 30),
            entry(top, address >> BLOCK_SHIFT),
            entry(u32::from(space.0), address >> 48),
        ];
        let place = Place::new(upper, (address >> 30) as u32, space.0);
        let chunk = match self.free_chunks.pop() {
            Some(chunk) => {
                let regions = usize::from(chunk) * REGIONS_PER_CHUNK;
                self.states[regions..][..REGIONS_PER_CHUNK].fill(RegionState::UNMAPPED);
                self.places[usize::from(chunk)] = place;
                chunk
            }
            None => self.push_chunk(place),
        };
        self.blocks[usize::from(block)][(address >> 30) as usize % CHUNKS_PER_BLOCK] = chunk;
        Ok(self.index(space, address))
    }

    pub(super) fn push_chunk(&mut self, place: Place) -> u16 {
        let chunks = self.places.len() + 1;
        let regions = chunks * REGIONS_PER_CHUNK;
        self.states.resize(regions, RegionState::UNMAPPED);
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
    fn top(&mut self, space: u16, high: u64) -> u32 {
        let known = self.tops.iter().position(|top| *top == (space, high));
        let free = || self.tops.iter().position(|top| top.0 == u16::MAX);
        match known.or_else(free) {
            Some(index) => {
                self.tops[index] = (space, high);
                index as u32
            }
            None => {
                self.tops.push((space, high));
                self.tops.len() as u32 - 1
            }
        }
    }
}

/// Number of an entry over all tables of a level, given that of its table.
fn entry(table: u32, index: u64) -> u32 {
    (table << 9) | (index as u32 % 512)
}
