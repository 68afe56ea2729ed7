//! What a run from base pages towards huge ones comes to. Pure.

use super::watch::{Moment, Seen};
use crate::statistics::median;

/// A run, and what it is held against: two others like the program, one under base pages and one all huge, which need not be as fast as
/// it is in their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its speed at the begin, in times that of the one under base pages.
    pub base: f64,
    /// Its speed when all its memory is huge, in times that of the one that is.
    pub huge: f64,
    /// What was seen in between.
    pub seen: Seen,
    /// Regions that became huge meanwhile.
    pub promoted: u64,
    /// How much of its memory was huge for either speed, in per cent.
    pub huge_percent: [f64; 2],
}

/// Where huge pages gain less than this, in per cent, shares of it are noise.
const LEAST_ACHIEVABLE_PERCENT: f64 = 2.0;

/// Moments that a smoothed one is the median of.
pub(super) const SMOOTHED: usize = 7;

impl Curve {
    /// What huge pages can gain, in per cent: the median of all moments.
    pub fn achievable_percent(&self) -> f64 {
        let all: Vec<f64> = self
            .seen
            .moments
            .iter()
            .map(|moment| self.achievable(moment) * 100.0)
            .collect();
        median(&all)
    }

    /// What huge pages can gain about then.
    fn achievable(&self, moment: &Moment) -> f64 {
        moment.huge_speed * self.huge / self.base - 1.0
    }

    /// The share of that over time, each of the median of some moments; none where there is next to nothing to gain.
    fn shares(&self) -> Vec<Share> {
        if self.achievable_percent() < LEAST_ACHIEVABLE_PERCENT {
            return Vec::new();
        }
        let windows = self.seen.moments.windows(SMOOTHED);
        let shares = windows.map(|moments| {
            let of = |part: &dyn Fn(&Moment) -> f64| {
                median(&moments.iter().map(part).collect::<Vec<f64>>())
            };
            let gained = of(&|moment| moment.speed / self.base - 1.0);
            let achievable = of(&|moment| self.achievable(moment));
            // Where noise leaves nothing to gain for a while, it is held against the least that counts.
            let achievable = achievable.max(LEAST_ACHIEVABLE_PERCENT / 100.0);
            Share {
                at_s: moments[SMOOTHED / 2].at_s,
                percent: gained / achievable * 100.0,
                weight: achievable * achievable,
            }
        });
        shares.collect()
    }

    /// The curve that never falls and is nearest to that: promotions are not undone, so that what looks like a fall is noise.
    pub fn by_speed(&self) -> Shares {
        Shares {
            points: never_falling(&self.shares()),
        }
    }

    /// How much of the memory in use was huge.
    pub fn by_memory_in_use(&self) -> Shares {
        Shares {
            points: self.seen.in_use_huge.clone(),
        }
    }

    /// How long all of the memory in use was huge for each promotion, in milliseconds: what promotions are good for, whatever that gains
    /// here. 0 without promotions.
    pub fn in_use_huge_ms_per_promotion(&self) -> f64 {
        let points = self.seen.in_use_huge.windows(2);
        let huge_s: f64 = points
            .map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / 100.0)
            .sum();
        per_promotion_ms(huge_s, self.promoted)
    }

    /// Time under base pages that it would have taken to do what was done more, for each promotion, in milliseconds.
    /// 0 without promotions.
    pub fn saved_ms_per_promotion(&self) -> f64 {
        let saved_s: f64 = self
            .seen
            .moments
            .iter()
            .map(|moment| (moment.speed / self.base - 1.0) * moment.stands_for_s)
            .sum();
        per_promotion_ms(saved_s, self.promoted)
    }
}

fn per_promotion_ms(all_s: f64, promoted: u64) -> f64 {
    if promoted == 0 {
        return 0.0;
    }
    all_s * 1e3 / promoted as f64
}

/// Shares over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Seconds from the begin, and the share about then, in per cent.
    pub points: Vec<(f64, f64)>,
}

impl Shares {
    /// When so many per cent were first reached, in seconds from the begin.
    pub fn reached_s(&self, percent: f64) -> Option<f64> {
        let found = self.points.iter().find(|(_, share)| *share >= percent);
        found.map(|(at_s, _)| *at_s)
    }

