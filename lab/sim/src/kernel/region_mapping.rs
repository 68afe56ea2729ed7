//! The mappings of one region: 2 MiB of an address space.

use super::folios::Folios;
use crate::memory::{AscendingRun, AscendingRunMap, FrameRun};
use crate::page_bits::PageBits;
use hawkeye_policy::{FileRegion, PAGES_PER_REGION, PageOrder, RegionAddr, RegionSample};

/// A huge-page-sized part of a FreeBSD reservation: frames kept for the region's other pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) block: u32,
    /// Whether its frames were zeroed when it was made.
    pub(crate) zeroed: bool,
    /// Its place in the order of use: when a page of it was last populated.
    pub(crate) used: u64,
}

/// A piece of a region in one pageblock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionPartInPageblock {
    /// First page in the region.
    pub(crate) page: u16,
    pub(crate) block: u32,
    /// First page in the pageblock.
    pub(crate) first: u16,
    pub(crate) count: u16,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RegionMapping {
    /// Pages with a frame; all of them under a huge page.
    pub(crate) present: PageBits,
    pub(crate) zero_mapped: PageBits,
    pub(crate) swapped: PageBits,
    /// Present or swapped pages that hold something other than zeros.
    pub(crate) nonzero: PageBits,
    /// Present pages written since they were mapped (the dirty bit).
    pub(crate) written: PageBits,
    /// Pages accessed since the last scan of reclaim.
    pub(crate) accessed: PageBits,
    pub(crate) frames: AscendingRunMap,
    /// Pages of it that are in folios, if it is no huge page.
    pub(crate) folios: Folios,
    pub(crate) huge: Option<u32>,
    /// The size, over 2 MiB, of the page that it is a part of, together with the regions around it.
    pub(crate) multi_region: Option<PageOrder>,
    pub(crate) huge_zero: bool,
    /// Whether it has no page table: nothing was ever mapped by base pages.
    pub(crate) untouched: bool,
    /// Whether mapped memory was not zeroed in its fault: an unwritten page is in no cache.
    pub(crate) cold: bool,
    pub(crate) reservation: Option<Reservation>,
    /// Of shared memory: which part of which file. The frames are the file's.
    pub(crate) file: Option<FileRegion>,
    /// Its number on reclaim's lists.
    pub(crate) listed: Option<u64>,
}

pub(crate) fn frame_run_of_huge_page(block: u32) -> AscendingRun {
    let frames = FrameRun::of_pageblock(block);
    AscendingRun::new(0, frames.count as u16, frames.first.into())
}

impl RegionMapping {
    pub(crate) fn new() -> Self {
        Self { untouched: true, ..Self::default() }
    }

