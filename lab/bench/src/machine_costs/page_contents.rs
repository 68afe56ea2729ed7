//! Zeroing, copying and scanning pages, as fast as this program's own loops are.

use super::prelude::*;
use crate::arch::zero_page_past_caches;

/// Memory that one turn processes: more than a core's own caches.
const BYTES: usize = 256 << 20;

/// Measures, for a page each:
/// - zeroing a base page through the caches and past them
/// - zeroing a huge page
/// - copying a base page
/// - scanning the first bytes of a page that is not zero
/// - scanning a whole page that is zero
pub fn measure_page_content_costs() -> Result<[MedianAndRange; 6], LinuxError> {
    // Base pages, because the kernel zeroes and copies single pages at scattered places.
    let (from, to) = (
        ScratchMemory::map_and_write(BYTES, PageAdvice::Base)?,
        ScratchMemory::map_and_write(BYTES, PageAdvice::Base)?,
    );
    let each = |memory: &ScratchMemory, piece: usize, work: &dyn Fn(usize)| {
        let begun = Instant::now();
        for offset in (0..memory.bytes()).step_by(piece) {
            work(offset);
        }
        nanoseconds_since(begun) / (memory.bytes() / piece) as f64
    };
    let scan_used = median_figure_over_turns(|| {
        Ok(each(&from, PAGE, &|offset| {
            std::hint::black_box(count_leading_zero_words(&from, offset));
        }))
    })?;
    let copy_base = median_figure_over_turns(|| {
        Ok(each(&from, PAGE, &|offset| {
            // SAFETY: each of the pages lies within its own mapping.
            unsafe { from.pointer_at(offset).copy_to_nonoverlapping(to.pointer_at(offset), PAGE) };
        }))
    })?;
    let zero = |piece: usize| {
        each(&to, piece, &|offset| {
            // SAFETY: the piece lies within the mapping.
            unsafe { to.pointer_at(offset).write_bytes(0, piece) };
        })
    };
    let [zero_base, zero_huge] = median_figures_over_turns(|| Ok([zero(PAGE), zero(REGION)]))?;
    let zero_base_non_temporal = median_figure_over_turns(|| {
        Ok(each(&to, PAGE, &|offset| {
            // SAFETY: the page lies within the mapping, which nothing else uses meanwhile.
            unsafe { zero_page_past_caches(to.pointer_at(offset)) }
        }))
    })?;
    let scan_zero = median_figure_over_turns(|| {
        Ok(each(&to, PAGE, &|offset| {
            std::hint::black_box(count_leading_zero_words(&to, offset));
        }))
    })?;
    Ok([zero_base, zero_base_non_temporal, zero_huge, copy_base, scan_used, scan_zero])
}

/// Words of the page before the first group of eight that are not all zero.
fn count_leading_zero_words(memory: &ScratchMemory, page: usize) -> usize {
    let words = memory.pointer_at(page).cast::<[u64; 8]>();
    // SAFETY: the page lies within the mapping, starts at a multiple of its size, and nothing
    // writes to it meanwhile.
    let groups = unsafe { std::slice::from_raw_parts(words.as_ptr(), PAGE / 64) };
    let zero = groups.iter().take_while(|group| group.iter().fold(0, |all, word| all | word) == 0);
    zero.count() * 8
}
