//! A pointer chase: every read's address is what the read before it found.

use super::walk::{Area, Chooser, Layout, Walk};
use crate::workload::memory::Mapping;
use crate::workload::rng::{Rng, mix};

/// Bytes per node of the cycle: a cache line.
const NODE: usize = 64;

/// One cycle through each part of the memory, in random order.
pub(super) struct Chase {
    chooser: Chooser,
    /// Byte offset of the current node of each part.
    at: [usize; 2],
}

impl Chase {
    /// Writes the cycles into memory: the first word of each node is the offset of the next.
    pub(super) fn new(memory: &mut Mapping, layout: Layout, seed: u64) -> Self {
        for area in [layout.cold, layout.hot] {
            let cycle = Cycle::new(area.bytes / NODE, seed);
            for node in 0..area.bytes / NODE {
                let next = area.offset + cycle.next(node) * NODE;
                memory.write(area.offset + node * NODE, next as u64);
            }
        }
        let begin = |area: Area| area.offset;
        Self {
            chooser: Chooser::new(layout, seed),
            at: [layout.cold, layout.hot].map(begin),
        }
    }
}

impl Walk for Chase {
    fn read(&mut self, memory: &Mapping, count: usize) {
        let at = &mut self.at[self.chooser.choose()];
        for _ in 0..count {
            *at = memory.read(*at) as usize;
        }
    }
}

/// A permutation of the numbers below `count` that is one single cycle, without a table.
///
/// A linear congruential generator with these constants runs through all numbers below a power of
/// two; folding high bits into low ones before and after (an involution) keeps that and hides its
/// regular low bits; steps that lead out of the wanted range are repeated, which takes their
/// numbers out of the cycle.
struct Cycle {
    count: usize,
    mask: u64,
    fold: u32,
    increment: u64,
}

impl Cycle {
    fn new(count: usize, seed: u64) -> Self {
        let size = count.next_power_of_two() as u64;
        let bits = size.trailing_zeros();
        let increment = mix(Rng::new(seed, 2).next()) | 1;
        Self {
            count,
            mask: size - 1,
            fold: bits.div_ceil(2),
            increment,
        }
    }

    fn next(&self, number: usize) -> usize {
        let fold = |x: u64| {
            if self.fold == 0 {
                x
            } else {
                x ^ (x >> self.fold)
            }
        };
        let mut x = number as u64;
        loop {
            let step = fold(x)
                .wrapping_mul(0xd134_2543_de82_ef95)
                .wrapping_add(self.increment);
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
    use crate::workload::memory::{Pages, REGION};

    #[test]
    fn a_cycle_visits_everything_once() {
        for count in [1, 2, 3, 64, 100, 4096, 5000] {
            let cycle = Cycle::new(count, 9);
            let (mut at, mut steps) = (cycle.next(0), 1);
            while at != 0 {
                at = cycle.next(at);
                steps += 1;
                assert!(steps <= count, "no return to the begin of {count}");
            }
            assert_eq!(steps, count);
        }
    }

    #[test]
    fn the_chase_stays_in_its_part() {
        let mut memory = Mapping::private(REGION, Pages::Default, |_| ()).unwrap();
        let half = REGION / 2;
        let layout = Layout {
            cold: Area {
                offset: 0,
                bytes: half,
            },
            hot: Area {
                offset: half,
                bytes: half,
            },
            hot_percent: 50,
        };
        let mut chase = Chase::new(&mut memory, layout, 1);
        for _ in 0..100 {
            chase.read(&memory, 1000);
            assert!(chase.at[0] < half && (half..REGION).contains(&chase.at[1]));
        }
    }
}
