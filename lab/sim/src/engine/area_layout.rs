//! Where a program's areas lie, and which of their pages it uses.

use crate::page_bits::PageBits;
use crate::workloads::{Area, AreaPieces};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::ops::Range;

const BEGIN: u64 = 0x1000_0000_0000;
/// Address space between areas, so that no region lies in two.
const GAP: u64 = 1 << 30;

const PER_REGION: u64 = PAGES_PER_REGION as u64;

/// An area of a program, and its pages in use: written, and not freed since.
#[derive(Clone, Debug)]
pub(super) struct AreaLayout {
    pub(super) name: String,
    pub(super) start: u64,
    used: Vec<PageBits>,
    pieces: Option<AreaPieces>,
    /// The pieces that were given back, if the area is in pieces.
    gone: Vec<PageBits>,
}

pub(super) fn lay_out_areas(areas: &[Area]) -> Vec<AreaLayout> {
    let mut start = BEGIN;
    areas
        .iter()
        .map(|area| {
            let regions = area.regions();
            start = area.start.unwrap_or(start);
            let lot = AreaLayout {
                name: area.name.clone(),
                start,
                used: vec![PageBits::EMPTY; regions as usize],
                pieces: area.pieces,
                gone: vec![PageBits::EMPTY; area.pieces.map_or(0, |_| regions as usize)],
            };
            start += regions * HUGE_PAGE_BYTES + GAP;
            lot
        })
        .collect()
}

impl AreaLayout {
    pub(super) fn byte_range(&self) -> Range<u64> {
        self.start..self.start + self.used.len() as u64 * HUGE_PAGE_BYTES
    }

    pub(super) fn mappings(&self) -> Vec<Range<u64>> {
        match self.pieces {
            None => vec![self.byte_range()],
            Some(_) => (0..self.used.len())
                .flat_map(|number| {
                    let region = self.region_address(number);
                    self.pieces_in_region(number)
                        .map(move |piece| byte_range_of_pages(region, piece))
                })
                .collect(),
        }
    }

    pub(super) fn is_mapped_in_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    /// The mappings in a region: all of it, or pieces.
    pub(super) fn pieces_in_region(&self, number: usize) -> impl Iterator<Item = PageBits> + use<> {
        let region = HUGE_PAGE_BYTES;
        let (size, every) = self
            .pieces
            .map_or((region, region), |pieces| (pieces.size.0, pieces.size.0 + pieces.hole.0));
        let there = number < self.used.len();
        let starts = (0..region).step_by(every as usize).filter(move |_| there);
        starts.map(move |start| {
            let pages = |bytes: u64| (bytes / BASE_PAGE_BYTES) as u16;
            PageBits::range(pages(start), pages(size))
        })
    }

    pub(super) fn mapped_pages(&self, number: usize) -> PageBits {
        let all = self.pieces_in_region(number).fold(PageBits::EMPTY, PageBits::or);
        all.minus(self.gone.get(number).copied().unwrap_or(PageBits::EMPTY))
    }

    pub(super) fn record_unmapped_piece(&mut self, number: usize, piece: PageBits) {
        self.mark_pages_unused(number, piece);
        if let Some(gone) = self.gone.get_mut(number) {
            *gone = gone.or(piece);
        }
    }

    /// Returns the pieces of a region that were given back, for a new mapping.
    pub(super) fn take_unmapped_byte_ranges(&mut self, number: usize) -> Vec<Range<u64>> {
        let gone = self.gone.get_mut(number).map(std::mem::take);
        let gone = gone.unwrap_or_default();
        let region = self.region_address(number);
        let pieces = self.pieces_in_region(number).filter(|piece| !piece.and(gone).is_empty());
        pieces.map(|piece| byte_range_of_pages(region, piece)).collect()
    }

    /// Regions of a part, by number; at least one.
    pub(super) fn region_numbers_of_part(&self, [from, to]: [f64; 2]) -> Range<usize> {
        let count = self.used.len();
        let at = |share: f64| (share * count as f64).round() as usize;
        let first = at(from).min(count.saturating_sub(1));
        first..at(to).clamp(first + 1, count)
    }

    pub(super) fn region_address(&self, number: usize) -> RegionAddr {
        RegionAddr::containing(self.start + number as u64 * HUGE_PAGE_BYTES)
    }

    pub(super) fn region_number(&self, region: RegionAddr) -> Option<usize> {
        let offset = region.start().checked_sub(self.start)?;
        let number = (offset / HUGE_PAGE_BYTES) as usize;
        (number < self.used.len()).then_some(number)
    }

    pub(super) fn used_pages(&self, number: usize) -> PageBits {
        self.used.get(number).copied().unwrap_or(PageBits::EMPTY)
    }

    pub(super) fn mark_pages_used(&mut self, number: usize, pages: PageBits) {
        if let Some(used) = self.used.get_mut(number) {
            *used = used.or(pages);
        }
    }

    pub(super) fn mark_pages_unused(&mut self, number: usize, pages: PageBits) {
        if let Some(used) = self.used.get_mut(number) {
            *used = used.minus(pages);
        }
    }

    pub(super) fn is_page_used(&self, page: u64) -> bool {
        let used = self.used.get((page / PER_REGION) as usize);
        used.is_some_and(|used| used.contains((page % PER_REGION) as u16))
    }

    pub(super) fn count_used_pages(&self, regions: Range<usize>) -> u64 {
        let used = self.used.get(regions).unwrap_or_default();
        used.iter().map(|pages| u64::from(pages.count())).sum()
    }

    pub(super) fn page_address(&self, page: u64) -> u64 {
        self.start + page * BASE_PAGE_BYTES
    }
}

pub(super) fn byte_range_of_pages(region: RegionAddr, pages: PageBits) -> Range<u64> {
    let (first, count) = pages.next_run(0).unwrap_or_default();
    let start = region.start() + u64::from(first) * BASE_PAGE_BYTES;
    start..start + u64::from(count) * BASE_PAGE_BYTES
}
