//! arm64.

use super::FUNCTION_BYTES;

/// A function that returns `value`.
pub(crate) fn encode_function(value: u32) -> [u8; FUNCTION_BYTES] {
    let (low, high) = (value & 0xffff, value >> 16);
    let mut code = [0; FUNCTION_BYTES];
    // movz w0, #low; movk w0, #high, lsl #16; ret; what is never reached ends the process: brk #0.
    let start = [0x5280_0000 | low << 5, 0x72a0_0000 | high << 5, 0xd65f_03c0];
    let words = start.into_iter().chain(std::iter::repeat(0xd420_0000_u32));
    for (slot, word) in code.chunks_exact_mut(4).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    code
}

/// Lets code that was just written be executed: cleans the data cache and discards what the
/// instruction cache holds of it. The shortest line of both caches is 16 bytes.
#[cfg(target_arch = "aarch64")]
pub(crate) fn synchronize_instructions(start: *const u8, bytes: usize) {
    use std::arch::asm;
    for offset in (0..bytes).step_by(16) {
        // SAFETY: the address is in the caller's mapping; the instruction changes no contents.
        unsafe { asm!("dc cvau, {0}", in(reg) start.wrapping_add(offset)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish") };
    for offset in (0..bytes).step_by(16) {
        // SAFETY: as above.
        unsafe { asm!("ic ivau, {0}", in(reg) start.wrapping_add(offset)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb") };
}
