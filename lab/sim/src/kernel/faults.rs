//! Page faults: a program accesses memory.

use super::address_space::{
    FaultCounts, RegionId, page_range_of_aligned_bytes, split_at_region_boundaries,
};
use super::fault_policies::FirstTouchPolicy;
use super::region_mapping::RegionMapping;
use super::{KernelError, Result, SimulatedKernel, SpaceId};
use crate::page_bits::PageBits;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::ops::Range;
use std::time::Duration;

/// A program's access to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccessKind {
    /// A read.
    Read,
    /// A write of something other than zeros.
    Write,
    /// A write of zeros to all of it.
    WriteZeros,
}

impl PageAccessKind {
    fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether something other than zeros is written; `None` for a read.
    pub(super) fn writes_nonzero(self) -> Option<bool> {
        self.writes().then_some(self == Self::Write)
    }
}

/// The result of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchResult {
    /// Time in faults, paid by the program, including direct reclaim and compaction.
    pub time: Duration,
    /// Faults by kind.
    pub faults: FaultCounts,
    /// Base pages zeroed in faults.
    pub zeroed: u64,
    /// Pages written for the first time that no zeroing had brought into the caches. The program
    /// waits [`cold_touch_ns`](super::KernelCosts::cold_touch_ns) longer for each. That time is not
    /// part of `time`.
    pub cold: u64,
}

/// The result of a first touch that maps no huge page.
pub(super) enum NonHugeTouchResult {
    /// A page of some size was mapped; the number of touched pages in it.
    Mapped(u16),
    /// At most this many touched pages get base pages; later ones may get larger pages.
    Base(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultCause {
    Missing,
    Swapped,
    /// A write to the shared zero page.
    ZeroPage,
}

impl SimulatedKernel {
    /// A program accesses every base page of a range in ascending order.
    ///
    /// # Errors
    /// The range isn't mapped. Or no memory is left; pages before the failing one are done.
    pub fn touch(
        &mut self,
        space: SpaceId,
        bytes: Range<u64>,
        access: PageAccessKind,
    ) -> Result<TouchResult> {
        let pages = page_range_of_aligned_bytes(&bytes)?;
        if !self.space(space)?.is_mapped(&pages) {
            return Err(KernelError::NotMapped(space, bytes));
        }
        let mut sum = TouchResult::default();
        let outcome = split_at_region_boundaries(pages).try_for_each(|(region, first, count)| {
            let pages = PageBits::range(first, count);
            self.touch_in_region(RegionId { space, region }, pages, access, &mut sum)
        });
        self.account_for_touch(space, &sum);
        outcome.map(|()| sum)
    }

    /// The same for some pages of one region, all of which must be mapped.
    pub fn touch_pages_of_region(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: PageBits,
        access: PageAccessKind,
    ) -> Result<TouchResult> {
        let at = RegionId::new(space, region);
        for (first, count) in pages.runs() {
            let run = at.page_number(first)..at.page_number(first + count);
            if !self.space(space)?.is_mapped(&run) {
                let bytes = run.start * BASE_PAGE_BYTES..run.end * BASE_PAGE_BYTES;
                return Err(KernelError::NotMapped(space, bytes));
            }
        }
        let mut sum = TouchResult::default();
        let outcome = self.touch_in_region(at, pages, access, &mut sum);
        self.account_for_touch(space, &sum);
        outcome.map(|()| sum)
    }

    fn account_for_touch(&mut self, space: SpaceId, sum: &TouchResult) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.faults.add(&sum.faults);
        }
        self.charge_kernel_time(space, sum.time);
        self.assert_consistent_in_debug();
    }

