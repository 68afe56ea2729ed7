//! A sparse page table: regions by number.

use super::region_mapping::RegionMapping;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct RegionTable {
    regions: BTreeMap<u64, Box<RegionMapping>>,
    /// Regions that were touched for the first time and not reported yet.
    created: Vec<u64>,
}

impl RegionTable {
    pub(crate) fn get(&self, region: u64) -> Option<&RegionMapping> {
        self.regions.get(&region).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, region: u64) -> Option<&mut RegionMapping> {
        self.regions.get_mut(&region).map(Box::as_mut)
    }

    /// The region; creates an untouched one if there was none.
    pub(crate) fn get_or_create(&mut self, region: u64) -> &mut RegionMapping {
        self.regions.entry(region).or_insert_with(|| {
            self.created.push(region);
            Box::new(RegionMapping::new())
        })
    }

    /// Regions first touched since the last call, in that order; some may be gone.
    pub(crate) fn take_created_regions(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.created)
    }

    pub(crate) fn remove(&mut self, region: u64) {
        self.regions.remove(&region);
    }

    /// All regions, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &RegionMapping)> {
        let regions = self.regions.iter();
        regions.map(|(number, region)| (*number, region.as_ref()))
    }

    /// The number of the first region at or after `from`.
    pub(crate) fn next_region(&self, from: u64) -> Option<u64> {
        Some(*self.regions.range(from..).next()?.0)
    }
}
