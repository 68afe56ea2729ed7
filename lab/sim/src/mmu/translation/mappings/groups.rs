//! Neighbouring pages that one TLB entry can hold.

use super::{Mappings, SpaceId, WORDS, words};
use crate::mmu::translation::error::MappingError;
use crate::mmu::translation::place::region_of;
use crate::mmu::translation::sizes::EntrySize;
use crate::mmu::translation::state::RegionState;
use crate::mmu::{Group, GroupCondition, Groups};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};

/// Whether a base page is held by an entry of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mmu::translation) enum Membership {
    /// It is in none.
    None,
    /// The processor does not see the group as one yet: not all of its pages have their access bit set.
    Seeming,
    /// It is.
    Member,
}

/// Which access bits a walk sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Of the number of a page what is that of the first one whose bit is set.
    first: u32,
    /// The bits, if that is page 0.
    bits: u64,
}

impl Mark {
    /// That of the page alone.
    pub(crate) const SINGLE: Self = Self {
        first: u32::MAX,
        bits: 1,
    };

    /// By the size of the entry.
    pub(crate) fn of_sizes(groups: Groups) -> [Self; 5] {
        let [base, huge] = [groups.base, groups.huge].map(|group| match group {
            Some(Group {
                order,
                condition: GroupCondition::Marked,
                ..
            }) => Self {
                first: u32::MAX << order,
                bits: bits(1 << order),
            },
            _ => Self::SINGLE,
        });
        [Self::SINGLE, base, Self::SINGLE, huge, Self::SINGLE]
    }

    /// Word of the plane, and bits in it.
    #[inline(always)]
    pub(crate) const fn place(self, number: u32) -> (usize, u64) {
        let first = number & self.first;
        ((first / 64) as usize, self.bits << (first % 64))
    }

    /// Clears the bits.
    pub(crate) fn clear(self, plane: &mut [u64], number: usize) {
        let (word, bits) = self.place(number as u32);
        plane[word] &= !bits;
    }
}

impl Mappings {
    /// The groups that there can be.
    pub fn groups(&self) -> Groups {
        self.groups
    }

    /// Says which naturally aligned groups of a region's base pages lie in as many frames in a row, aligned alike, and
    /// are marked so where the processor wants that ([`Group::condition`](crate::mmu::Group::condition)): a bit for each
    /// group, the first lowest. Others are none from now on.
    ///
    /// Groups of which a page is not mapped, or not protected as the others, are left out; and later, when a page of
    /// them is unmapped or protected otherwise, or the region mapped by a huge page and split, they end. What gets other
    /// frames without that must be told anew. To access bits the condition applies. Nothing happens where base pages
    /// have no groups, or the region is not mapped by them.
    ///
    /// # Errors
    ///
    /// There is no such address space.
    pub fn set_groups(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        groups: u128,
    ) -> Result<(), MappingError> {
        let Some(index) = self.known(space, region.start())? else {
            return Ok(());
        };
        let (Some(group), true) = (self.groups.base, self.is_base(index)) else {
            return Ok(());
        };
        let before = self.grouped[index];
        self.grouped[index] = groups & self.alike(index, group);
        if group.condition == GroupCondition::Marked {
            // One access bit, of what was one or none of several.
            let mut new = self.grouped[index] & !before;
            while new != 0 {
                let (word, bits) = members(group, new.trailing_zeros());
                let accessed = &mut self.accessed[index * WORDS + word];
                *accessed |= if *accessed & bits == 0 { 0 } else { bits };
                new &= new - 1;
            }
        }
        self.settle(index);
        Ok(())
    }

    /// The groups of a region's base pages that were [set](Self::set_groups) and have not ended; of contiguous ones also
    /// those that the processor does not see as one, because the access bits of their pages differ.
    pub fn base_groups(&self, space: SpaceId, region: RegionAddr) -> u128 {
        let index = self.index(space, region.start());
        match self.is_base(index) {
            true => self.grouped.get(index).copied().unwrap_or_default(),
            false => 0,
        }
    }

    /// Maps a whole group of regions, that around this one, by huge pages ([`map_huge`](Self::map_huge)) that are one
    /// TLB entry. What changes one of them later makes them huge pages again, each with its access bit. Where huge pages
    /// have no groups, it is one huge page.
    ///
    /// # Errors
    ///
    /// See [`MappingError`].
    pub fn map_huge_group(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
    ) -> Result<(), MappingError> {
        let regions = 1u64 << self.groups.huge.map_or(0, |group| group.order);
        let bytes = regions * HUGE_PAGE_BYTES;
        let first = region.start() / bytes * bytes;
        for number in 0..regions {
            let region = RegionAddr::containing(first + number * HUGE_PAGE_BYTES);
            self.map_huge(space, region)?;
        }
        let index = self.make(space, first)?;
        if self.groups.huge.is_some() {
            let neighbours = self.regions_of(index, EntrySize::HugeGroup);
            for state in &mut self.states[neighbours] {
                *state = RegionState::new(Some(EntrySize::HugeGroup), state.host(), true);
            }
        }
        Ok(())
    }

