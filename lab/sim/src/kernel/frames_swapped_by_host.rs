//! Frames of a virtual machine in its host's swap. The guest's kernel can't see that, but its
//! programs wait. The host reports the frames
//! ([`SimulatedKernel::set_host_swapped_frames`]), asks which are accessed
//! ([`SimulatedKernel::take_accessed_host_swapped_frames`]), and reports the time.

use super::address_space::{RegionId, split_at_region_boundaries};
use super::kernel_costs::time_of_operations;
use super::{
    PageAccessKind, RegionMapping, RegionPartInPageblock, Result, SharedFileId, SimulatedKernel,
    SpaceId,
};
use crate::memory::{FrameOwner, FrameRun};
use crate::page_bits::PageBits;
use hawkeye_policy::RegionAddr;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct FramesSwappedByHost {
    /// Frames in the host's swap, by pageblock.
    away: BTreeMap<u32, PageBits>,
    /// The guest's wait for each of them.
    each: Duration,
    /// Those accessed since the host's last call.
    wanted: Vec<FrameRun>,
}

impl SimulatedKernel {
    /// For a guest: sets which frames of a block its host swapped; each costs a wait of `each`.
    pub fn set_host_swapped_frames(&mut self, block: u32, frames: PageBits, each: Duration) {
        self.reports.hosted.each = each;
        if frames.is_empty() {
            self.reports.hosted.away.remove(&block);
        } else {
            self.reports.hosted.away.insert(block, frames);
        }
    }

    /// For a guest: frames in its host's swap that were accessed since the last call.
    pub fn take_accessed_host_swapped_frames(&mut self) -> Vec<FrameRun> {
        std::mem::take(&mut self.reports.hosted.wanted)
    }

    /// For a guest: the regions with pages in a pageblock of its memory, some repeatedly.
    pub(crate) fn mapped_regions_in_pageblock(
        &self,
        block: u32,
    ) -> impl Iterator<Item = (SpaceId, RegionAddr)> {
        let anonymous = self.memory.owner_runs_in_pageblock(block).filter_map(|run| {
            let FrameOwner::Anonymous { space, page } = FrameOwner::unpack(run.value) else {
                return None;
            };
            Some((SpaceId(space), page..page + u64::from(run.count)))
        });
        let anonymous = anonymous.flat_map(|(space, pages)| {
            split_at_region_boundaries(pages)
                .map(move |(region, ..)| (space, RegionId { space, region }.address()))
        });
        let shared = self.memory.owner_runs_in_pageblock(block).flat_map(|run| {
            match FrameOwner::unpack(run.value) {
                FrameOwner::File { file, page } => {
                    self.regions_of_file_pages(SharedFileId(file), page, run.count)
                }
                _ => Vec::new(),
            }
        });
        anonymous.chain(shared)
    }

    pub(crate) fn region_pieces_by_pageblock(
        &self,
        space: SpaceId,
        region: RegionAddr,
    ) -> impl Iterator<Item = RegionPartInPageblock> {
        let found = self.region(RegionId::new(space, region));
        found.into_iter().flat_map(RegionMapping::pieces)
    }

    /// Whether anything of an address space may be in swap, the host's included.
    pub(crate) fn may_have_swapped_pages(&self, space: SpaceId) -> bool {
        let own = self.spaces.get(&space).is_some_and(|s| s.swapped > 0);
        own || !self.reports.hosted.away.is_empty()
    }

    pub(crate) fn swapped_page_bits(&self, space: SpaceId, region: RegionAddr) -> PageBits {
        let Some(found) = self.region(RegionId::new(space, region)) else {
            return PageBits::EMPTY;
        };
        let mut away = found.swapped;
        if self.reports.hosted.away.is_empty() {
            return away;
        }
        for piece in found.pieces() {
            let there = self.host_swapped_frame_bits(piece.block);
            away = away.or(there.moved_run(piece.first, piece.count, piece.page));
        }
        away
    }

    /// Expected time of an access to a page in swap, of this kernel's and of its host's.
    pub(crate) fn expected_swapped_access_time(&self) -> Duration {
        let costs = &self.costs;
        let own = time_of_operations(1, costs.base_fault_ns + costs.swap_base_ns)
            + self.reclaim_state.swap.read_time(1);
        if self.reports.hosted.away.is_empty() { own } else { self.reports.hosted.each }
    }

    /// A program accesses swapped pages of a region. The host reports the time for its part.
    pub(crate) fn fetch_or_report_swapped_pages(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: PageBits,
    ) -> Result<Duration> {
        let at = RegionId::new(space, region);
        let Some(found) = self.space(space)?.table.get(at.region) else {
            return Ok(Duration::ZERO);
        };
        let own = pages.and(found.swapped);
        let others = pages.minus(own);
        let pieces: Vec<_> = found.pieces().collect();
        for piece in pieces {
            let frames = others.moved_run(piece.page, piece.count, piece.first);
            self.record_host_swapped_access(piece.block, frames);
        }
        let touched = self.touch_pages_of_region(space, region, own, PageAccessKind::Read)?;
        Ok(touched.time)
    }

    /// For a guest: frames of a pageblock that are in its host's swap.
    pub(crate) fn host_swapped_frame_bits(&self, block: u32) -> PageBits {
        let away = self.reports.hosted.away.get(&block).copied();
        away.unwrap_or(PageBits::EMPTY)
    }

    fn record_host_swapped_access(&mut self, block: u32, frames: PageBits) {
        let wanted = self.host_swapped_frame_bits(block).and(frames);
        for (first, count) in wanted.runs() {
            let run = FrameRun::from_pageblock_offset(block, first, count);
            self.reports.hosted.wanted.push(run);
        }
        let away = self.host_swapped_frame_bits(block).minus(wanted);
        self.set_host_swapped_frames(block, away, self.reports.hosted.each);
    }
}
