//! A random order of many items that takes no memory.

use crate::rng::SimulationRng;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    count: u64,
    mask: u64,
    half: u32,
    keys: [u64; 3],
}

impl Permutation {
    pub(crate) fn new(count: u64, rng: &mut SimulationRng) -> Self {
        let space = count.next_power_of_two().max(4);
        Self {
            count,
            mask: space - 1,
            half: space.ilog2() / 2,
            keys: [rng.next(), rng.next(), rng.next()],
        }
    }

    /// Image of `number` (below `count`).
    #[inline]
    pub(crate) fn permuted(&self, number: u64) -> u64 {
        let mut at = number;
        // Each round permutes the smallest power of two that holds the numbers. Repeating it until
        // the result is below `count` permutes the numbers themselves.
        loop {
            for key in self.keys {
                at = (at ^ key) & self.mask;
                at = at.wrapping_mul(key << 3 | 5) & self.mask;
                at ^= at >> self.half;
            }
            if at < self.count {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_reached_once_and_neighbours_part() {
        for count in [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4096] {
            let scatter = Permutation::new(count, &mut SimulationRng::new(7, count));
            let order: Vec<u64> = (0..count).map(|n| scatter.permuted(n)).collect();
            let near = order.windows(2).filter(|w| w[0].abs_diff(w[1]) < 8);
            assert!(count < 1000 || near.count() < count as usize / 20);
            let mut sorted = order;
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count), "{count}");
        }
    }
}
