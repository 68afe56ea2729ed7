//! Shared memory, as programs access it and as a manager sees it.

use super::error::Result;
use super::program::Program;
use super::stream_sampler::touch_probability;
use crate::kernel::{PageAccessKind, SimulatedKernel, SpaceId};
use crate::page_bits::PageBits;
use hawkeye_policy::{CoverageSource, ProcessSample, RegionAddr};

impl Program {
    /// Remembers a region that was mapped and is not any more, if it is shared memory.
    pub(super) fn note_emptied_shared_memory(
        &mut self,
        kernel: &SimulatedKernel,
        region: RegionAddr,
    ) {
        if kernel.is_unmapped_file_region(self.space, region) {
            self.emptied.insert(region);
        }
    }

    /// Maps the regions that a promotion in another program emptied, if one of `made` accesses went
    /// there. Its next access maps the huge page, which a sample of accesses may not have.
    pub(super) fn map_accessed_shared_memory(
        &mut self,
        kernel: &mut SimulatedKernel,
        made: f64,
    ) -> Result<()> {
        for region in std::mem::take(&mut self.emptied) {
            if !kernel.is_unmapped_file_region(self.space, region) {
                continue;
            }
            let accesses = made * self.access_share_of_region(region);
            if !self.rng.chance(touch_probability(accesses)) {
                self.emptied.insert(region);
                continue;
            }
            let page = PageBits::range(0, 1);
            let read = PageAccessKind::Read;
            let touched = kernel.touch_pages_of_region(self.space, region, page, read)?;
            self.owed_ns += touched.time.as_nanos() as f64;
            self.update_mappings(kernel, region)?;
        }
        Ok(())
    }
}

/// Hides accesses to shared memory that several programs have mapped: a manager cannot clear access
/// bits there. If that is most of a program's memory, nothing is known of its accesses.
pub(super) fn hide_accesses_of_several_mappers(
    sample: &mut ProcessSample,
    kernel: &SimulatedKernel,
    space: SpaceId,
) {
    let mut hidden = 0;
    for region in sample.regions.iter_mut().filter(|region| region.file.is_some()) {
        if kernel.other_mappers_of_region(space, region.region).is_empty() {
            continue;
        }
        hidden += 1;
        region.accessed = region.present;
        region.runs = 1;
        region.walks_per_s = 0;
        region.touches_per_s = None;
    }
    if 2 * hidden > sample.regions.len() {
        sample.source = CoverageSource::Population;
        sample.overhead = None;
    }
}
