//! Invariants of the model.

mod folios_and_multi_region;

use super::address_space::{AddressSpace, first_page};
use super::region_mapping::{RegionMapping, frame_run_of_huge_page};
use super::{InvariantViolation, SimulatedKernel, shared_files};
use crate::memory::{AscendingRun, FrameOwner, FrameRun};
use crate::page_bits::PageBits;
use hawkeye_policy::HUGE_PAGE_BYTES;

/// A debug build checks machines of at most this many frames (512 MiB) in full after every call.
const SMALL: u64 = 1 << 17;

fn check_count(what: &'static str, counted: u64, there: u64) -> Result<(), InvariantViolation> {
    if counted == there {
        return Ok(());
    }
    Err(InvariantViolation::Count { what, counted, there })
}

impl SimulatedKernel {
    /// Checks that the model doesn't contradict itself:
    ///
    /// - frames are conserved
    /// - exactly one frame of its own backs every mapped page
    /// - zeroed frames are free
    /// - counts are right
    /// - reservations are consistent
    /// - a page of a file is in one frame, in which all address spaces map it
    pub fn check(&self) -> Result<(), InvariantViolation> {
        self.memory.check().map_err(InvariantViolation::Frames)?;
        let mut mapped = 0;
        let (mut swapped, mut reserved, mut reservations) = (0, 0, 0);
        for space in self.spaces.values() {
            self.check_counts(space)?;
            swapped += space.swapped;
            for (number, region) in space.table.iter() {
                if let Some(rule) = self.broken_region_rule(space, number, region) {
                    return Err(InvariantViolation::Region {
                        space: space.id,
                        region: number * HUGE_PAGE_BYTES,
                        rule,
                    });
                }
                if region.file.is_none() {
                    mapped += u64::from(region.present.count());
                }
                if let Some(reservation) = region.reservation {
                    reservations += 1;
                    let unused = self.memory.reserved_frame_bits(reservation.block);
                    reserved += u64::from(unused.count());
                }
            }
        }
        if let Some(rule) = self.files.broken_contents_rule(&self.memory) {
            return Err(InvariantViolation::Frames(rule));
        }
        check_count("pages in swap", self.reclaim_state.swap.used, swapped)?;
        let kept = self.huge_frames.reservations.len();
        check_count("reservations", kept, reservations)?;
        let cache = &self.reclaim_state.cache;
        for (&page, &frame) in &cache.frames {
            if self.memory.owner(frame) != Some(FrameOwner::Cache { page }) {
                let rule = "a cached page is in a frame of another owner";
                return Err(InvariantViolation::Frames(rule));
            }
        }
        let owned = self.memory.count_all_frames()
            - self.memory.count_free_frames()
            - self.memory.count_kernel_frames();
        let known = mapped + reserved + cache.count_pages() + self.files.count_pages();
        check_count("frames in use", owned, known)
    }

    pub(crate) fn assert_consistent_in_debug(&self) {
        if cfg!(debug_assertions) && self.memory.count_all_frames() <= SMALL {
            let broken = self.check().err();
            assert!(broken.is_none(), "{broken:?}");
        }
    }

    fn check_counts(&self, space: &AddressSpace) -> Result<(), InvariantViolation> {
        let sum =
            |of: fn(&RegionMapping) -> u64| space.table.iter().map(|(_, r)| of(r)).sum::<u64>();
        let present = sum(|region| region.present.count().into());
        let swapped = sum(|region| region.swapped.count().into());
        check_count("resident pages", space.resident, present)?;
        check_count("huge pages", space.huge, sum(|region| region.huge.is_some().into()))?;
        check_count("swapped pages", space.swapped, swapped)
    }

    fn broken_region_rule(
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
        let whole = present.is_full() && region.frames.iter().next().is_none();
        let file = space.file_region_at(number);
        let backed = |run: AscendingRun| {
            let page = first_page(number) + u64::from(run.first);
            let owner = match file {
                Some(file) => file.owner_of_page(run.first),
                None => FrameOwner::Anonymous { space: space.id.0, page },
            };
            self.memory.owns_run(FrameRun::new(run.value as u32, run.count.into()), owner)
        };
        let runs = || region.frames.iter().chain(region.huge.map(frame_run_of_huge_page));
        let frame_count: u16 = runs().map(|run| run.count).sum();
        let backed = frame_count == present.count() && runs().all(backed);
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
            ("all of a huge page is present", region.huge.is_none() || whole),
            ("a present page has a frame of its own or of its file", backed),
            (
                "only present pages have frames",
                frames.all(|run| PageBits::range(run.first, run.count).is_subset_of(present)),
            ),
        ];
        let broken = rules.into_iter().find(|(_, holds)| !holds);
        let broken = broken.map(|(rule, _)| rule);
        let broken = broken.or_else(|| {
            let file = file.filter(|_| !region.present.is_empty())?;
            shared_files::broken_mapping_rule(region, self.files.region(file))
        });
        broken.or_else(|| folios_and_multi_region::broken_page_size_rule(space, number, region))
    }
}
