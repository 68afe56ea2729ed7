//! Arithmetic of which measurements know what it takes: random numbers that cost next to nothing, and work.

/// Of Knuth's MMIX generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// The generator's next state. Of full period modulo every power of two.
#[inline(always)]
pub fn next_random(x: u64) -> u64 {
    x.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// A number below a bound, by the high bits of a random one: the upper half of the product, instead of a slow division.
#[inline(always)]
pub fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// After a step of work: two instructions, each of which waits for the one before.
#[inline(always)]
pub fn worked(work: u64) -> u64 {
    work.wrapping_mul(MULTIPLIER).rotate_left(17)
}
