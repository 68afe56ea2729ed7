//! Conversions to whole numbers; values out of range become the nearest limit.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and turns NaN into 0; whole numbers are compared first"
)]

use std::time::Duration;

/// Rounded towards 0, within 0 to 65,535; 0 for NaN.
pub const fn u16_from_f64(number: f64) -> u16 {
    number as u16
}

/// Rounded towards 0, within 0 to 2^32 - 1; 0 for NaN.
pub const fn u32_from_f64(number: f64) -> u32 {
    number as u32
}

/// Rounded towards 0, within 0 to 2^64 - 1; 0 for NaN.
pub const fn u64_from_f64(number: f64) -> u64 {
    number as u64
}

/// Rounded towards 0, within the range of 32 bits; 0 for NaN.
pub const fn i32_from_f64(number: f64) -> i32 {
    number as i32
}

/// At most the largest signed value.
pub fn i64_from_u64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// At most the largest `usize` of this machine.
pub fn usize_from_u64(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// `a / b`; 0 unless `b` is over 0.
pub(crate) fn ratio_or_zero(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// In nanoseconds; at most 584 years.
pub fn nanos_of_duration(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_become_the_limit() {
        assert_eq!([u16_from_f64(-1.0), u16_from_f64(f64::NAN), u16_from_f64(511.9)], [0, 0, 511]);
        assert_eq!([u32_from_f64(1e99), u32_from_f64(7.0)], [u32::MAX, 7]);
        assert_eq!([u64_from_f64(f64::INFINITY), u64_from_f64(0.9)], [u64::MAX, 0]);
        assert_eq!([i32_from_f64(-1e99), i32_from_f64(-2.9)], [i32::MIN, -2]);
        assert_eq!([i64_from_u64(u64::MAX), i64_from_u64(3)], [i64::MAX, 3]);
        assert_eq!(usize_from_u64(9), 9);
        assert_eq!(nanos_of_duration(Duration::from_micros(3)), 3000);
        assert_eq!(nanos_of_duration(Duration::MAX), u64::MAX);
    }
}
