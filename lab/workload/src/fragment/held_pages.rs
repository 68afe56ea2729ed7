//! The choice of pages to hold: at most one in each physical block of a huge page's size.

use crate::prelude::*;
use hawkeye_linux::memory::fragmentation::FreeMemorySummary;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Of an entry of `/proc/PID/pagemap`: the frame's number, and whether the page is present.
const FRAME: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// The frame of each filled page; 0 if it is no longer known.
pub(super) fn read_frame_numbers(
    memory: &WorkloadMemory,
    filled: usize,
) -> WorkloadResult<Vec<u64>> {
    let failed = || WorkloadError::wrap_system_error("/proc/self/pagemap");
    let file = File::open("/proc/self/pagemap").map_err(failed())?;
    let mut bytes = vec![0; filled / PAGE * 8];
    file.read_exact_at(&mut bytes, memory.start_address() / PAGE as u64 * 8).map_err(failed())?;
    let entries = bytes.chunks_exact(8).map(|entry| {
        let entry = entry.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        if entry & PRESENT == 0 { 0 } else { entry & FRAME }
    });
    let frames: Vec<u64> = entries.collect();
    if frames.iter().all(|frame| *frame == 0) {
        return Err(WorkloadError::Usage(
            "reading frame numbers from /proc/self/pagemap needs root: run this as root".into(),
        ));
    }
    Ok(frames)
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
    pub(super) fn choose_from_frames(frames: &[u64]) -> Self {
        let mut blocks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (page, frame) in frames.iter().enumerate().filter(|(_, frame)| **frame > 0) {
            let pages = blocks.entry(frame / REGION_PAGES as u64).or_default();
            pages.push(page);
        }
        let mut random = WorkloadRng::new(1, 0);
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        for pages in blocks.values() {
            let Some(kept) = pages.get(random.draw_below(pages.len())) else {
                continue;
            };
            if pages.len() == REGION_PAGES {
                whole.push(*kept);
            } else {
                partial.push((*kept, pages.len()));
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

    const NOTHING_FREE: FreeMemorySummary = FreeMemorySummary { bytes: 0, huge_bytes: 0 };

    #[test]
    fn one_page_of_each_block_is_held() {
        // Two whole blocks, and some pages of a third.
        let frames: Vec<u64> = (512..1536).rev().chain([2048, 2050, 0]).collect();
        let mut holding = HeldPages::choose_from_frames(&frames);
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
            let mut holding = HeldPages::choose_from_frames(&frames);
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
