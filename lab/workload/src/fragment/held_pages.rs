//! The choice of pages to hold: at most one in each physical block of a huge page's size.

use crate::prelude::*;
use hawkeye_linux::memory::fragmentation::FreeMemorySummary;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Of an entry of `/proc/PID/pagemap`: the frame's number, and whether the page is present.
const FRAME: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// Entries of the pagemap that are read at once, of eight bytes each. The workload leaves too
/// little memory for the entries of all pages.
const PAGES_PER_READ: usize = 8192;

#[derive(Clone, Copy)]
struct FilledBlock {
    /// Number of its pages that the workload filled.
    pages: usize,
    /// One of them, chosen at random.
    kept: usize,
}

/// The physical blocks of filled pages, by number.
pub(super) struct FilledBlocks {
    blocks: BTreeMap<u64, FilledBlock>,
    random: WorkloadRng,
}

impl FilledBlocks {
    fn new() -> Self {
        Self { blocks: BTreeMap::new(), random: WorkloadRng::new(1, 0) }
    }

    /// Reads where the first `filled` bytes lie. Pages that are no longer present are left out.
    pub(super) fn read(memory: &WorkloadMemory, filled: usize) -> WorkloadResult<Self> {
        let failed = || WorkloadError::wrap_system_error("/proc/self/pagemap");
        let file = File::open("/proc/self/pagemap").map_err(failed())?;
        let (start, pages) = (memory.start_address() / PAGE as u64, filled / PAGE);
        let mut this = Self::new();
        for first in (0..pages).step_by(PAGES_PER_READ) {
            let mut entries = vec![0; PAGES_PER_READ.min(pages - first) * 8];
            file.read_exact_at(&mut entries, (start + first as u64) * 8).map_err(failed())?;
            for (page, entry) in (first..).zip(entries.chunks_exact(8)) {
                let entry = entry.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
                // Without the permission, the number is 0.
                if entry & PRESENT != 0 && entry & FRAME != 0 {
                    this.add_page(page, entry & FRAME);
                }
            }
        }
        if this.blocks.is_empty() {
            return Err(WorkloadError::Usage(
                "reading frame numbers from /proc/self/pagemap needs root: run this as root".into(),
            ));
        }
        Ok(this)
    }

    fn add_page(&mut self, page: usize, frame: u64) {
        let block = self.blocks.entry(frame / REGION_PAGES as u64);
        let block = block.or_insert(FilledBlock { pages: 0, kept: page });
        block.pages += 1;
        // Each of its pages is kept with the same probability.
        if self.random.draw_one_in(block.pages) {
            block.kept = page;
        }
    }
}

/// Number of the `whole` blocks in which a page must stay. Free memory then has this FMFI after all
/// other filled pages are given back. `free` is the free memory before that.
fn count_blocks_to_hold(whole: usize, free: FreeMemorySummary, filled: usize, fmfi: f64) -> usize {
    let free_then = free.bytes as f64 + filled as f64;
    let huge_then = free.huge_bytes as f64 + (whole * REGION) as f64;
    let excess = huge_then - (1.0 - fmfi) * free_then;
    ((excess / REGION as f64).max(0.0).round() as usize).min(whole)
}

pub(super) struct HeldPages {
    /// Pages in blocks that the workload fills as a whole: without such a page, each would be a
    /// free huge page.
    whole: Vec<usize>,
    /// Pages in blocks that the workload fills in part, and the number of its pages in the block.
    /// The rest is in use, or on a processor's own list of free pages.
    partial: Vec<(usize, usize)>,
}

impl HeldPages {
    pub(super) fn choose_from_blocks(filled: FilledBlocks) -> Self {
        let FilledBlocks { blocks, mut random } = filled;
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        for FilledBlock { pages, kept } in blocks.into_values() {
            if pages == REGION_PAGES {
                whole.push(kept);
            } else {
                partial.push((kept, pages));
            }
        }
        // Random order, so that the remaining pages lie all over memory.
        random.shuffle(&mut whole);
        random.shuffle(&mut partial);
        Self { whole, partial }
    }

    pub(super) fn held_pages(&self) -> Vec<usize> {
        let mut kept = self.whole.clone();
        kept.extend(self.partial.iter().map(|(kept, _)| kept));
        kept.sort_unstable();
        kept
    }

    pub(super) fn free_other_pages(
        &self,
        memory: &mut WorkloadMemory,
        filled: usize,
    ) -> WorkloadResult<()> {
        let mut from = 0;
        for page in self.held_pages().into_iter().chain([filled / PAGE]) {
            if page > from {
                memory.discard_range(from * PAGE, (page - from) * PAGE)?;
            }
            from = page + 1;
        }
        Ok(())
    }

