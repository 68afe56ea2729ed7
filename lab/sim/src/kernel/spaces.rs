//! The address spaces of a kernel, and which of them are relatives.

use super::SpaceId;
use super::space::AddressSpace;
use std::collections::BTreeMap;

/// All living address spaces, by number. A space and those that were forked from it are a family.
#[derive(Clone, Debug, Default)]
pub(super) struct Spaces {
    living: BTreeMap<SpaceId, AddressSpace>,
    /// Living members of each family, by the family's number.
    families: Vec<Vec<SpaceId>>,
    created: u32,
}

impl Spaces {
    /// A space in a family of its own.
    pub(super) fn create(&mut self) -> SpaceId {
        let family = self.families.len() as u32;
        self.families.push(Vec::new());
        self.add(family)
    }

    /// A space in an existing family.
    pub(super) fn add(&mut self, family: u32) -> SpaceId {
        let id = SpaceId(self.created);
        self.created += 1;
        self.living.insert(id, AddressSpace::new(id, family));
        if let Some(members) = self.families.get_mut(family as usize) {
            members.push(id);
        }
        id
    }

    pub(super) fn remove(&mut self, id: SpaceId) {
        if let Some(gone) = self.living.remove(&id) {
            if let Some(members) = self.families.get_mut(gone.family as usize) {
                members.retain(|member| *member != id);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, id: SpaceId) -> Option<&AddressSpace> {
        self.living.get(&id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SpaceId) -> Option<&mut AddressSpace> {
        self.living.get_mut(&id)
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &AddressSpace> {
        self.living.values()
    }

    /// Oldest first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut AddressSpace> {
        self.living.values_mut()
    }

    /// This one and all that are younger.
    pub(super) fn from(&self, first: SpaceId) -> impl Iterator<Item = &AddressSpace> {
        self.living.range(first..).map(|(_, space)| space)
    }

    /// The living members of a family, oldest first.
    #[inline]
    pub(super) fn members(&self, family: u32) -> &[SpaceId] {
        let members = self.families.get(family as usize);
        members.map_or(&[], Vec::as_slice)
    }

    /// Whether a member of this family has living relatives.
    pub(super) fn has_relatives(&self, family: u32) -> bool {
        self.members(family).len() > 1
    }
}
