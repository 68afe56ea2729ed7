//! What the kernel did to mappings without being asked by their owner: swapping and same-page merging. A processor must
//! learn of it.

use super::{Kernel, SpaceId};
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use std::collections::BTreeSet;

/// Regions with such changes, if somebody wants to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remapped(Option<BTreeSet<(SpaceId, u64)>>);

impl Remapped {
    pub(crate) fn note(&mut self, space: SpaceId, region: u64) {
        if let Some(regions) = &mut self.0 {
            regions.insert((space, region));
        }
    }
}

impl Kernel {
    /// Starts to write down which regions the kernel swaps from or merges pages of.
    pub fn record_remapped(&mut self) {
        self.remapped.0.get_or_insert_default();
    }

    /// Those regions since this was last asked, in ascending order.
    pub fn take_remapped(&mut self) -> Vec<(SpaceId, RegionAddr)> {
        let regions = self.remapped.0.as_mut().map(std::mem::take);
        let regions = regions.unwrap_or_default().into_iter();
        let address = |region| RegionAddr::containing(region * HUGE_PAGE_BYTES);
        regions
            .map(|(space, region)| (space, address(region)))
            .collect()
    }
}
