//! What the kernel did to mappings without being asked by their owner: swapping, same-page merging and, where it matters in
//! which frames pages lie, compaction. A processor must learn of it.

use super::{Kernel, SpaceId};
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use std::collections::BTreeSet;

/// Regions with such changes, if somebody wants to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remapped {
    regions: Option<BTreeSet<(SpaceId, u64)>>,
    /// Those count, too, whose pages were moved to other frames.
    moves: bool,
}

impl Remapped {
    pub(crate) fn note(&mut self, space: SpaceId, region: u64) {
        if let Some(regions) = &mut self.regions {
            regions.insert((space, region));
        }
    }

    pub(crate) fn note_moved(&mut self, space: SpaceId, region: u64) {
        if self.moves {
            self.note(space, region);
        }
    }
}

impl Kernel {
    /// Starts to write down which regions the kernel swaps from or merges pages of; with `moves` also those of which it moves
    /// pages to other frames.
    pub fn record_remapped(&mut self, moves: bool) {
        self.reports.remapped.regions.get_or_insert_default();
        self.reports.remapped.moves = moves;
    }

    /// Those regions since this was last asked, in ascending order.
    pub fn take_remapped(&mut self) -> Vec<(SpaceId, RegionAddr)> {
        let regions = self.reports.remapped.regions.as_mut().map(std::mem::take);
        let regions = regions.unwrap_or_default().into_iter();
        let address = |region| RegionAddr::containing(region * HUGE_PAGE_BYTES);
        regions
            .map(|(space, region)| (space, address(region)))
            .collect()
    }
}
