//! Changes of mappings.

use super::{FULL, Mappings, WORDS, is_bit_set, region_words, set_bit};
use crate::mmu::translation::dense_page_numbers::{CHUNK_BYTES, REGIONS_PER_CHUNK};
use crate::mmu::translation::error::{MappingError, Result};
use crate::mmu::translation::region_translation::RegionTranslation;
use crate::mmu::translation::sizes::{EntrySize, LeafSize};
use hawkeye_policy::RegionAddr;
use std::ops::Range;

impl Mappings {
    /// Maps base pages of a region, a bit for each of its 512 pages, the first lowest. All become
    /// writable. Pages that were not present get their access bit set, as at a fault, and are in no
    /// group ([`set_groups`](Self::set_groups)). Parts mapped by a larger page stay as they are.
    pub fn map_pages(&mut self, region: RegionAddr, pages: [u64; WORDS]) -> Result<()> {
        self.add_pages(region, pages, false)
    }

    /// Maps base pages of a region read-only: the zero page, or copy-on-write. Within a larger
    /// page, all of it becomes read-only until it is mapped anew.
    pub fn map_pages_read_only(&mut self, region: RegionAddr, pages: [u64; WORDS]) -> Result<()> {
        self.add_pages(region, pages, true)
    }

    fn add_pages(&mut self, region: RegionAddr, pages: [u64; WORDS], protect: bool) -> Result<()> {
        let index = self.ensure_region_index(region.start())?;
        match self.states[index].size() {
            Some(LeafSize::Base) => {}
            Some(_) if !protect => return Ok(()),
            Some(size) => {
                self.end_huge_group(index);
                // A page of 1 GiB has one entry, as a huge page has.
                let regions = match size {
                    LeafSize::Giant => self.ensure_chunk_regions(region.start())?,
                    _ => index..index + 1,
                };
                for state in &mut self.states[regions] {
                    *state = RegionTranslation::new(Some(size.into()), state.host(), false);
                }
                return Ok(());
            }
            None => self.set_base_pages(index, [[0; WORDS]; 3]),
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
        self.update_region_state(index);
        Ok(())
    }

    /// Unmaps base pages of a region. A huge page that loses only some of its pages is split first.
    ///
    /// # Errors
    /// The region is in a page of 1 GiB.
    pub fn unmap_pages(&mut self, region: RegionAddr, pages: [u64; WORDS]) -> Result<()> {
        let Some(index) = self.known_region_index(region.start()) else {
            return Ok(());
        };
        match self.states[index].size() {
            None => return Ok(()),
            Some(LeafSize::Giant) => return Err(giant_page_error(region)),
            Some(LeafSize::Huge) => self.split_huge_region(index),
            Some(LeafSize::Base) => {}
        }
        for (word, pages) in (index * WORDS..).zip(pages) {
            self.present[word] &= !pages;
            self.protected[word] &= !pages;
            self.accessed[word] &= !pages;
        }
        self.update_region_state(index);
        Ok(())
    }

    /// Maps a region by a writable, accessed huge page, in place of base pages.
    pub fn map_huge(&mut self, region: RegionAddr) -> Result<()> {
        let index = self.ensure_region_index(region.start())?;
        let state = self.states[index];
        if state.size() == Some(LeafSize::Giant) {
            return Err(giant_page_error(region));
        }
        self.end_huge_group(index);
        self.states[index] = RegionTranslation::new(Some(EntrySize::Huge), state.host(), true);
        set_bit(&mut self.huge_accessed, index);
        Ok(())
    }

    /// Splits a huge page, if there is one, into 512 base pages, each with its access bit.
    pub fn split_huge_page(&mut self, region: RegionAddr) {
        if let Some(index) = self.known_region_index(region.start()) {
            if self.states[index].size() == Some(LeafSize::Huge) {
                self.split_huge_region(index);
            }
        }
    }

    /// Maps the 1 GiB that holds `address` by one writable, accessed page.
    ///
    /// # Errors
    /// Something is mapped there; see [`MappingError`].
    pub fn map_giant(&mut self, address: u64) -> Result<()> {
        let regions = self.ensure_chunk_regions(address)?;
        if self.states[regions.clone()].iter().any(|state| state.size().is_some()) {
            return Err(MappingError::Occupied(address));
        }
        set_bit(&mut self.giant_accessed, regions.start / REGIONS_PER_CHUNK);
        for state in &mut self.states[regions] {
            *state = RegionTranslation::new(Some(EntrySize::Giant), state.host(), true);
        }
        Ok(())
    }

    /// Unmaps everything in the 1 GiB that holds `address`.
    pub fn unmap_whole_gib(&mut self, address: u64) -> Result<()> {
        let regions = self.ensure_chunk_regions(address)?;
        for state in &mut self.states[regions] {
            *state = RegionTranslation::new(None, state.host(), false);
        }
        Ok(())
    }

    /// Sets the page size by which the host maps the memory behind a region, mapped or not. It
    /// counts in virtual machines only; the default is 1 GiB. A host page of 1 GiB covers all
    /// regions of its 1 GiB, and a group of huge pages all of its regions. If one of those regions
    /// gets a smaller size, the others keep 2 MiB. Groups of base pages cover the whole region.
    /// Cores must drop their host translations: see
    /// [`Translator::invalidate_all_and_host`](super::super::Translator::invalidate_all_and_host).
    pub fn set_host_page_size(
        &mut self,
        region: RegionAddr,
        host: impl Into<EntrySize>,
    ) -> Result<()> {
        let host = host.into();
        let index = self.ensure_region_index(region.start())?;
        let before = self.states[index].host();
        let old = self.regions_of_entry(index, before);
        if old.len() > 1 {
            self.set_host_sizes(old, EntrySize::Huge);
        }
        self.set_host_sizes(self.regions_of_entry(index, host), host);
        Ok(())
    }

    fn set_host_sizes(&mut self, regions: Range<usize>, host: EntrySize) {
        for state in &mut self.states[regions] {
            *state = state.with_host(host);
        }
    }

    /// The regions that share the entry of this size with region `index`.
    pub(super) fn regions_of_entry(&self, index: usize, size: EntrySize) -> Range<usize> {
        let regions = match size {
            EntrySize::Giant => REGIONS_PER_CHUNK,
            EntrySize::HugeGroup => {
                1 << (self.orders.order_of(size) - self.orders.order_of(EntrySize::Huge))
            }
            _ => 1,
        };
        let first = index / regions * regions;
        first..first + regions
    }

    fn ensure_chunk_regions(&mut self, address: u64) -> Result<Range<usize>> {
        let first = self.ensure_region_index(address & !(CHUNK_BYTES - 1))?;
        Ok(first..first + REGIONS_PER_CHUNK)
    }

    fn split_huge_region(&mut self, index: usize) {
        self.end_huge_group(index);
        let accessed = if is_bit_set(&self.huge_accessed, index) { FULL } else { [0; WORDS] };
        let protected = if self.states[index].is_whole() { [0; WORDS] } else { FULL };
        self.set_base_pages(index, [FULL, protected, accessed]);
        self.update_region_state(index);
    }

    /// Sets the bits of base pages in no group: present, protected, accessed.
    fn set_base_pages(&mut self, index: usize, bits: [[u64; WORDS]; 3]) {
        let planes = [&mut self.present, &mut self.protected, &mut self.accessed];
        for (plane, bits) in planes.into_iter().zip(bits) {
            plane[index * WORDS..][..WORDS].copy_from_slice(&bits);
        }
        if let Some(groups) = self.grouped.get_mut(index) {
            *groups = 0;
        }
    }

    pub(super) fn update_region_state(&mut self, index: usize) {
        let present = region_words(&self.present, index);
        let size = (present != [0; WORDS]).then_some(EntrySize::Base);
        let whole = present == FULL && region_words(&self.protected, index) == [0; WORDS];
        self.states[index] = RegionTranslation::new(size, self.states[index].host(), whole);
        self.update_groups(index);
    }
}

fn giant_page_error(region: RegionAddr) -> MappingError {
    MappingError::Giant(region.start())
}
