//! Zeroing, copying and scanning pages, as fast as this program's own loops are.

use super::prelude::*;
use std::ptr::NonNull;

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
        Ok(each(&to, PAGE, &|offset| zero_page_past_caches(to.pointer_at(offset))))
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

#[cfg(target_arch = "x86_64")]
fn zero_page_past_caches(page: NonNull<u8>) {
    use std::arch::x86_64::{_mm_sfence, _mm_stream_si64};
    let words = page.cast::<i64>();
    for word in 0..PAGE / 8 {
        // SAFETY: the words are those of one page of our own, and the instruction is part of every
        // x86-64 processor.
        unsafe { _mm_stream_si64(words.add(word).as_ptr(), 0) };
    }
    // SAFETY: it orders stores, and is part of every x86-64 processor.
    unsafe { _mm_sfence() };
}

/// The same for arm64: stores of pairs with a hint that they will not be read soon.
#[cfg(target_arch = "aarch64")]
fn zero_page_past_caches(page: NonNull<u8>) {
    use std::arch::asm;
    for pair in (0..PAGE).step_by(16) {
        // SAFETY: the bytes are those of one page of our own.
        unsafe {
            let at = page.add(pair).as_ptr();
            asm!("stnp xzr, xzr, [{}]", in(reg) at, options(nostack, preserves_flags));
        }
    }
}
