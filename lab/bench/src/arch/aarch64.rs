//! arm64.

use hawkeye_policy::BASE_PAGE_BYTES;
use std::arch::asm;
use std::ptr::NonNull;

/// Debian's package of QEMU for this architecture.
pub(crate) const QEMU_PACKAGE: &str = "qemu-system-arm";

/// Runs `COUNT` instructions that use no constants.
#[inline(always)]
pub(crate) fn run_additions<const COUNT: usize>() {
    // SAFETY: it changes only registers of its own.
    unsafe {
        asm!(
            "mov {a}, xzr",
            "mov {b}, xzr",
            "mov {c}, xzr",
            "mov {d}, xzr",
            ".rept {quarter}",
            "add {a}, {a}, {b}",
            "add {b}, {b}, {c}",
            "add {c}, {c}, {d}",
            "add {d}, {d}, {a}",
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

/// Zeroes a base page with stores of pairs that hint that they will not be read soon.
///
/// # Safety
/// The page is the caller's own, and nothing else reads or writes it meanwhile.
pub(crate) unsafe fn zero_page_past_caches(page: NonNull<u8>) {
    for pair in (0..BASE_PAGE_BYTES as usize).step_by(16) {
        // SAFETY: the bytes are those of the page.
        unsafe {
            let at = page.add(pair).as_ptr();
            asm!("stnp xzr, xzr, [{}]", in(reg) at, options(nostack, preserves_flags));
        }
    }
}
