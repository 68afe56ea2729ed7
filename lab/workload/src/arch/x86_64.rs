//! x86-64.

use super::FUNCTION_BYTES;

/// A function that returns `value`.
pub(crate) fn encode_function(value: u32) -> [u8; FUNCTION_BYTES] {
    // int3: what is never reached ends the process.
    let mut code = [0xcc; FUNCTION_BYTES];
    code[0] = 0xb8; // mov $value,%eax
    code[1..5].copy_from_slice(&value.to_le_bytes());
    code[5] = 0xc3; // ret
    code
}

/// Lets code that was just written be executed. The processor sees to that.
#[cfg(target_arch = "x86_64")]
pub(crate) fn synchronize_instructions(_start: *const u8, _bytes: usize) {}
