//! Neighbouring pages that one TLB entry can hold.

use super::{Mappings, WORDS, region_words};
use crate::mmu::translation::dense_page_numbers::region_of_page;
use crate::mmu::translation::error::Result;
use crate::mmu::translation::region_translation::RegionTranslation;
use crate::mmu::translation::sizes::EntrySize;
use crate::mmu::{CoalescedPageGroup, CoalescedPageGroups, TlbGroupCondition};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};

/// Whether the entry of its group holds a base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mmu::translation) enum PageGroupState {
    /// The page is in no group.
    None,
    /// Not one group to the processor yet: not all of its pages have their access bit set.
    Incomplete,
    /// The group's entry holds the page.
    Member,
}

/// Which access bits a walk sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessBitMask {
    /// Mask from a page's number to that of the first page that shares its access bit.
    first: u32,
    /// The bits that are set, if that page is page 0.
    bits: u64,
}

impl AccessBitMask {
    pub(crate) const SINGLE: Self = Self { first: u32::MAX, bits: 1 };

    pub(crate) fn by_entry_size(groups: CoalescedPageGroups) -> [Self; 5] {
        let [base, huge] = [groups.base, groups.huge].map(|group| match group {
            Some(CoalescedPageGroup { order, condition: TlbGroupCondition::Marked, .. }) => {
                Self { first: u32::MAX << order, bits: lowest_bits(1 << order) }
            }
            _ => Self::SINGLE,
        });
        [Self::SINGLE, base, Self::SINGLE, huge, Self::SINGLE]
    }

    /// Word of the plane, and bits in it.
    #[inline(always)]
    pub(crate) const fn word_and_bits(self, number: u32) -> (usize, u64) {
        let first = number & self.first;
        ((first / 64) as usize, self.bits << (first % 64))
    }

    pub(crate) fn clear_page_bits_in_plane(self, plane: &mut [u64], number: usize) {
        let (word, bits) = self.word_and_bits(number as u32);
        plane[word] &= !bits;
    }
}

impl Mappings {
    /// The groups that are possible.
    pub fn groups(&self) -> CoalescedPageGroups {
        self.groups
    }

    /// Sets which naturally aligned groups of a region's base pages lie in contiguous frames,
    /// equally aligned. They must be marked if the processor requires it
    /// ([`CoalescedPageGroup::condition`](crate::mmu::CoalescedPageGroup::condition)). Takes a bit
    /// for each group, the first lowest; all others stop being groups.
    ///
    /// A group is left out if a page of it is not mapped, or not protected like the others. It ends
    /// when a page of it is unmapped or protected differently, or when the region is mapped by a
    /// huge page and split. After any other change of frames, call this again. The condition also
    /// applies to access bits. Nothing happens if base pages have no groups, or if the region is
    /// not mapped by base pages.
    pub fn set_groups(&mut self, region: RegionAddr, groups: u128) {
        let Some(index) = self.known_region_index(region.start()) else {
            return;
        };
        let (Some(group), true) = (self.groups.base, self.is_mapped_by_base_pages(index)) else {
            return;
        };
        let before = self.grouped[index];
        self.grouped[index] = groups & self.groups_of_like_pages(index, group);
        if group.condition == TlbGroupCondition::Marked {
            // The pages now share one access bit: set if any of theirs was.
            let mut new = self.grouped[index] & !before;
            while new != 0 {
                let (word, bits) = group_pages(group, new.trailing_zeros());
                let accessed = &mut self.accessed[index * WORDS + word];
                *accessed |= if *accessed & bits == 0 { 0 } else { bits };
                new &= new - 1;
            }
        }
        self.update_region_state(index);
    }

    /// The groups of base pages that were [set](Self::set_groups) and have not ended, including
    /// those that the processor does not see as one because access bits differ.
    pub fn bit_per_base_page_group(&self, region: RegionAddr) -> u128 {
        let index = self.region_index(region.start());
        match self.is_mapped_by_base_pages(index) {
            true => self.grouped.get(index).copied().unwrap_or_default(),
            false => 0,
        }
    }

    /// Maps the whole group of regions around this one by huge pages ([`map_huge`](Self::map_huge))
    /// that share one TLB entry. A later change of one of them turns them into single huge pages,
    /// each with its access bit. Without groups of huge pages, it maps one huge page.
    pub fn map_huge_group(&mut self, region: RegionAddr) -> Result<()> {
        let regions = 1u64 << self.groups.huge.map_or(0, |group| group.order);
        let bytes = regions * HUGE_PAGE_BYTES;
        let first = region.start() / bytes * bytes;
        for number in 0..regions {
            let region = RegionAddr::containing(first + number * HUGE_PAGE_BYTES);
            self.map_huge(region)?;
        }
        let index = self.ensure_region_index(first)?;
        if self.groups.huge.is_some() {
            let neighbours = self.regions_of_entry(index, EntrySize::HugeGroup);
            for state in &mut self.states[neighbours] {
                *state = RegionTranslation::new(Some(EntrySize::HugeGroup), state.host(), true);
            }
        }
        Ok(())
    }

