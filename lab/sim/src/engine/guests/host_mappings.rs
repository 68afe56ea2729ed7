//! The page sizes by which the host maps the memory behind a guest's pages.

use super::guest_machine::{GuestMachine, host_region_of_pageblock};
use crate::engine::EngineError;
use crate::kernel::{RegionId, SimulatedKernel, SpaceId};
use crate::mmu::translation::{LeafSize, PageTableSetup, Translator};
use hawkeye_policy::RegionAddr;
use std::collections::BTreeSet;
use std::time::Duration;

/// Shortest time between two updates of the cores: as often as accesses are measured.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Guests of up to this many frames (512 MiB) are checked frame by frame.
#[cfg(debug_assertions)]
const SMALL: u64 = 1 << 17;

/// The page size by which the host maps most of the memory behind a region.
fn most_common_host_page_size(
    inside: &SimulatedKernel,
    own: SpaceId,
    region: RegionAddr,
    host: &SimulatedKernel,
    space: SpaceId,
) -> LeafSize {
    let (mut all, mut huge) = (0, 0);
    for piece in inside.region_pieces_by_pageblock(own, region) {
        let pages = u32::from(piece.count);
        all += pages;
        let at_host = host.region(RegionId::new(space, host_region_of_pageblock(piece.block)));
        if at_host.is_some_and(|found| found.huge.is_some()) {
            huge += pages;
        }
    }
    if 2 * huge > all { LeafSize::Huge } else { LeafSize::Base }
}

impl GuestMachine {
    /// Updates the cores of all programs where the page size behind their memory has changed. That
    /// is where their pages moved in the guest's memory, or where this memory moved in the host's.
    pub(super) fn update_host_page_sizes(
        &mut self,
        host: &SimulatedKernel,
        now: Duration,
    ) -> Result<(), EngineError> {
        let Some(space) = self.space else {
            return Ok(());
        };
        if let Ok(figures) = host.space_figures(space) {
            self.rss_peak_bytes = self.rss_peak_bytes.max(figures.rss_bytes);
            self.last = figures;
        }
        if !self.stale || now < self.looked + LOOK_EVERY {
            return Ok(());
        }
        (self.stale, self.looked) = (false, now);
        let of = |huge| if huge { LeafSize::Huge } else { LeafSize::Base };
        let mostly = of(2 * self.last.huge_bytes > self.last.rss_bytes);
        let inside = &self.machine.kernel;
        let moved = std::mem::take(&mut self.moved);
        let behind_moved: BTreeSet<(SpaceId, RegionAddr)> =
            moved.into_iter().flat_map(|block| inside.mapped_regions_in_pageblock(block)).collect();
        for program in self.machine.programs.iter_mut().filter(|p| p.is_alive()) {
            let mut changed = false;
            let mut regions = std::mem::take(&mut program.moved);
            let own = behind_moved.iter().filter(|(of, _)| *of == program.space);
            regions.extend(own.map(|(_, region)| region));
            for region in regions {
                if program.seen.page_size(region).is_none() {
                    continue;
                }
                let behind = most_common_host_page_size(inside, program.space, region, host, space);
                if program.seen.host_page_size(region) != behind.into() {
                    program.seen.set_host_page_size(region, behind)?;
                    program.changed_share += program.access_share_of_region(region);
                    changed = true;
                }
            }
            if mostly != self.mostly {
                if let PageTableSetup::Nested { tables_backed_by, .. } =
                    &mut program.core_spec.tables
                {
                    *tables_backed_by = mostly;
                }
                program.core = Translator::new(&program.core_spec)?;
                program.cold = true;
                program.changed_share = 1.0;
                changed = true;
            }
            if changed {
                program.core.invalidate_all_and_host();
                program.changed = true;
            }
        }
        self.mostly = mostly;
        Ok(())
    }

    /// In debug builds: each frame that the guest uses is backed once by memory of its process at
    /// the host, or is in the host's swap. What the guest's kernel considers swapped is.
    #[cfg(debug_assertions)]
    pub(in crate::engine) fn assert_consistent_in_debug(&self, host: &SimulatedKernel) {
        use crate::page_bits::PageBits;
        use hawkeye_policy::PAGES_PER_REGION;
        let Some(space) = self.space else {
            return;
        };
        let inside = &self.machine.kernel;
        self.machine.assert_consistent_in_debug();
        if inside.memory().count_all_frames() > SMALL {
            return;
        }
        let blocks = (inside.memory().count_all_frames() / u64::from(PAGES_PER_REGION)) as u32;
        for block in 0..blocks {
            let region = host_region_of_pageblock(block);
            let away = host.swapped_page_bits(space, region);
            assert_eq!(away, inside.host_swapped_frame_bits(block), "{region} of {}", self.id);
            let backed = host.present_pages(space, region).or(away);
            for run in inside.memory().owner_runs_in_pageblock(block) {
                let used = PageBits::range(run.first, run.count);
                assert!(used.is_subset_of(backed), "{run:?} of block {block} of {}", self.id);
            }
        }
        if self.stale {
            return;
        }
        for program in self.machine.programs.iter().filter(|p| p.is_alive()) {
            for sample in inside.list_region_samples(program.space).unwrap_or_default() {
                let region = sample.region;
                if !program.moved.contains(&region) && program.seen.page_size(region).is_some() {
                    let behind =
                        most_common_host_page_size(inside, program.space, region, host, space);
                    let known = program.seen.host_page_size(region);
                    assert_eq!(known, behind.into(), "{region} of {}", program.id);
                }
            }
        }
    }
}
