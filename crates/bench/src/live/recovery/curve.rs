//! What a run from base pages towards huge ones comes to. Pure.

use crate::live::report::median;
use crate::live::watch::Moment;

/// A run, and what it is held against: the same program at its begin and with all its memory huge.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Operations per second of CPU time under base pages.
    pub base_per_cpu_s: f64,
    /// The same when all memory is huge.
    pub huge_per_cpu_s: f64,
    /// What was seen in between.
    pub moments: Vec<Moment>,
    /// Regions that became huge meanwhile.
    pub promoted: u64,
    /// How much of its memory was huge in the end, in per cent.
    pub huge_percent: f64,
}

/// Where huge pages gain less than this, in per cent, shares of it are noise.
const LEAST_ACHIEVABLE_PERCENT: f64 = 2.0;

/// Moments that a smoothed one is the median of.
const SMOOTHED: usize = 5;

impl Curve {
    /// What huge pages can gain, in per cent.
    pub fn achievable_percent(&self) -> f64 {
        (self.huge_per_cpu_s / self.base_per_cpu_s - 1.0) * 100.0
    }

    /// The share of that over time, in per cent, each the median of five moments; none where there is next to nothing to gain.
    pub fn shares_percent(&self) -> Vec<(f64, f64)> {
        if self.achievable_percent() < LEAST_ACHIEVABLE_PERCENT {
            return Vec::new();
        }
        let gap = self.huge_per_cpu_s - self.base_per_cpu_s;
        let windows = self.moments.windows(SMOOTHED);
        let shares = windows.map(|moments| {
            let rates: Vec<f64> = moments.iter().map(|moment| moment.per_cpu_s).collect();
            let share = (median(&rates) - self.base_per_cpu_s) / gap * 100.0;
            (moments[SMOOTHED / 2].at_s, share)
        });
        shares.collect()
    }

    /// When that reached so many per cent for the first time, in seconds from the begin.
    pub fn reached_s(&self, percent: f64) -> Option<f64> {
        let shares = self.shares_percent();
        let found = shares.into_iter().find(|(_, share)| *share >= percent);
        found.map(|(at_s, _)| at_s)
    }

    /// Share of the achievable gain at the end, in per cent.
    pub fn end_percent(&self) -> f64 {
        self.shares_percent()
            .last()
            .map_or(0.0, |(_, share)| *share)
    }

    /// Time under base pages that it would have taken to do what was done more, for each promotion, in milliseconds.
    /// 0 without promotions.
    pub fn saved_ms_per_promotion(&self) -> f64 {
        if self.promoted == 0 {
            return 0.0;
        }
        let mut saved_s = 0.0;
        let mut from_s = 0.0;
        for moment in &self.moments {
            // A moment's time is its middle.
            let length_s = 2.0 * (moment.at_s - from_s);
            saved_s += (moment.per_cpu_s / self.base_per_cpu_s - 1.0) * length_s;
            from_s += length_s;
        }
        saved_s * 1e3 / self.promoted as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 operations a second until `fast_from_s`, then 200, looked at every half second for 10 s.
    fn curve(fast_from_s: f64, promoted: u64) -> Curve {
        let moments = (0..20).map(|step| {
            let at_s = f64::from(step) * 0.5 + 0.25;
            Moment {
                at_s,
                per_cpu_s: if at_s < fast_from_s { 100.0 } else { 200.0 },
            }
        });
        Curve {
            base_per_cpu_s: 100.0,
            huge_per_cpu_s: 200.0,
            moments: moments.collect(),
            promoted,
            huge_percent: 100.0,
        }
    }

    #[test]
    fn recovery_is_when_the_share_is_there() {
        assert_eq!(curve(4.0, 1).reached_s(80.0), Some(4.25));
        assert_eq!(curve(20.0, 1).reached_s(80.0), None);
        assert_eq!(curve(4.0, 1).end_percent(), 100.0);
        assert_eq!(curve(4.0, 1).achievable_percent(), 100.0);
    }

    #[test]
    fn where_nothing_is_to_be_gained_nothing_is_recovered() {
        let mut idle = curve(4.0, 1);
        idle.huge_per_cpu_s = 101.0;
        assert_eq!(idle.reached_s(80.0), None);
        assert_eq!(idle.end_percent(), 0.0);
    }

    #[test]
    fn one_fast_moment_is_no_recovery() {
        let mut noisy = curve(20.0, 1);
        noisy.moments[7].per_cpu_s = 300.0;
        assert_eq!(noisy.reached_s(50.0), None);
    }

    #[test]
    fn time_saved_is_that_of_the_work_done_more() {
        // 6 s at double speed are 6 s of base pages' work more.
        assert!((curve(4.0, 60).saved_ms_per_promotion() - 100.0).abs() < 1e-6);
        assert_eq!(curve(4.0, 0).saved_ms_per_promotion(), 0.0);
    }
}
