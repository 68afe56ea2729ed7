//! How mappings change.

use super::{FULL, Mappings, SpaceId, WORDS, is_set, set, words};
use crate::mmu::translation::error::MappingError;
use crate::mmu::translation::place::{CHUNK_BYTES, REGIONS_PER_CHUNK};
use crate::mmu::translation::sizes::{EntrySize, LeafSize};
use crate::mmu::translation::state::RegionState;
use hawkeye_policy::RegionAddr;
use std::ops::Range;

impl Mappings {
    /// Maps base pages of a region, a bit for each of its 512 pages, the first lowest: those that were not
    /// present with their access bit set, as a fault does, and all of them so that they can be stored to.
    /// What is mapped by a larger page stays so. Pages that were not present are in no group
    /// ([`set_groups`](Self::set_groups)).
    ///
    /// # Errors
    ///
    /// See [`MappingError`].
    pub fn map_pages(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: [u64; WORDS],
    ) -> Result<(), MappingError> {
        self.add_pages(space, region, pages, false)
    }

    /// Maps base pages of a region so that they can only be loaded from: the zero page, or what is to be
    /// copied before it is written. Of a larger page, all of it, until it is mapped anew.
    ///
    /// # Errors
    ///
    /// See [`MappingError`].
    pub fn map_protected(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: [u64; WORDS],
    ) -> Result<(), MappingError> {
        self.add_pages(space, region, pages, true)
    }

    fn add_pages(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: [u64; WORDS],
        protect: bool,
    ) -> Result<(), MappingError> {
        let index = self.make(space, region.start())?;
        match self.states[index].size() {
            Some(LeafSize::Base) => {}
            Some(_) if !protect => return Ok(()),
            Some(size) => {
                self.end_huge_group(index);
                // A page of 1 GiB has one entry, as a huge page has.
                let regions = match size {
                    LeafSize::Giant => self.chunk_regions(space, region.start())?,
                    _ => index..index + 1,
                };
                for state in &mut self.states[regions] {
                    *state = RegionState::new(Some(size.into()), state.host(), false);
                }
                return Ok(());
            }
            None => self.set_base(index, [[0; WORDS]; 3]),
        }
        for (word, pages) in (index * WORDS..).zip(pages) {
            self.accessed[word] |= pages & !self.present[word];
            self.present[word] |= pages;
            if protect {
                self.protected[word] |= pages;
            } else {
                self.protected[word] &= !pages;
            }
        }
        self.settle(index);
        Ok(())
    }

    /// Unmaps base pages of a region. A huge page that loses only some is split before.
    ///
    /// # Errors
    ///
    /// The region is in a page of 1 GiB, or there is no such address space.
    pub fn unmap_pages(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: [u64; WORDS],
    ) -> Result<(), MappingError> {
        let Some(index) = self.known(space, region.start())? else {
            return Ok(());
        };
        match self.states[index].size() {
            None => return Ok(()),
            Some(LeafSize::Giant) => return Err(giant(region)),
            Some(LeafSize::Huge) => self.split_index(index),
            Some(LeafSize::Base) => {}
        }
        for (word, pages) in (index * WORDS..).zip(pages) {
            self.present[word] &= !pages;
            self.protected[word] &= !pages;
            self.accessed[word] &= !pages;
        }
        self.settle(index);
        Ok(())
    }

    /// Maps a region by a huge page, accessed, that can be stored to; base pages there are gone. What a
    /// huge fault and a collapse do.
    ///
    /// # Errors
    ///
    /// See [`MappingError`].
    pub fn map_huge(&mut self, space: SpaceId, region: RegionAddr) -> Result<(), MappingError> {
        let index = self.make(space, region.start())?;
        let state = self.states[index];
        if state.size() == Some(LeafSize::Giant) {
            return Err(giant(region));
        }
        self.end_huge_group(index);
        self.states[index] = RegionState::new(Some(EntrySize::Huge), state.host(), true);
        set(&mut self.huge_accessed, index);
        Ok(())
    }

    /// Splits a huge page into 512 base pages, with its access bit each. Without a huge page nothing
    /// happens.
    ///
    /// # Errors
    ///
    /// There is no such address space.
    pub fn split(&mut self, space: SpaceId, region: RegionAddr) -> Result<(), MappingError> {
        if let Some(index) = self.known(space, region.start())? {
            if self.states[index].size() == Some(LeafSize::Huge) {
                self.split_index(index);
            }
        }
        Ok(())
    }

