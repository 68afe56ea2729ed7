//! Invariants of the model.

use super::reclaim::regions_around;
use super::region::RegionMapping;
use super::space::{AddressSpace, first_page};
use super::{BrokenKernel, SimulatedKernel};
use crate::bits::PageBits;
use crate::memory::FrameOwner;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};

/// A debug build checks machines of at most this many frames (512 MiB) in full after every call.
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

impl SimulatedKernel {
    /// Checks that the model doesn't contradict itself:
    ///
    /// - frames are conserved
    /// - exactly one frame of its own backs every mapped page
    /// - zeroed frames are free
    /// - counts are right
    /// - reservations are consistent
    pub fn check(&self) -> Result<(), BrokenKernel> {
        self.memory.check().map_err(BrokenKernel::Frames)?;
        let mut mapped = 0;
        let (mut swapped, mut reserved, mut reservations) = (0, 0, 0);
        for space in self.spaces.values() {
            self.check_counts(space)?;
            swapped += space.swapped;
            for (number, region) in space.table.iter() {
                if let Some(rule) = self.broken_rule(space, number, region) {
                    return Err(BrokenKernel::Region {
                        space: space.id,
                        region: number * HUGE_PAGE_BYTES,
                        rule,
                    });
                }
                mapped += u64::from(region.present.count());
                if let Some(reservation) = region.reservation {
                    reservations += 1;
                    let unused = self.memory.reserved_frames(reservation.block);
                    reserved += u64::from(unused.count());
                }
            }
        }
        count("pages in swap", self.reclaim_state.swap.used, swapped)?;
        let kept = self.huge_frames.reservations.len();
        count("reservations", kept, reservations)?;
        let cache = &self.reclaim_state.cache;
        for (&page, &frame) in &cache.frames {
            if self.memory.owner(frame) != Some(FrameOwner::Cache { page }) {
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
        let sum =
            |of: fn(&RegionMapping) -> u64| space.table.iter().map(|(_, r)| of(r)).sum::<u64>();
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

    fn broken_rule(
        &self,
        space: &AddressSpace,
        number: u64,
        region: &RegionMapping,
    ) -> Option<&'static str> {
        let disjoint = |a: PageBits, b| a.and(b).is_empty();
        let (present, zero, swapped) = (region.present, region.zero_mapped, region.swapped);
        let one_place =
            disjoint(present, zero) && disjoint(present, swapped) && disjoint(zero, swapped);
        let accessed = region.accessed.minus(zero);
        let mut frames = region.frames.iter();
        let whole = present.full() && region.frames.iter().next().is_none();
        let mut pages = (0..PAGES_PER_REGION).filter(|page| present.contains(*page));
        let backed = pages.all(|page| {
            let owner = FrameOwner::Anonymous {
                space: space.id.0,
                page: first_page(number) + u64::from(page),
            };
            let frame = region.frame(page);
            frame.and_then(|frame| self.memory.owner(frame)) == Some(owner)
        });
        let rules = [
            ("a page is in one place only", one_place),
            (
                "only present pages are written or accessed",
                region.written.or(accessed).is_subset_of(present),
            ),
            (
                "only present and swapped pages hold anything",
                region.nonzero.is_subset_of(present.or(swapped)),
            ),
            (
                "all of a huge page is present",
                region.huge.is_none() || whole,
            ),
            ("a present page has a frame of its own", backed),
            (
                "only present pages have frames",
                frames.all(|run| PageBits::range(run.first, run.count).is_subset_of(present)),
            ),
        ];
        let broken = rules.into_iter().find(|(_, holds)| !holds);
        let broken = broken.map(|(rule, _)| rule);
        broken.or_else(|| broken_size_rule(space, number, region))
    }
}

fn broken_size_rule(
    space: &AddressSpace,
    number: u64,
    region: &RegionMapping,
) -> Option<&'static str> {
    let known = space.many_sizes || region.folios.is_empty() && region.multi_region.is_none();
    if !known {
        return Some("only a space of many sizes has folios or larger pages");
    }
    broken_folios(region).or_else(|| broken_multi_region_rule(space, number, region))
}

fn broken_folios(region: &RegionMapping) -> Option<&'static str> {
    if region.huge.is_some() && !region.folios.is_empty() {
        return Some("a huge page has no folios");
    }
    let mut seen = PageBits::EMPTY;
    for (order, pages) in region.folios.iter() {
        if !(1..9).contains(&order.number()) {
            return Some("folios have 2 to 256 pages");
        }
        if !pages.and(seen).is_empty() {
            return Some("a page is in one folio only");
        }
        seen = seen.or(pages);
        if pages.whole_blocks(order.number()) != pages {
            return Some("folios are whole");
        }
        if !pages.is_subset_of(region.present) {
            return Some("all of a folio is present");
        }
        let lying = (0..512).filter(|page| pages.contains(*page)).all(|page| {
            let place = u32::from(page) % (1 << order.number());
            let head = region.frame(page - place as u16);
            let frame = region.frame(page);
            head.is_some_and(|head| head % (1 << order.number()) == 0)
                && frame == head.map(|head| head + place)
        });
        if !lying {
            return Some("a folio lies in a row, aligned in memory as in its region");
        }
    }
    None
}

fn broken_multi_region_rule(
    space: &AddressSpace,
    number: u64,
    region: &RegionMapping,
) -> Option<&'static str> {
    let order = region.multi_region?;
    let Some(block) = region.huge else {
        return Some("what is part of a larger page is huge");
    };
    let around = regions_around(number, order);
    let place = number - around.start;
    let Some(first) = u64::from(block).checked_sub(place) else {
        return Some("a larger page lies in a row");
    };
    if first % order.regions() != 0 {
        return Some("a larger page is aligned in memory");
    }
    let alike = around.clone().zip(first..).all(|(neighbour, block)| {
        let found = space.table.get(neighbour);
        found.is_some_and(|f| f.multi_region == Some(order) && f.huge.map(u64::from) == Some(block))
    });
    (!alike).then_some("all parts of a larger page are mapped, and lie in a row")
}