    /// Whether nothing is in it, so that the first fault may choose how to map it.
    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_empty()
            && self.zero_mapped.is_empty()
            && self.swapped.is_empty()
            && self.reservation.is_none()
    }

    /// Whether a larger page can replace it: something is present, and nothing in swap. Pages of a
    /// file are not its own to move.
    pub(crate) fn can_move_to_larger_page(&self) -> bool {
        !self.present.is_empty() && self.swapped.is_empty() && self.file.is_none()
    }

    pub(crate) fn frame_of_page(&self, page: u16) -> Option<u32> {
        match self.huge {
            Some(block) => Some(FrameRun::of_pageblock(block).first + u32::from(page)),
            None => self.frames.get(page).map(|frame| frame as u32),
        }
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = RegionPartInPageblock> {
        let runs = self.frames.iter().chain(self.huge.map(frame_run_of_huge_page));
        runs.flat_map(|run| {
            let start = run.value as u32;
            let frames = FrameRun::new(start, run.count.into());
            frames.split_by_pageblock().map(move |(block, first, count)| RegionPartInPageblock {
                page: run.first
                    + (FrameRun::from_pageblock_offset(block, first, count).first - start) as u16,
                block,
                first,
                count,
            })
        })
    }

    pub(crate) fn map_pages(&mut self, first: u16, frames: FrameRun) {
        let count = frames.count as u16;
        let pages = PageBits::range(first, count);
        debug_assert!(pages.and(self.present).is_empty());
        self.present = self.present.or(pages);
        self.zero_mapped = self.zero_mapped.minus(pages);
        self.swapped = self.swapped.minus(pages);
        self.untouched = false;
        self.frames.insert(AscendingRun::new(first, count, frames.first.into()));
    }

    /// Maps a page of this order; its first frame and first page must be aligned to its size.
    pub(crate) fn map_folio(&mut self, order: PageOrder, first: u16, frames: FrameRun) {
        self.map_pages(first, frames);
        let pages = PageBits::range(first, frames.count as u16);
        self.folios.insert(order, pages);
    }

    /// Takes base pages away from their frames, and forgets all of their state except `nonzero`.
    pub(crate) fn unmap_run(&mut self, first: u16, count: u16) {
        let pages = PageBits::range(first, count);
        for set in [&mut self.present, &mut self.written, &mut self.accessed] {
            *set = set.minus(pages);
        }
        self.folios.break_up_folios_with_pages(pages);
        self.frames.remove(first, count);
    }

    /// The same for all of these pages; returns their frames.
    pub(crate) fn unmap_pages(&mut self, pages: PageBits) -> Vec<AscendingRun> {
        let mut runs = Vec::new();
        for (first, count) in pages.runs() {
            runs.extend(self.frames.runs_within(first, count));
            self.unmap_run(first, count);
        }
        runs
    }

    /// Base pages from `first` on moved from these frames to those from `to` on. Returns whether
    /// any of them are mapped here.
    pub(crate) fn move_to_frames(&mut self, first: u16, from: FrameRun, to: u32) -> bool {
        let had = |place: u16| u64::from(from.first) + u64::from(place - first);
        let runs = self.frames.runs_within(first, from.count as u16);
        let same: Vec<_> = runs.filter(|run| run.value == had(run.first)).collect();
        for run in &same {
            self.frames.remove(run.first, run.count);
            self.frames.insert(AscendingRun {
                value: run.value - u64::from(from.first) + u64::from(to),
                ..*run
            });
        }
        self.break_up_scattered_folios();
        !same.is_empty()
    }

    pub(crate) fn split_huge_page(&mut self) {
        self.multi_region = None;
        if let Some(block) = self.huge.take() {
            let frames = FrameRun::of_pageblock(block);
            self.frames = AscendingRunMap::from_run(AscendingRun::new(
                0,
                PAGES_PER_REGION,
                frames.first.into(),
            ));
            self.untouched = false;
        }
    }

    pub(crate) fn map_huge_page(&mut self, block: u32) {
        self.huge = Some(block);
        self.frames.clear();
        self.folios.clear();
        self.present = PageBits::FULL;
        self.zero_mapped = PageBits::EMPTY;
        self.huge_zero = false;
        self.untouched = false;
    }

    /// Records accesses to mapped pages; returns how many the program waited for (in no cache).
    pub(crate) fn record_page_accesses(&mut self, pages: PageBits, write: Option<bool>) -> u16 {
        self.accessed = self.accessed.or(pages);
        let Some(nonzero) = write else {
            return 0;
        };
        let cold = if self.cold { pages.minus(self.written).count() } else { 0 };
        self.written = self.written.or(pages);
        self.nonzero = if nonzero { self.nonzero.or(pages) } else { self.nonzero.minus(pages) };
        cold
    }

    fn huge_order(&self) -> PageOrder {
        self.multi_region.unwrap_or(PageOrder::HUGE)
    }

    /// The size of the pages that map most of what is present; of equals, the larger.
    fn most_common_order(&self) -> PageOrder {
        if self.folios.is_empty() {
            return PageOrder::BASE;
        }
        let base = self.present.minus(self.folios.all_pages());
        let sizes = self.folios.iter().chain([(PageOrder::BASE, base)]);
        let usual = sizes.max_by_key(|(order, pages)| (pages.count(), *order));
        usual.map_or(PageOrder::BASE, |(order, _)| order)
    }

    /// Pages in aligned blocks of 2^`order` pages with contiguous, equally aligned frames.
    pub(crate) fn page_bits_in_contiguous_blocks(&self, order: u32) -> PageBits {
        let size = 1u64 << order;
        let mut pages = PageBits::EMPTY;
        for run in self.frames.iter() {
            if run.value % size == u64::from(run.first) % size {
                pages = pages.or(PageBits::range(run.first, run.count).fully_covered_blocks(order));
            }
        }
        pages
    }

    pub(crate) fn break_up_scattered_folios(&mut self) {
        let folios: Vec<_> = self.folios.iter().collect();
        for (order, pages) in folios {
            let lying = self.page_bits_in_contiguous_blocks(order.log2_pages());
            self.folios.break_up_folios_with_pages(pages.minus(lying));
        }
    }

    /// Base pages that pages of each size map; a larger page counts here with its part.
    pub(crate) fn count_pages_by_size(&self) -> impl Iterator<Item = (PageOrder, u16)> {
        let huge = self.huge.map(|_| (self.huge_order(), PAGES_PER_REGION));
        let base = match huge {
            Some(_) => 0,
            None => self.present.minus(self.folios.all_pages()).count(),
        };
        let folios = self.folios.iter().map(|(order, pages)| (order, pages.count()));
        let base = (base > 0).then_some((PageOrder::BASE, base));
        folios.chain(huge).chain(base)
    }

    /// The region as a policy sees it, if there is anything in it.
    pub(crate) fn region_sample(&self, region: RegionAddr) -> Option<RegionSample> {
        let mapped = self.present.or(self.zero_mapped).or(self.swapped);
        let (accessed, order) = match self.huge {
            Some(_) if self.accessed.is_empty() => (PageBits::EMPTY, self.huge_order()),
            Some(_) => (PageBits::FULL, self.huge_order()),
            None => (self.accessed.and(self.present), self.most_common_order()),
        };
        (!mapped.is_empty()).then(|| RegionSample {
            region,
            present: self.present.count(),
            accessed: accessed.count(),
            runs: accessed.count_runs(),
            written: self.written.count(),
            zero_mapped: self.zero_mapped.count(),
            maybe_shared: 0,
            swapped: self.swapped.count(),
            order,
            walks_per_s: 0,
            touches_per_s: None,
            freed: 0,
            file: self.file,
        })
    }
}
