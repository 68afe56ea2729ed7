//! One region of a simulated page table.

use crate::bits::PageBits;
use crate::spec::Backing;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr, RegionSample};

/// The 512 base pages of a region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Region {
    /// Backed by memory of their own.
    pub(crate) present: PageBits,
    /// Hold something other than zeros.
    pub(crate) nonzero: PageBits,
    /// Mapped to the shared zero page.
    pub(crate) zero_mapped: PageBits,
    /// Access bits as they were when this region was last brought up to date. A huge page has one:
    /// all or none.
    pub(crate) accessed: PageBits,
    /// Exposure of its part up to which access bits are up to date.
    pub(crate) seen: f64,
    /// Whether one huge page maps the region.
    pub(crate) huge: bool,
}

impl Region {
    pub(crate) fn new(backing: Backing, used: PageBits) -> Self {
        let present = match backing {
            Backing::Base => used,
            Backing::Huge => PageBits::FULL,
        };
        Self {
            present,
            nonzero: used,
            // A fault maps a page as accessed.
            accessed: present,
            huge: backing == Backing::Huge,
            ..Self::default()
        }
    }

    /// Clear access bits in it that an access to the pages in use would set.
    pub(crate) fn unmarked(&self, used: PageBits) -> u16 {
        if self.huge {
            u16::from(self.accessed.is_empty())
        } else {
            used.minus(self.accessed).count()
        }
    }

    /// Makes it huge; returns how many pages more are present.
    pub(crate) fn collapse(&mut self) -> u16 {
        let added = PAGES_PER_REGION - self.present.count();
        self.present = PageBits::FULL;
        self.zero_mapped = PageBits::EMPTY;
        // The kernel maps a collapsed page as accessed.
        self.accessed = PageBits::FULL;
        self.huge = true;
        added
    }

    /// Splits the huge page and maps its zero pages to the shared one; returns how many pages fewer
    /// are present. Without a huge page nothing happens.
    pub(crate) fn split_zeros(&mut self) -> u16 {
        if !self.huge {
            return 0;
        }
        self.huge = false;
        self.zero_mapped = self.present.minus(self.nonzero);
        self.present = self.nonzero;
        self.accessed = self.accessed.and(self.present);
        self.zero_mapped.count()
    }

    /// Its owner writes to these pages; returns how many pages more are present.
    pub(crate) fn write(&mut self, pages: PageBits) -> u16 {
        let added = pages.minus(self.present);
        self.present = self.present.or(pages);
        self.nonzero = self.nonzero.or(pages);
        self.zero_mapped = self.zero_mapped.minus(pages);
        // A fault maps a page as accessed.
        self.accessed = self.accessed.or(added);
        added.count()
    }

    /// Its owner frees these pages; returns how many pages fewer are present.
    pub(crate) fn free(&mut self, pages: PageBits) -> u16 {
        let freed = pages.and(self.present);
        self.huge &= freed.is_empty();
        self.present = self.present.minus(freed);
        self.nonzero = self.nonzero.minus(freed);
        self.zero_mapped = self.zero_mapped.minus(pages);
        self.accessed = self.accessed.minus(freed);
        freed.count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_empty() && self.zero_mapped.is_empty()
    }

    /// As a page-table walk sees it; `None` when there is nothing in it. Without access `bits` every
    /// present page counts as accessed.
    pub(crate) fn sample(&self, region: RegionAddr, bits: bool) -> Option<RegionSample> {
        let accessed = if bits { self.accessed } else { self.present };
        let present = self.present.count();
        (!self.is_empty()).then(|| RegionSample {
            region,
            present,
            accessed: accessed.count(),
            runs: accessed.runs(),
            // Whatever is present was written at least once, if by the kernel.
            written: present,
            zero_mapped: self.zero_mapped.count(),
            maybe_shared: 0,
            swapped: 0,
            order: PageOrder::of_region(self.huge),
            walks_per_s: 0,
        })
    }

    /// What is wrong with it, if anything.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        let rules = [
            (
                self.nonzero.within(self.present),
                "what is not zero is present",
            ),
            (
                self.zero_mapped.and(self.present).is_empty(),
                "the zero page is not memory of its own",
            ),
            (
                self.accessed.within(self.present),
                "what was accessed is present",
            ),
            (
                !self.huge || self.present == PageBits::FULL,
                "a huge page is present as a whole",
            ),
            (
                !self.huge || self.accessed.is_empty() || self.accessed == PageBits::FULL,
                "a huge page has one access bit",
            ),
        ];
        rules
            .into_iter()
            .find_map(|(holds, rule)| (!holds).then_some(rule))
    }
}