    /// Maps the 1 GiB that holds `address` by one page, accessed, that can be stored to.
    ///
    /// # Errors
    ///
    /// Something is mapped there; see [`MappingError`].
    pub fn map_giant(&mut self, space: SpaceId, address: u64) -> Result<(), MappingError> {
        let regions = self.chunk_regions(space, address)?;
        if self.states[regions.clone()]
            .iter()
            .any(|state| state.size().is_some())
        {
            return Err(MappingError::Occupied { address });
        }
        set(&mut self.giant_accessed, regions.start / REGIONS_PER_CHUNK);
        for state in &mut self.states[regions] {
            *state = RegionState::new(Some(EntrySize::Giant), state.host(), true);
        }
        Ok(())
    }

    /// Unmaps everything in the 1 GiB that holds `address`.
    ///
    /// # Errors
    ///
    /// See [`MappingError`].
    pub fn unmap_giant(&mut self, space: SpaceId, address: u64) -> Result<(), MappingError> {
        let regions = self.chunk_regions(space, address)?;
        for state in &mut self.states[regions] {
            *state = RegionState::new(None, state.host(), false);
        }
        Ok(())
    }

    /// Says by what the host maps the memory behind a region, mapped or not. It counts in virtual machines
    /// only; before it is said it is 1 GiB. A page of 1 GiB is that of all regions around, a group of huge pages that of
    /// all in it; where one of them is to be mapped by less, the others keep 2 MiB. Groups of base pages are that of the
    /// whole region. Cores must forget what they know of the host
    /// ([`Translator::invalidate_host`](crate::mmu::translation::Translator::invalidate_host)).
    ///
    /// # Errors
    ///
    /// See [`MappingError`].
    pub fn set_host(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        host: impl Into<EntrySize>,
    ) -> Result<(), MappingError> {
        let host = host.into();
        let index = self.make(space, region.start())?;
        let before = self.states[index].host();
        let old = self.regions_of(index, before);
        if old.len() > 1 {
            self.set_hosts(old, EntrySize::Huge);
        }
        self.set_hosts(self.regions_of(index, host), host);
        Ok(())
    }

    fn set_hosts(&mut self, regions: Range<usize>, host: EntrySize) {
        for state in &mut self.states[regions] {
            *state = state.with_host(host);
        }
    }

    /// The regions that an entry of a size holds something of, one of them being this.
    pub(super) fn regions_of(&self, index: usize, size: EntrySize) -> Range<usize> {
        let regions = match size {
            EntrySize::Giant => REGIONS_PER_CHUNK,
            EntrySize::HugeGroup => 1 << (self.orders.of(size) - self.orders.of(EntrySize::Huge)),
            _ => 1,
        };
        let first = index / regions * regions;
        first..first + regions
    }

    fn chunk_regions(
        &mut self,
        space: SpaceId,
        address: u64,
    ) -> Result<Range<usize>, MappingError> {
        let first = self.make(space, address & !(CHUNK_BYTES - 1))?;
        Ok(first..first + REGIONS_PER_CHUNK)
    }

    fn split_index(&mut self, index: usize) {
        self.end_huge_group(index);
        let accessed = if is_set(&self.huge_accessed, index) {
            FULL
        } else {
            [0; WORDS]
        };
        let protected = if self.states[index].is_whole() {
            [0; WORDS]
        } else {
            FULL
        };
        self.set_base(index, [FULL, protected, accessed]);
        self.settle(index);
    }

    /// Sets the bits of base pages: present, protected, accessed. None are in groups.
    fn set_base(&mut self, index: usize, bits: [[u64; WORDS]; 3]) {
        let planes = [&mut self.present, &mut self.protected, &mut self.accessed];
        for (plane, bits) in planes.into_iter().zip(bits) {
            plane[index * WORDS..][..WORDS].copy_from_slice(&bits);
        }
        if let Some(groups) = self.grouped.get_mut(index) {
            *groups = 0;
        }
    }

    /// Brings the state of a region of base pages in line with its bits.
    pub(super) fn settle(&mut self, index: usize) {
        let present = words(&self.present, index);
        let size = (present != [0; WORDS]).then_some(EntrySize::Base);
        let whole = present == FULL && words(&self.protected, index) == [0; WORDS];
        self.states[index] = RegionState::new(size, self.states[index].host(), whole);
        self.see_groups(index);
    }
}

fn giant(region: RegionAddr) -> MappingError {
    MappingError::Giant {
        address: region.start(),
    }
}
