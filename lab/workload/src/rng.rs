//! Reproducible random numbers, cheap enough for an access loop.

use rand_core::RngCore;

/// An xorshift64* generator.
#[derive(Clone, Debug)]
pub struct WorkloadRng(u64);

impl WorkloadRng {
    /// A generator for `seed`; different `stream`s of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix_bits(seed ^ mix_bits(stream.wrapping_add(1))) | 1)
    }

    #[inline]
    pub(crate) fn next_bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which must not be zero.
    #[inline]
    pub fn draw_below(&mut self, bound: usize) -> usize {
        scale_below(self.next_bits(), bound)
    }

    /// Puts items into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.draw_below(last + 1));
        }
    }

    /// True with a probability of 1 in `times`.
    pub fn draw_one_in(&mut self, times: usize) -> bool {
        self.draw_below(times) == 0
    }
}

impl RngCore for WorkloadRng {
    fn next_u32(&mut self) -> u32 {
        (self.next_bits() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.next_bits()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        rand_core::impls::fill_bytes_via_next(self, bytes);
    }
}

/// Maps 64 random bits to a number below `bound`, by their high bits.
#[inline]
pub fn scale_below(random: u64, bound: usize) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}

/// Spreads every bit of `value` over the result (the finalizer of splitmix64).
#[inline]
pub fn mix_bits(value: u64) -> u64 {
    let mut x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = WorkloadRng::new(seed, stream);
            [rng.next_bits(), rng.next_bits(), rng.next_bits()]
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut rng = WorkloadRng::new(1, 0);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[rng.draw_below(10)] = true;
        }
        assert_eq!(seen, [true; 10]);
    }
}
