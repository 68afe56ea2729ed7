//! Invariants of the model.

mod sizes;

use super::region::Region;
use super::space::{AddressSpace, first_page};
use super::{BrokenKernel, Kernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{FrameRun, Owner};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};

/// A debug build checks machines of up to this many frames (512 MiB) in full after every call.
/// Larger ones are checked only by explicit calls.
const SMALL: u64 = 1 << 17;

fn count(what: &'static str, counted: u64, there: u64) -> Result<(), BrokenKernel> {
    if counted == there {
        return Ok(());
    }
    Err(BrokenKernel::Count {
        what,
        counted,
        there,
    })
}

impl Kernel {
    /// Checks that the model doesn't contradict itself:
    ///
    /// - frames are conserved
    /// - exactly one frame of its own backs every mapped page
    /// - zeroed frames are free
    /// - counts are right
    /// - reservations are consistent
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), BrokenKernel> {
        self.memory.check().map_err(BrokenKernel::Frames)?;
        let mut mapped = 0;
        let (mut swapped, mut reserved, mut reservations) = (0, 0, 0);
        for space in self.spaces.values() {
            self.check_counts(space)?;
            swapped += space.swapped;
            for (number, region) in space.table.iter() {
                self.check_region(space.id, number, region)?;
                if let Some(rule) = sizes::broken(space, number, region) {
                    return Err(BrokenKernel::Region {
                        space: space.id,
                        region: number * HUGE_PAGE_BYTES,
                        rule,
                    });
                }
                mapped += u64::from(region.present.count());
                if let Some(reservation) = region.reservation {
                    reservations += 1;
                    reserved += self.unused_frames(reservation.block);
                }
            }
        }
        count("pages in swap", self.reclaim_state.swap.used, swapped)?;
        let kept = self.huge_frames.reservations.len();
        count("reservations", kept, reservations)?;
        let cache = &self.reclaim_state.cache;
        for (&page, &frame) in &cache.frames {
            if self.memory.owner(frame) != Some(Owner::Cache { page }) {
                let rule = "a cached page is in a frame of another owner";
                return Err(BrokenKernel::Frames(rule));
            }
        }
        let owned = self.memory.frames() - self.memory.free_frames() - self.memory.kernel_frames();
        let known = mapped + reserved + cache.pages();
        count("frames in use", owned, known)
    }

    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) && self.memory.frames() <= SMALL {
            let broken = self.check().err();
            assert!(broken.is_none(), "{broken:?}");
        }
    }

    fn check_counts(&self, space: &AddressSpace) -> Result<(), BrokenKernel> {
        let sum = |of: fn(&Region) -> u64| space.table.iter().map(|(_, r)| of(r)).sum::<u64>();
        let present = sum(|region| region.present.count().into());
        let swapped = sum(|region| region.swapped.count().into());
        count("resident pages", space.resident, present)?;
        count(
            "huge pages",
            space.huge,
            sum(|region| region.huge.is_some().into()),
        )?;
        count("swapped pages", space.swapped, swapped)
    }

    fn check_region(
        &self,
        space: SpaceId,
        number: u64,
        region: &Region,
    ) -> Result<(), BrokenKernel> {
        let broken = |rule| {
            Err(BrokenKernel::Region {
                space,
                region: number * HUGE_PAGE_BYTES,
                rule,
            })
        };
        let disjoint = |a: PageBits, b: PageBits| a.and(b).is_empty();
        let (present, zero) = (region.present, region.zero_mapped);
        if !(disjoint(present, zero)
            && disjoint(present, region.swapped)
            && disjoint(zero, region.swapped))
        {
            return broken("a page is in one place only");
        }
        let of_present = [region.written, region.accessed.minus(zero)];
        if !of_present.iter().all(|set| set.within(present)) {
            return broken("only present pages are written or accessed");
        }
        if !region.nonzero.within(present.or(region.swapped)) {
            return broken("only present and swapped pages hold anything");
        }
        if region.huge.is_some() && !(present.full() && region.frames.iter().next().is_none()) {
            return broken("all of a huge page is present");
        }
        let mut backed = PageBits::EMPTY;
        for page in (0..PAGES_PER_REGION).filter(|page| present.contains(*page)) {
            let owner = Owner::Anonymous {
                space: space.0,
                page: first_page(number) + u64::from(page),
            };
            let frame = region.frame(page);
            if frame.and_then(|frame| self.memory.owner(frame)) != Some(owner) {
                return broken("a present page has a frame of its own");
            }
            backed.insert(page);
        }
        for run in region.frames.iter() {
            if !PageBits::range(run.first, run.count).within(backed) {
                return broken("only present pages have frames");
            }
        }
        Ok(())
    }

    fn unused_frames(&self, block: u32) -> u64 {
        let start = FrameRun::of_block(block).first;
        let frames = start..start + u32::from(PAGES_PER_REGION);
        let reserved =
            |frame: &u32| matches!(self.memory.owner(*frame), Some(Owner::Reserved { .. }));
        frames.filter(reserved).count() as u64
    }
}
