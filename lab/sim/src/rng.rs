//! Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood: "Fast
//! splittable pseudorandom number generators", 2014).

use rand_core::impls::fill_bytes_via_next;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A generator.
#[derive(Clone, Debug)]
pub struct SimulationRng(SplitMix64);

impl SimulationRng {
    /// A stream of its own for each pair of seeds.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = SplitMix64::seed_from_u64(stream).next_u64();
        Self(SplitMix64::seed_from_u64(seed ^ mixed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number below `bound` (to within `bound / 2^64`); 0 for a bound of 0.
    pub fn draw_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A uniform number in 0-1.
    pub fn draw_fraction(&mut self) -> f64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        (self.next() >> 11) as f64 / STEPS
    }

    /// True with this probability (0-1).
    pub fn chance(&mut self, probability: f64) -> bool {
        self.draw_fraction() < probability
    }
}

/// For distributions of other crates.
impl RngCore for SimulationRng {
    fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.next()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        fill_bytes_via_next(self, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_have_the_asked_frequency() {
        let mut rng = SimulationRng::new(1, 2);
        let hits = (0..100_000).filter(|_| rng.chance(0.3)).count();
        assert!((29_500..30_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| rng.chance(1.0) && !rng.chance(0.0)));
    }

    #[test]
    fn streams_differ() {
        assert_ne!(SimulationRng::new(1, 1).next(), SimulationRng::new(1, 2).next());
        assert_ne!(SimulationRng::new(1, 1).next(), SimulationRng::new(2, 1).next());
    }
}