    fn touch_in_region(
        &mut self,
        at: RegionId,
        pages: PageBits,
        access: PageAccessKind,
        sum: &mut TouchResult,
    ) -> Result<()> {
        if let Some(file) = self.space(at.space)?.file_region_at(at.region) {
            return self.touch_in_file_region(at, file, pages, access, sum);
        }
        let mut from = 0;
        while from < PAGES_PER_REGION {
            let found = self.get_or_create_region(at)?;
            let ahead = pages.and(PageBits::range(from, PAGES_PER_REGION));
            let faulting = ahead.minus(found.page_bits_without_fault(access));
            let next = faulting.next_run(0);
            // Accessed before the next fault: reclaim in that fault may take them.
            let until = next.map_or(PAGES_PER_REGION, |(first, _)| first);
            let before = ahead.and(PageBits::range(from, until - from));
            sum.cold += u64::from(found.record_page_accesses(before, access.writes_nonzero()));
            let Some((first, count)) = next else {
                break;
            };
            let (cause, count) = found.fault_cause(first, count);
            from = first + self.handle_faults_of_cause(at, (first, count), cause, access, sum)?;
            let done = pages.and(PageBits::range(first, from - first));
            sum.cold += u64::from(
                self.get_or_create_region(at)?.record_page_accesses(done, access.writes_nonzero()),
            );
        }
        Ok(())
    }

    /// Handles faults on neighbouring pages of one cause; returns how many of them, at least one.
    fn handle_faults_of_cause(
        &mut self,
        at: RegionId,
        pages: (u16, u16),
        cause: FaultCause,
        access: PageAccessKind,
        sum: &mut TouchResult,
    ) -> Result<u16> {
        match cause {
            FaultCause::Swapped => self.swap_in_leading_pages(at, pages, sum),
            FaultCause::ZeroPage => {
                let found = self.get_or_create_region(at)?;
                if found.huge_zero {
                    // A huge page replaces the huge zero page, or 512 small zero pages do.
                    found.zero_mapped = PageBits::EMPTY;
                    found.huge_zero = false;
                    if self.try_huge_page_at_first_touch(at, sum)? {
                        return Ok(pages.1);
                    }
                    let found = self.get_or_create_region(at)?;
                    found.zero_mapped = PageBits::FULL;
                    found.untouched = false;
                }
                let got = self.map_base_pages(at, pages, sum)?;
                sum.faults.zero_page_writes += u64::from(got);
                Ok(got)
            }
            FaultCause::Missing => self.handle_first_touches(at, pages, access, sum),
        }
    }

    fn handle_first_touches(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        access: PageAccessKind,
        sum: &mut TouchResult,
    ) -> Result<u16> {
        let choice = self.first_touch_policy_of_region(at)?;
        if access == PageAccessKind::Read && self.faults.shares_zero_page {
            return self.map_shared_zero_pages(at, (first, count), choice, sum);
        }
        match choice {
            FirstTouchPolicy::Huge { .. } => {
                if self.try_huge_page_at_first_touch(at, sum)? {
                    self.reports.first_touch_streams.record_first_touches(at, 1);
                    return Ok(count);
                }
            }
            FirstTouchPolicy::Reserve => self.reserve_huge_frame_for_region(at),
            FirstTouchPolicy::Base => {}
        }
        let most = match self.try_map_sized_page(at, (first, count), sum)? {
            NonHugeTouchResult::Mapped(got) => {
                self.reports.first_touch_streams.record_first_touches(at, 1);
                return Ok(got);
            }
            NonHugeTouchResult::Base(most) => most,
        };
        let got = self.map_base_pages(at, (first, most), sum)?;
        sum.faults.base += u64::from(got);
        self.reports.first_touch_streams.record_first_touches(at, got);
        Ok(got)
    }
}

impl RegionMapping {
    fn page_bits_without_fault(&self, access: PageAccessKind) -> PageBits {
        if access.writes() { self.present } else { self.present.or(self.zero_mapped) }
    }

    /// The cause of the first page's fault, and the number of pages that fault for the same cause.
    fn fault_cause(&self, first: u16, count: u16) -> (FaultCause, u16) {
        let causes =
            [(FaultCause::Swapped, self.swapped), (FaultCause::ZeroPage, self.zero_mapped)];
        let alike = |pages: PageBits| {
            let run = pages.next_run(first).filter(|(start, _)| *start == first);
            run.map_or(0, |(_, alike)| alike.min(count))
        };
        let known = causes.into_iter().find(|(_, pages)| pages.contains(first));
        known.map_or_else(
            || {
                let mapped = self.present.or(self.swapped).or(self.zero_mapped);
                (FaultCause::Missing, alike(PageBits::FULL.minus(mapped)))
            },
            |(cause, pages)| (cause, alike(pages)),
        )
    }
}
