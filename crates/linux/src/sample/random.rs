//! Arithmetic of known cost for measurements: random numbers that cost almost nothing, and work.

/// Constants of Knuth's MMIX generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// The generator's next state. Its period is full modulo every power of two.
#[inline(always)]
pub fn next_random(x: u64) -> u64 {
    x.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// A number below `bound`, from the high bits of a random number. It takes the upper half of the
/// product, instead of a slow division.
#[inline(always)]
pub fn map_random_below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The value after a step of work: two instructions, each of which waits for the previous one.
#[inline(always)]
pub fn dependent_arithmetic_step(work: u64) -> u64 {
    work.wrapping_mul(MULTIPLIER).rotate_left(17)
}
