//! How long memory takes: not always the same.
//!
//! A row of DRAM is open or not, its bank is busy or being refreshed. As instructions leave a core in order, one read that
//! takes long holds up all behind it: where many are under way it is the long ones that count. (Measured on a Zen 5: with a tenth of reads at 190 to
//! 370 ns and the others at 110 to 150, 14 independent reads are under way in place of the 20 that there are registers for. Chains of reads, none of
//! which waits for another's, overlap 31-fold there.)

use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Equally likely latencies that are told apart.
const PARTS: usize = 16;

/// How reads of memory differ: means of the sixteenths of them, shortest first, in per cent of the mean of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyShape([u16; PARTS]);

impl LatencyShape {
    /// Each takes as long as any other.
    pub const SAME: Self = Self([100; PARTS]);

    /// Of the latencies of many reads; the same for all where there are fewer than sixteen, or they sum up to nothing.
    pub fn of(mut latencies: Vec<f64>) -> Self {
        latencies.sort_unstable_by(f64::total_cmp);
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let all = mean(&latencies);
        if latencies.len() < PARTS || all.is_nan() || all <= 0.0 {
            return Self::SAME;
        }
        let ends = (0..=PARTS).map(|part| part * latencies.len() / PARTS);
        let ends: Vec<usize> = ends.collect();
        Self(std::array::from_fn(|part| {
            let of = &latencies[ends[part]..ends[part + 1]];
            (mean(of) / all * 100.0).round().max(1.0) as u16
        }))
    }

    /// Whether a read may take that long.
    pub(crate) fn is_possible(self) -> bool {
        self.0.iter().all(|percent| *percent > 0)
    }
}

impl Default for LatencyShape {
    fn default() -> Self {
        Self::SAME
    }
}

/// Draws them.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// Equally likely, in cycles.
    cycles: [f64; PARTS],
    /// `None` where all are the same.
    random: Option<Rng>,
}

impl Latencies {
    /// So many cycles on average.
    pub(crate) fn new(mean_cycles: f64, shape: LatencyShape) -> Self {
        let varies = shape != LatencyShape::SAME;
        // Rounded, they need not be 100 % on average.
        let mean_percent = shape
            .0
            .iter()
            .map(|percent| f64::from(*percent))
            .sum::<f64>()
            / PARTS as f64;
        Self {
            cycles: shape
                .0
                .map(|percent| mean_cycles * f64::from(percent) / mean_percent),
            random: varies.then(|| Rng::new(0, 1)),
        }
    }

    /// The next one's.
    #[inline]
    pub(crate) fn draw(&mut self) -> f64 {
        match &mut self.random {
            None => self.cycles[0],
            Some(random) => self.cycles[random.below(PARTS as u64) as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_that_were_measured() {
        let measured: Vec<f64> = (0..1600)
            .map(|n| if n % 16 == 0 { 310.0 } else { 110.0 })
            .collect();
        let shape = LatencyShape::of(measured);
        let mut latencies = Latencies::new(200.0, shape);
        let drawn: Vec<f64> = (0..100_000).map(|_| latencies.draw()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 200.0).abs() < 1.0, "{mean}");
        let long = drawn.iter().filter(|cycles| **cycles > 500.0).count();
        assert!((6_000..6_500).contains(&long), "{long}");
        assert!(
            drawn
                .iter()
                .all(|cycles| *cycles > 500.0 || (170.0..190.0).contains(cycles))
        );
    }

    #[test]
    fn without_a_shape_they_are_all_the_same() {
        assert_eq!(LatencyShape::of(vec![1.0; 15]), LatencyShape::SAME);
        assert_eq!(LatencyShape::of(vec![0.0; 160]), LatencyShape::SAME);
        assert_eq!(LatencyShape::of(vec![7.0; 160]), LatencyShape::SAME);
        let mut same = Latencies::new(300.0, LatencyShape::SAME);
        assert!((0..100).all(|_| same.draw() == 300.0));
    }
}
