//! Latency of memory, which varies.
//!
//! A row of DRAM is open or not; its bank may be busy or refreshing. Instructions leave a core in
//! order, so one slow read delays all behind it. Where many reads are under way, the slow ones
//! dominate.
//!
//! Measured on a Zen 5, with a tenth of reads at 190 to 370 ns and the others at 110 to 150: 14
//! independent reads are under way instead of the 20 that there are registers for. Chains of reads
//! that don't wait for each other overlap 31-fold there.

use crate::rng::SimulationRng;
use serde::{Deserialize, Serialize};

/// Number of equally likely latencies.
const PARTS: usize = 16;

/// Read latencies: means of sixteen equal parts, shortest first, in per cent of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadLatencyShape([u16; PARTS]);

impl ReadLatencyShape {
    /// Every read takes equally long.
    pub const SAME: Self = Self([100; PARTS]);

    /// Built from the latencies of many reads; equal parts for fewer than 16 or a sum of 0.
    pub fn from_latencies(mut latencies: Vec<f64>) -> Self {
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

    pub(crate) fn is_valid(self) -> bool {
        self.0.iter().all(|percent| *percent > 0)
    }
}

impl Default for ReadLatencyShape {
    fn default() -> Self {
        Self::SAME
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ReadLatencySampler {
    /// Equally likely, in cycles.
    cycles: [f64; PARTS],
    /// `None` if all are equal.
    random: Option<SimulationRng>,
}

impl ReadLatencySampler {
    pub(crate) fn new(mean_cycles: f64, shape: ReadLatencyShape) -> Self {
        let varies = shape != ReadLatencyShape::SAME;
        // After rounding, the mean may differ from 100 %.
        let percents = shape.0.map(f64::from);
        let mean_percent = percents.iter().sum::<f64>() / PARTS as f64;
        Self {
            cycles: percents.map(|percent| mean_cycles * percent / mean_percent),
            random: varies.then(|| SimulationRng::new(0, 1)),
        }
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> f64 {
        match &mut self.random {
            None => self.cycles[0],
            Some(random) => self.cycles[random.draw_below(PARTS as u64) as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_that_were_measured() {
        let measured: Vec<f64> =
            (0..1600).map(|n| if n % 16 == 0 { 310.0 } else { 110.0 }).collect();
        let shape = ReadLatencyShape::from_latencies(measured);
        let mut latencies = ReadLatencySampler::new(200.0, shape);
        let drawn: Vec<f64> = (0..100_000).map(|_| latencies.draw()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 200.0).abs() < 1.0, "{mean}");
        let long = drawn.iter().filter(|cycles| **cycles > 500.0).count();
        assert!((6_000..6_500).contains(&long), "{long}");
        assert!(drawn.iter().all(|cycles| *cycles > 500.0 || (170.0..190.0).contains(cycles)));
    }

    #[test]
    fn without_a_shape_they_are_all_the_same() {
        for latencies in [vec![1.0; 15], vec![0.0; 160], vec![7.0; 160]] {
            assert_eq!(ReadLatencyShape::from_latencies(latencies), ReadLatencyShape::SAME);
        }
        let mut same = ReadLatencySampler::new(300.0, ReadLatencyShape::SAME);
        assert!((0..100).all(|_| same.draw() == 300.0));
    }
}
