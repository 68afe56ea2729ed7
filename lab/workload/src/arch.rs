//! Machine code of each architecture, one file each. All are tested everywhere.

#[cfg(any(test, target_arch = "aarch64"))]
mod aarch64;
#[cfg(any(test, target_arch = "x86_64"))]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{encode_function, synchronize_instructions};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{encode_function, synchronize_instructions};

/// Bytes of a function: a cache line.
pub(crate) const FUNCTION_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_its_value_in_its_code() {
        let line = |start: &[u8]| start.to_vec();
        let code = x86_64::encode_function(0x0102_0304);
        assert_eq!(line(&code[..6]), [0xb8, 4, 3, 2, 1, 0xc3]);
        assert!(code[6..].iter().all(|byte| *byte == 0xcc));
        let code = aarch64::encode_function(0x0102_0304);
        // By an assembler: movz w0, #0x304; movk w0, #0x102, lsl #16; ret; brk #0.
        let words = [0x5280_6080_u32, 0x72a0_2040, 0xd65f_03c0, 0xd420_0000];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(line(&code[..16]), bytes);
    }
}
