//! A permutation that needs no table.

use crate::rng::{WorkloadRng, mix_bits};

/// A permutation of the numbers below `count` that is one single cycle.
///
/// A linear congruential generator with these constants runs through all numbers below a power of
/// two. Folding high bits into low ones before and after (an involution) keeps that and hides its
/// regular low bits. Steps out of the wanted range are repeated.
pub(super) struct RandomCycle {
    count: usize,
    mask: u64,
    fold: u32,
    increment: u64,
}

impl RandomCycle {
    /// A cycle through all numbers below `count`; it depends on the seed.
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let size = count.next_power_of_two() as u64;
        let bits = size.trailing_zeros();
        let increment = mix_bits(WorkloadRng::new(seed, 2).next_bits()) | 1;
        Self { count, mask: size - 1, fold: bits.div_ceil(2), increment }
    }

    #[inline]
    pub(super) fn successor(&self, number: usize) -> usize {
        let fold = |x: u64| x ^ (x >> self.fold);
        let mut x = number as u64;
        loop {
            let step = fold(x).wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(self.increment);
            x = fold(step & self.mask);
            if (x as usize) < self.count {
                return x as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_everything_once() {
        for count in [1, 2, 3, 64, 100, 4096, 5000] {
            let cycle = RandomCycle::new(count, 9);
            let (mut at, mut steps) = (cycle.successor(0), 1);
            while at != 0 {
                at = cycle.successor(at);
                steps += 1;
                assert!(steps <= count, "no return to the begin of {count}");
            }
            assert_eq!(steps, count);
        }
    }
}