    /// Whether a region is mapped by a group of huge pages.
    pub fn is_in_huge_group(&self, space: SpaceId, region: RegionAddr) -> bool {
        let state = self.states[self.index(space, region.start())];
        state.size().is_some() && state.own() == EntrySize::HugeGroup
    }

    /// Makes a group of huge pages huge pages.
    pub(super) fn end_huge_group(&mut self, index: usize) {
        let state = self.states[index];
        if state.size().is_some() && state.own() == EntrySize::HugeGroup {
            let neighbours = self.regions_of(index, EntrySize::HugeGroup);
            for state in &mut self.states[neighbours] {
                *state = RegionState::new(Some(EntrySize::Huge), state.host(), state.is_whole());
            }
        }
    }

    fn is_base(&self, index: usize) -> bool {
        let state = self.states[index];
        state.size().is_some() && state.leaf() == EntrySize::Base.leaf()
    }

    /// Ends the groups of a region of base pages that are none any more, and brings its state in line with the others.
    pub(super) fn see_groups(&mut self, index: usize) {
        let (Some(group), true) = (self.groups.base, self.is_base(index)) else {
            return;
        };
        let host = self.states[index].host();
        if self.grouped[index] == 0 {
            return;
        }
        let groups = self.grouped[index] & self.alike(index, group);
        self.grouped[index] = groups;
        let seen = match group.condition {
            GroupCondition::Marked => groups,
            GroupCondition::Contiguous => {
                let accessed = words(&self.accessed, index);
                groups & of_groups(group, |word, bits| accessed[word] & bits == bits)
            }
        };
        let all = u128::MAX >> (128 - (PAGES_PER_REGION >> group.order));
        self.states[index] = if seen == all {
            let whole = words(&self.protected, index) == [0; WORDS];
            RegionState::new(Some(EntrySize::BaseGroup), host, whole)
        } else {
            let whole = groups == 0 && self.states[index].is_whole();
            let state = RegionState::new(Some(EntrySize::Base), host, whole);
            if groups == 0 {
                state
            } else {
                state.with_some_groups()
            }
        };
    }

    /// Whether a base page is held by an entry of its group, in a region that has some groups.
    #[inline]
    pub(in crate::mmu::translation) fn membership(&self, page: u32) -> Membership {
        let Some(group) = self.groups.base else {
            return Membership::None;
        };
        let groups = self.grouped.get(region_of(page)).copied();
        let number = (page % PAGES_PER_REGION as u32) >> group.order;
        if groups.unwrap_or_default() >> number & 1 == 0 {
            return Membership::None;
        }
        match group.condition {
            GroupCondition::Marked => Membership::Member,
            GroupCondition::Contiguous if self.all_accessed(group, page) => Membership::Member,
            GroupCondition::Contiguous => Membership::Seeming,
        }
    }

    /// After the access bit of a page of a group was set: whether the processor sees that as one now.
    pub(in crate::mmu::translation) fn completes(&mut self, page: u32) -> bool {
        let seen = self.membership(page) == Membership::Member;
        if seen {
            self.settle(region_of(page));
        }
        seen
    }

    fn all_accessed(&self, group: Group, page: u32) -> bool {
        let first = page & (u32::MAX << group.order);
        let bits = bits(1 << group.order) << (first % 64);
        self.accessed[(first / 64) as usize] & bits == bits
    }

    /// Groups whose pages are all mapped, and protected alike.
    fn alike(&self, index: usize, group: Group) -> u128 {
        let (present, protected) = (words(&self.present, index), words(&self.protected, index));
        of_groups(group, |word, bits| {
            let protected = protected[word] & bits;
            present[word] & bits == bits && (protected == 0 || protected == bits)
        })
    }
}

/// The groups of a region for whose pages, told by their word and bits in there, something holds.
fn of_groups(group: Group, holds: impl Fn(usize, u64) -> bool) -> u128 {
    let groups = 0..(PAGES_PER_REGION >> group.order) as u32;
    groups.fold(0, |all, number| {
        let (word, bits) = members(group, number);
        all | u128::from(holds(word, bits)) << number
    })
}

/// The base pages of a group of a region: word and bits.
fn members(group: Group, number: u32) -> (usize, u64) {
    let first = number << group.order;
    (
        (first / 64) as usize,
        bits(1 << group.order) << (first % 64),
    )
}

/// So many bits (1 to 64), the lowest.
const fn bits(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}
