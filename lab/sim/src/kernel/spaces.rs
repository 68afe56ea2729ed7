//! The address spaces of a kernel.

use super::SpaceId;
use super::space::AddressSpace;
use std::collections::BTreeMap;

/// All living address spaces, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Spaces {
    living: BTreeMap<SpaceId, AddressSpace>,
    created: u32,
}

impl Spaces {
    pub(super) fn create(&mut self) -> SpaceId {
        let id = SpaceId(self.created);
        self.created += 1;
        self.living.insert(id, AddressSpace::new(id));
        id
    }

    pub(super) fn remove(&mut self, id: SpaceId) {
        self.living.remove(&id);
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

    /// This address space and all that are younger.
    pub(super) fn from(&self, first: SpaceId) -> impl Iterator<Item = &AddressSpace> {
        self.living.range(first..).map(|(_, space)| space)
    }
}
