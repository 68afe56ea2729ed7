//! Memory taken back: reservations first, then the page cache, then what can be swapped.

use super::space::first_page;
use super::{Kernel, SpaceId};
use crate::memory::{FrameRun, Run};
use hawkeye_policy::PageOrder;
use std::ops::Range;
use std::time::Duration;

impl Kernel {
    /// Frees up to about `want` frames; returns how many, and adds what it took to `time`.
    pub(crate) fn reclaim(&mut self, want: u64, time: &mut Duration) -> u64 {
        let mut freed = self.break_reservations(want);
        if freed < want {
            freed += self.drop_cache(want - freed, time);
        }
        if freed < want {
            freed += self.swap_out(want - freed, time);
        }
        freed
    }

    /// Whether a living relative of `space` has `frame` at this page too.
    pub(crate) fn is_mapped_by_relative(
        &self,
        space: SpaceId,
        family: u32,
        page: u64,
        frame: u32,
    ) -> bool {
        let members = self.spaces.members(family).iter();
        let (region, place) = (page >> 9, (page & 511) as u16);
        members.filter(|member| **member != space).any(|member| {
            let found = self.spaces.get(*member).and_then(|s| s.table.get(region));
            found.is_some_and(|found| found.frame(place) == Some(frame))
        })
    }

    /// Frames that `space` has unmapped (a run of pages from `page` on, `run.value` being the first frame) are freed,
    /// unless a relative has them.
    pub(crate) fn release(&mut self, space: SpaceId, page: u64, run: Run) {
        let frames = FrameRun {
            first: run.value as u32,
            count: run.count.into(),
        };
        let family = self.spaces.get(space).map_or(0, |s| s.family);
        if !self.spaces.has_relatives(family) {
            self.memory.free(frames);
            return;
        }
        for i in 0..frames.count {
            let frame = frames.first + i;
            if !self.is_mapped_by_relative(space, family, page + u64::from(i), frame) {
                self.memory.free(FrameRun {
                    first: frame,
                    count: 1,
                });
            }
        }
    }

    /// The address space that holds most memory, which Linux would kill when there is none left (`oom_badness`).
    pub fn out_of_memory_victim(&self) -> Option<SpaceId> {
        let largest = self
            .spaces
            .iter()
            .max_by_key(|s| (s.resident + s.swapped, s.id))?;
        Some(largest.id)
    }

    /// Splits a huge page in the page table, if the region is one, and before that the larger page that it is part of.
    /// Returns how many splits that took.
    pub(crate) fn split_huge(
        &mut self,
        space: SpaceId,
        region: u64,
    ) -> Result<u64, super::KernelError> {
        let larger = self.end_joined(space, region);
        let space = self.space_mut(space)?;
        let Some(found) = space.table.get_mut(region).filter(|r| r.huge.is_some()) else {
            return Ok(0);
        };
        found.split();
        space.huge -= 1;
        Ok(1 + u64::from(larger))
    }

    /// The larger page that a region is part of becomes huge pages, in the same frames; whether there was one.
    pub(crate) fn end_joined(&mut self, space: SpaceId, region: u64) -> bool {
        let Some(space) = self.spaces.get_mut(space) else {
            return false;
        };
        let joined = space.table.get(region).and_then(|found| found.joined);
        let Some(order) = joined else {
            return false;
        };
        for neighbour in regions_around(region, order) {
            if let Some(found) = space.table.get_mut(neighbour) {
                found.joined = None;
            }
        }
        true
    }

    /// First page of a region, and its first frame: what a huge page occupies.
    pub(crate) fn huge_run(block: u32, region: u64) -> (u64, Run) {
        let frames = FrameRun::of_block(block);
        let run = Run {
            first: 0,
            count: frames.count as u16,
            value: frames.first.into(),
        };
        (first_page(region), run)
    }
}

/// The regions that one page of this size maps, of which this is one.
pub(crate) fn regions_around(region: u64, order: PageOrder) -> Range<u64> {
    let first = region & !(order.regions() - 1);
    first..first + order.regions()
}