    /// To those needed for this FMFI after the others are given back.
    pub(super) fn keep_pages_for_unusable_free_index(
        &mut self,
        free: FreeMemorySummary,
        filled: usize,
        fmfi: f64,
    ) {
        let needed = count_blocks_to_hold(self.whole.len(), free, filled, fmfi);
        self.whole.truncate(needed);
        // The other blocks are no huge pages now, but become huge pages when the pages in them are
        // freed or moved. The requested fragmentation must not depend on others, and must not
        // exceed the request later.
        let free_then = free.bytes as f64 + filled as f64;
        let mut spoilt = needed * REGION_PAGES;
        self.partial.retain(|(_, pages)| {
            spoilt += pages;
            (spoilt * PAGE) as f64 <= fmfi * free_then
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::this_test;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    fn choose_from_frames(frames: &[u64]) -> HeldPages {
        let mut blocks = FilledBlocks::new();
        for (page, frame) in frames.iter().enumerate() {
            blocks.add_page(page, *frame);
        }
        HeldPages::choose_from_blocks(blocks)
    }

    const NOTHING_FREE: FreeMemorySummary = FreeMemorySummary { bytes: 0, huge_bytes: 0 };

    #[test]
    fn every_page_of_a_block_may_be_held() {
        let mut blocks = FilledBlocks::new();
        let mut kept = BTreeSet::new();
        for block in 1..100 {
            (0..4).for_each(|page| blocks.add_page(page, block * 512 + page as u64));
            kept.insert(blocks.blocks[&block].kept);
        }
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn all_filled_pages_are_counted() {
        if !nix::unistd::geteuid().is_root() {
            return this_test!().skip("it needs root");
        }
        let filled = (PAGES_PER_READ + 100) * PAGE;
        let bytes = filled.next_multiple_of(REGION);
        let mut memory = WorkloadMemory::map_without_huge_pages(bytes).unwrap();
        memory.populate_range(0, filled).unwrap();
        // The kernel may be moving some pages while they are read.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let blocks = FilledBlocks::read(&memory, filled).unwrap().blocks;
            assert!(blocks.values().all(|block| (1..=REGION_PAGES).contains(&block.pages)));
            let counted: usize = blocks.values().map(|block| block.pages).sum();
            if counted == filled / PAGE {
                return;
            }
            assert!(Instant::now() < deadline, "{counted} of {} pages", filled / PAGE);
        }
    }

    #[test]
    fn one_page_of_each_block_is_held() {
        // Two whole blocks, and some pages of a third.
        let frames: Vec<u64> = (512..1536).rev().chain([2048, 2050]).collect();
        let mut holding = choose_from_frames(&frames);
        let of = |holding: &HeldPages| -> Vec<u64> {
            let kept = holding.held_pages();
            kept.iter().map(|page| frames[*page] / 512).collect()
        };
        let blocks = of(&holding);
        assert_eq!(blocks.len(), 3);
        assert!([1, 2, 4].iter().all(|block| blocks.contains(block)), "{blocks:?}");
        holding.keep_pages_for_unusable_free_index(NOTHING_FREE, 2 * REGION, 0.5);
        let blocks = of(&holding);
        assert!(blocks == [1] || blocks == [2], "{blocks:?}");
    }

    #[test]
    fn blocks_of_which_others_have_a_part_are_held_as_far_as_what_is_asked_for_goes() {
        // Of 100 blocks, other memory has half of each, and this workload has half of each.
        let frames: Vec<u64> = (0..100 * 512).filter(|frame| frame % 2 == 1).collect();
        for (fmfi, held) in [(1.0, 100), (0.25, 25), (0.0, 0)] {
            let mut holding = choose_from_frames(&frames);
            holding.keep_pages_for_unusable_free_index(NOTHING_FREE, frames.len() * PAGE, fmfi);
            assert_eq!(holding.held_pages().len(), held, "{fmfi}");
        }
    }

    #[test]
    fn as_many_blocks_are_spoilt_as_the_index_needs() {
        let free = FreeMemorySummary { bytes: 10 * REGION as u64, ..NOTHING_FREE };
        // Of 100 blocks of memory, ten are fragmented already.
        assert_eq!(count_blocks_to_hold(90, free, 90 * REGION, 0.9), 80);
        assert_eq!(count_blocks_to_hold(90, free, 90 * REGION, 0.1), 0);
        assert_eq!(count_blocks_to_hold(90, free, 90 * REGION, 0.0), 0);
        let whole = FreeMemorySummary { huge_bytes: free.bytes, ..free };
        assert_eq!(count_blocks_to_hold(90, whole, 90 * REGION, 0.9), 90);
    }
}
