//! Evaluates a run from base pages towards huge ones. Pure.

use super::watch::{Moment, Seen};
use crate::statistics::median_of;

/// A run and its two yardsticks: programs like it, one under base pages and one all huge. They need
/// not be as fast as the program would be in their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its speed at the start, as a multiple of the base-page yardstick's.
    pub base: f64,
    /// Its speed when all its memory is huge, as a multiple of the all-huge yardstick's.
    pub huge: f64,
    /// The observations in between.
    pub seen: Seen,
    /// Regions that became huge meanwhile.
    pub promoted: u64,
    /// Share of its memory that was huge for each of the two speeds, in per cent.
    pub huge_percent: [f64; 2],
}

/// If huge pages gain less than this, in per cent, shares of the gain are noise.
const LEAST_ACHIEVABLE_PERCENT: f64 = 2.0;

/// Number of moments in a smoothing median.
pub(super) const SMOOTHED: usize = 7;

impl Curve {
    /// The gain that huge pages can bring, in per cent: the median of all moments.
    pub fn achievable_percent(&self) -> f64 {
        median_of(&self.seen.moments, |moment| self.achievable(moment) * 100.0)
    }

    /// The possible gain around that moment.
    fn achievable(&self, moment: &Moment) -> f64 {
        moment.huge_speed * self.huge / self.base - 1.0
    }

    /// The achieved share of the possible gain over time, each from the median of some moments;
    /// empty if there is almost nothing to gain. Each share has its time and a weight: the possible
    /// gain squared. The error of a gain does not depend on its size, so the variance of its share
    /// is proportional to the reciprocal of that square.
    fn shares(&self) -> Vec<(f64, f64, f64)> {
        if self.achievable_percent() < LEAST_ACHIEVABLE_PERCENT {
            return Vec::new();
        }
        let windows = self.seen.moments.windows(SMOOTHED);
        let shares = windows.map(|moments| {
            let gained = median_of(moments, |moment| moment.speed / self.base - 1.0);
            let achievable = median_of(moments, |moment| self.achievable(moment));
            // If noise leaves nothing to gain for a while, the least gain that counts is used
            // instead.
            let achievable = achievable.max(LEAST_ACHIEVABLE_PERCENT / 100.0);
            let percent = gained / achievable * 100.0;
            (moments[SMOOTHED / 2].at_s, percent, achievable * achievable)
        });
        shares.collect()
    }

    /// The non-decreasing curve that is nearest to the shares: promotions are not undone, so an
    /// apparent fall is noise.
    pub fn by_speed(&self) -> Vec<(f64, f64)> {
        never_falling(&self.shares())
    }

    /// How long all of the memory in use was huge for each promotion, in milliseconds: the benefit
    /// of promotions, independent of the gain on this machine. 0 without promotions.
    pub fn in_use_huge_ms_per_promotion(&self) -> f64 {
        let points = self.seen.in_use_huge.windows(2);
        let huge_s: f64 = points
            .map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / 100.0)
            .sum();
        per_promotion_ms(huge_s, self.promoted)
    }

    /// Time under base pages that the additional work would have taken, for each promotion, in
    /// milliseconds. 0 without promotions.
    pub fn saved_ms_per_promotion(&self) -> f64 {
        let saved = |moment: &Moment| (moment.speed / self.base - 1.0) * moment.stands_for_s;
        let saved_s: f64 = self.seen.moments.iter().map(saved).sum();
        per_promotion_ms(saved_s, self.promoted)
    }
}

fn per_promotion_ms(all_s: f64, promoted: u64) -> f64 {
    if promoted == 0 {
        return 0.0;
    }
    all_s * 1e3 / promoted as f64
}

/// When this share in per cent was first reached, in seconds from the start.
pub fn reached_s(shares: &[(f64, f64)], percent: f64) -> Option<f64> {
    let found = shares.iter().find(|(_, share)| *share >= percent);
    found.map(|(at_s, _)| *at_s)
}

/// The share at the end, in per cent.
pub fn end_percent(shares: &[(f64, f64)]) -> f64 {
    shares.last().map_or(0.0, |(_, share)| *share)
}

