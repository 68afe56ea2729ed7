//! x86-64.

use hawkeye_policy::BASE_PAGE_BYTES;
use std::arch::asm;
use std::arch::x86_64::{_mm_sfence, _mm_stream_si64};
use std::ptr::NonNull;

/// Debian's package of QEMU for this architecture.
pub(crate) const QEMU_PACKAGE: &str = "qemu-system-x86";

/// Runs `COUNT` instructions. They use no constants, because on Golden Cove an addition of a
/// constant needs no register of its own.
#[inline(always)]
pub(crate) fn run_additions<const COUNT: usize>() {
    // SAFETY: it changes only registers of its own.
    unsafe {
        asm!(
            // Breaks dependencies: the old content of a register may be the result of a read.
            "xor {a:e}, {a:e}",
            "xor {b:e}, {b:e}",
            "xor {c:e}, {c:e}",
            "xor {d:e}, {d:e}",
            ".rept {quarter}",
            "add {a}, {b}",
            "add {b}, {c}",
            "add {c}, {d}",
            "add {d}, {a}",
            ".endr",
            quarter = const COUNT / 4,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nomem, nostack),
        );
    }
}

/// Zeroes a base page with stores that pass the caches.
///
/// # Safety
/// The page is the caller's own, and nothing else reads or writes it meanwhile.
pub(crate) unsafe fn zero_page_past_caches(page: NonNull<u8>) {
    let words = page.cast::<i64>();
    for word in 0..BASE_PAGE_BYTES as usize / 8 {
        // SAFETY: the words are those of the page, and the instruction is part of every x86-64
        // processor.
        unsafe { _mm_stream_si64(words.add(word).as_ptr(), 0) };
    }
    // SAFETY: it orders stores, and is part of every x86-64 processor.
    unsafe { _mm_sfence() };
}