    /// Whether a group of huge pages maps a region.
    pub fn is_in_huge_group(&self, region: RegionAddr) -> bool {
        let state = self.states[self.region_index(region.start())];
        state.size().is_some() && state.own_entry_size() == EntrySize::HugeGroup
    }

    pub(super) fn end_huge_group(&mut self, index: usize) {
        let state = self.states[index];
        if state.size().is_some() && state.own_entry_size() == EntrySize::HugeGroup {
            let neighbours = self.regions_of_entry(index, EntrySize::HugeGroup);
            for state in &mut self.states[neighbours] {
                *state =
                    RegionTranslation::new(Some(EntrySize::Huge), state.host(), state.is_whole());
            }
        }
    }

    fn is_mapped_by_base_pages(&self, index: usize) -> bool {
        let state = self.states[index];
        state.size().is_some() && state.leaf() == EntrySize::Base.leaf()
    }

    pub(super) fn update_groups(&mut self, index: usize) {
        let (Some(group), true) = (self.groups.base, self.is_mapped_by_base_pages(index)) else {
            return;
        };
        let host = self.states[index].host();
        if self.grouped[index] == 0 {
            return;
        }
        let groups = self.grouped[index] & self.groups_of_like_pages(index, group);
        self.grouped[index] = groups;
        let seen = match group.condition {
            TlbGroupCondition::Marked => groups,
            TlbGroupCondition::Contiguous => {
                let accessed = region_words(&self.accessed, index);
                groups & groups_where_all(group, |word, bits| accessed[word] & bits == bits)
            }
        };
        let all = u128::MAX >> (128 - (PAGES_PER_REGION >> group.order));
        self.states[index] = if seen == all {
            let whole = region_words(&self.protected, index) == [0; WORDS];
            RegionTranslation::new(Some(EntrySize::BaseGroup), host, whole)
        } else {
            let whole = groups == 0 && self.states[index].is_whole();
            let state = RegionTranslation::new(Some(EntrySize::Base), host, whole);
            if groups == 0 { state } else { state.with_some_groups() }
        };
    }

    #[inline]
    pub(in crate::mmu::translation) fn page_group_state(&self, page: u32) -> PageGroupState {
        let Some(group) = self.groups.base else {
            return PageGroupState::None;
        };
        let groups = self.grouped.get(region_of_page(page)).copied();
        let number = (page % PAGES_PER_REGION as u32) >> group.order;
        if groups.unwrap_or_default() >> number & 1 == 0 {
            return PageGroupState::None;
        }
        match group.condition {
            TlbGroupCondition::Marked => PageGroupState::Member,
            TlbGroupCondition::Contiguous if self.is_group_accessed(group, page) => {
                PageGroupState::Member
            }
            TlbGroupCondition::Contiguous => PageGroupState::Incomplete,
        }
    }

    /// After a page's access bit was set: whether the processor now sees its group as one.
    pub(in crate::mmu::translation) fn update_group_if_completed(&mut self, page: u32) -> bool {
        let seen = self.page_group_state(page) == PageGroupState::Member;
        if seen {
            self.update_region_state(region_of_page(page));
        }
        seen
    }

    fn is_group_accessed(&self, group: CoalescedPageGroup, page: u32) -> bool {
        let first = page & (u32::MAX << group.order);
        let bits = lowest_bits(1 << group.order) << (first % 64);
        self.accessed[(first / 64) as usize] & bits == bits
    }

    fn groups_of_like_pages(&self, index: usize, group: CoalescedPageGroup) -> u128 {
        let (present, protected) =
            (region_words(&self.present, index), region_words(&self.protected, index));
        groups_where_all(group, |word, bits| {
            let protected = protected[word] & bits;
            present[word] & bits == bits && (protected == 0 || protected == bits)
        })
    }
}

/// The groups of a region for which `holds` is true of all pages, given by their word and bits.
fn groups_where_all(group: CoalescedPageGroup, holds: impl Fn(usize, u64) -> bool) -> u128 {
    let groups = 0..(PAGES_PER_REGION >> group.order) as u32;
    groups.fold(0, |all, number| {
        let (word, bits) = group_pages(group, number);
        all | u128::from(holds(word, bits)) << number
    })
}

/// The base pages of a group of a region: word and bits.
fn group_pages(group: CoalescedPageGroup, number: u32) -> (usize, u64) {
    let first = number << group.order;
    ((first / 64) as usize, lowest_bits(1 << group.order) << (first % 64))
}

/// The lowest `count` bits (1 to 64).
const fn lowest_bits(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}
