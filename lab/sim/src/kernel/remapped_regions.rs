//! Changes to mappings that their owner did not request: swapping, same-page merging and, where
//! frames matter, compaction. A processor must learn of them.

use super::address_space::RegionId;
use super::{SimulatedKernel, SpaceId};
use hawkeye_policy::RegionAddr;
use std::collections::BTreeSet;

/// Regions with such changes, if they are recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemappedRegions {
    regions: Option<BTreeSet<RegionId>>,
    /// Whether moves of pages to other frames count too.
    pub(super) moves: bool,
}

impl RemappedRegions {
    pub(crate) fn record(&mut self, at: RegionId) {
        if let Some(regions) = &mut self.regions {
            regions.insert(at);
        }
    }
}

impl SimulatedKernel {
    /// Starts to record regions from which the kernel swaps or merges pages. With `moves` it also
    /// records those in which it moves pages to other frames.
    pub fn start_recording_remaps(&mut self, moves: bool) {
        self.reports.remapped.regions.get_or_insert_default();
        self.reports.remapped.moves = moves;
    }

    /// Those regions since the last call, in ascending order.
    pub fn take_remapped_regions(&mut self) -> Vec<(SpaceId, RegionAddr)> {
        let regions = self.reports.remapped.regions.as_mut().map(std::mem::take);
        let regions = regions.unwrap_or_default().into_iter();
        regions.map(|at| (at.space, at.address())).collect()
    }
}