    /// The share at the end, in per cent.
    pub fn end_percent(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, share)| *share)
    }
}

/// A share of what can be gained.
#[derive(Clone, Copy, Debug)]
struct Share {
    at_s: f64,
    percent: f64,
    /// The gain that it is of, squared: a gain is told as well when it is a small part of all as when it is a large one, so that its share
    /// varies by the reciprocal.
    weight: f64,
}

/// Neighbours with one value.
struct Pool {
    sum: f64,
    weight: f64,
    count: usize,
}

impl Pool {
    fn mean(&self) -> f64 {
        self.sum / self.weight
    }

    fn take(&mut self, other: &Self) {
        self.sum += other.sum;
        self.weight += other.weight;
        self.count += other.count;
    }
}

/// Isotonic regression, by pooling neighbours that fall: the values that never fall with the least weighted squared distance. What rises at the
/// very end, where nothing follows that could say whether it was noise, is pooled with what was before.
fn never_falling(shares: &[Share]) -> Vec<(f64, f64)> {
    let mut pools: Vec<Pool> = Vec::new();
    for share in shares {
        let mut pool = Pool {
            sum: share.percent * share.weight,
            weight: share.weight,
            count: 1,
        };
        while let Some(before) = pools.pop() {
            if before.mean() <= pool.mean() {
                pools.push(before);
                break;
            }
            pool.take(&before);
        }
        pools.push(pool);
    }
    while let [.., before, last] = &mut pools[..] {
        if last.count >= SMOOTHED {
            break;
        }
        before.take(last);
        pools.pop();
    }
    let values = pools
        .into_iter()
        .flat_map(|pool| std::iter::repeat_n(pool.mean(), pool.count));
    shares.iter().map(|share| share.at_s).zip(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fast as the yardstick until `fast_from_s`, then twice as fast, looked at every half second for 10 s.
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
        assert_eq!(curve(4.0, 1).by_speed().reached_s(80.0), Some(4.25));
        assert_eq!(curve(20.0, 1).by_speed().reached_s(80.0), None);
        assert_eq!(curve(4.0, 1).by_speed().end_percent(), 100.0);
        assert_eq!(curve(4.0, 1).achievable_percent(), 100.0);
    }

    #[test]
    fn memory_in_use_is_told_as_it_was_seen() {
        let in_use = curve(20.0, 1).by_memory_in_use();
        assert_eq!(in_use.reached_s(50.0), Some(2.0));
        assert_eq!(in_use.reached_s(95.0), None);
        assert_eq!(in_use.end_percent(), 90.0);
        // 60 % for a second; what the last look found is not known to have lasted.
        assert_eq!(curve(20.0, 6).in_use_huge_ms_per_promotion(), 100.0);
        assert_eq!(curve(20.0, 0).in_use_huge_ms_per_promotion(), 0.0);
    }

    #[test]
    fn where_nothing_is_to_be_gained_nothing_is_recovered() {
        let mut idle = curve(4.0, 1);
        idle.huge = 0.505;
        assert_eq!(idle.by_speed().reached_s(80.0), None);
        assert_eq!(idle.by_speed().end_percent(), 0.0);
    }

    #[test]
    fn one_fast_moment_is_no_recovery() {
        let mut noisy = curve(20.0, 1);
        noisy.seen.moments[7].speed = 3.0;
        assert_eq!(noisy.by_speed().reached_s(50.0), None);
    }

    #[test]
    fn a_fast_while_that_ends_is_no_recovery() {
        let mut noisy = curve(20.0, 1);
        for moment in &mut noisy.seen.moments[..8] {
            moment.speed = 2.0;
        }
        assert_eq!(noisy.by_speed().reached_s(80.0), None);
    }

    #[test]
    fn what_falls_is_pooled() {
        let fitted = |weighted: &[(f64, f64)]| {
            let shares: Vec<Share> = weighted
                .iter()
                .map(|(percent, weight)| Share {
                    at_s: 0.0,
                    percent: *percent,
                    weight: *weight,
                })
                .collect();
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
        // 6 s at double speed are 6 s of base pages' work more.
        assert!((curve(4.0, 60).saved_ms_per_promotion() - 100.0).abs() < 1e-6);
        assert_eq!(curve(4.0, 0).saved_ms_per_promotion(), 0.0);
    }
}