/// Isotonic regression, by pooling neighbours that fall: the non-decreasing values with the least
/// weighted squared distance. A rise at the very end is pooled with the values before, because no
/// later values show whether it was noise.
fn never_falling(shares: &[(f64, f64, f64)]) -> Vec<(f64, f64)> {
    // The sum of the weighted values in it, their weight, and their number.
    type Pool = (f64, f64, usize);
    let mean = |(sum, weight, _): &Pool| sum / weight;
    let both = |a: Pool, b: Pool| (a.0 + b.0, a.1 + b.1, a.2 + b.2);
    let mut pools: Vec<Pool> = Vec::new();
    for (_, percent, weight) in shares {
        let mut pool = (percent * weight, *weight, 1);
        while let Some(before) = pools.pop() {
            if mean(&before) <= mean(&pool) {
                pools.push(before);
                break;
            }
            pool = both(pool, before);
        }
        pools.push(pool);
    }
    while let [.., before, last] = &mut pools[..] {
        if last.2 >= SMOOTHED {
            break;
        }
        *before = both(*before, *last);
        pools.pop();
    }
    let values = pools
        .iter()
        .flat_map(|pool| std::iter::repeat_n(mean(pool), pool.2));
    shares.iter().map(|share| share.0).zip(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fast as the yardstick until `fast_from_s`, then twice as fast; observed every half second
    /// for 10 s.
    fn curve(fast_from_s: f64, promoted: u64) -> Curve {
        let moments = (0..20).map(|step| {
            let at_s = f64::from(step) * 0.5 + 0.25;
            Moment {
                at_s,
                stands_for_s: 0.5,
                speed: if at_s < fast_from_s { 1.0 } else { 2.0 },
                huge_speed: 2.0,
            }
        });
        Curve {
            base: 1.0,
            huge: 1.0,
            seen: Seen {
                moments: moments.collect(),
                in_use_huge: vec![(1.0, 0.0), (2.0, 60.0), (3.0, 90.0)],
            },
            promoted,
            huge_percent: [0.0, 100.0],
        }
    }

    #[test]
    fn recovery_is_when_the_share_is_there() {
        assert_eq!(reached_s(&curve(4.0, 1).by_speed(), 80.0), Some(4.25));
        assert_eq!(reached_s(&curve(20.0, 1).by_speed(), 80.0), None);
        assert_eq!(end_percent(&curve(4.0, 1).by_speed()), 100.0);
        assert_eq!(curve(4.0, 1).achievable_percent(), 100.0);
    }

    #[test]
    fn memory_in_use_is_told_as_it_was_seen() {
        let in_use = curve(20.0, 1).seen.in_use_huge;
        assert_eq!(reached_s(&in_use, 50.0), Some(2.0));
        assert_eq!(reached_s(&in_use, 95.0), None);
        assert_eq!(end_percent(&in_use), 90.0);
        // 60 % for one second; the last observation is not known to have lasted.
        assert_eq!(curve(20.0, 6).in_use_huge_ms_per_promotion(), 100.0);
        assert_eq!(curve(20.0, 0).in_use_huge_ms_per_promotion(), 0.0);
    }

    #[test]
    fn where_nothing_is_to_be_gained_nothing_is_recovered() {
        let mut idle = curve(4.0, 1);
        idle.huge = 0.505;
        assert_eq!(reached_s(&idle.by_speed(), 80.0), None);
        assert_eq!(end_percent(&idle.by_speed()), 0.0);
    }

    #[test]
    fn one_fast_moment_is_no_recovery() {
        let mut noisy = curve(20.0, 1);
        noisy.seen.moments[7].speed = 3.0;
        assert_eq!(reached_s(&noisy.by_speed(), 50.0), None);
    }

    #[test]
    fn a_fast_while_that_ends_is_no_recovery() {
        let mut noisy = curve(20.0, 1);
        for moment in &mut noisy.seen.moments[..8] {
            moment.speed = 2.0;
        }
        assert_eq!(reached_s(&noisy.by_speed(), 80.0), None);
    }

    #[test]
    fn what_falls_is_pooled() {
        let fitted = |weighted: &[(f64, f64)]| {
            let shares = weighted
                .iter()
                .map(|(percent, weight)| (0.0, *percent, *weight));
            let shares: Vec<_> = shares.collect();
            let fitted = never_falling(&shares).into_iter().map(|(_, value)| value);
            fitted.collect::<Vec<_>>()
        };
        let even = |values: &[f64]| values.iter().map(|value| (*value, 1.0)).collect::<Vec<_>>();
        let ended = [9.0; SMOOTHED];
        let fitted_before = |weighted: &[(f64, f64)]| {
            let all = fitted(&[weighted, &even(&ended)].concat());
            assert_eq!(all[weighted.len()..], ended);
            all[..weighted.len()].to_vec()
        };
        let rising = [1.0, 4.0, 2.0, 0.0, 6.0, 5.0, 7.0];
        assert_eq!(
            fitted_before(&even(&rising)),
            [1.0, 2.0, 2.0, 2.0, 5.5, 5.5, 7.0]
        );
        assert_eq!(fitted_before(&[(8.0, 1.0), (4.0, 3.0)]), [5.0, 5.0]);
        // A rise at the end.
        let spike = [&[1.0; SMOOTHED][..], &[8.0]].concat();
        assert_eq!(fitted(&even(&spike))[1..], [2.0; SMOOTHED]);
        assert!(fitted(&[]).is_empty());
    }

    #[test]
    fn time_saved_is_that_of_the_work_done_more() {
        // 6 s at double speed do the work of 6 more seconds under base pages.
        assert!((curve(4.0, 60).saved_ms_per_promotion() - 100.0).abs() < 1e-6);
        assert_eq!(curve(4.0, 0).saved_ms_per_promotion(), 0.0);
    }
}
