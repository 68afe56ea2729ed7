//! Moves of file pages to other frames.

use super::FileRegionId;
use crate::kernel::address_space::{RegionId, split_at_region_boundaries};
use crate::kernel::region_mapping::RegionMapping;
use crate::kernel::{SharedFileId, SimulatedKernel, SpaceId};
use crate::memory::{FrameRun, pageblock_of_frame};
use hawkeye_policy::{PAGES_PER_REGION, RegionAddr};

impl SimulatedKernel {
    /// Pages of a file from `page` on moved from these frames to those from `to` on.
    pub(in crate::kernel) fn remap_moved_file_pages(
        &mut self,
        file: SharedFileId,
        page: u64,
        from: FrameRun,
        to: u32,
    ) {
        let mut passed = 0;
        for (index, first, count) in split_at_region_boundaries(page..page + u64::from(from.count))
        {
            let piece = FrameRun::new(from.first + passed, count.into());
            self.remap_in_file_region(FileRegionId { file, index }, first, piece, to + passed);
            passed += u32::from(count);
        }
    }

    fn remap_in_file_region(&mut self, file: FileRegionId, first: u16, from: FrameRun, to: u32) {
        let held = self.files.region(file);
        let huge =
            held.is_some_and(|it| it.huge.is_some() && it.frame_of_page(first) == Some(from.first));
        let whole = from.count == u32::from(PAGES_PER_REGION) && to % from.count == 0;
        if huge && !whole {
            self.split_file_region_everywhere(file);
        }
        let move_mapping = |found: &mut RegionMapping| {
            if huge && whole {
                found.huge = Some(pageblock_of_frame(to));
                return true;
            }
            found.move_to_frames(first, from, to)
        };
        if let Some(held) = self.files.region_mut(file) {
            move_mapping(held);
        }
        for place in self.places_of_file_region(file) {
            if self.region_mut(place).is_some_and(move_mapping) && self.reports.remapped.moves {
                self.reports.remapped.record(place);
            }
        }
    }

    /// The regions that map these pages of a file.
    pub(in crate::kernel) fn regions_of_file_pages(
        &self,
        file: SharedFileId,
        page: u64,
        count: u16,
    ) -> Vec<(SpaceId, RegionAddr)> {
        let regions = split_at_region_boundaries(page..page + u64::from(count));
        let places = regions
            .flat_map(|(index, ..)| self.places_of_file_region(FileRegionId { file, index }));
        places.map(|place: RegionId| (place.space, place.address())).collect()
    }
}
