//! The rates behind counts that contain chance.
//!
//! A region that is touched 50 times a second shows one touch in a window of 20 ms, or none, or
//! four. Of thousands of such regions, those with lucky counts would be taken for the best. The
//! counts of the others show how reliable one count is. First comes the distribution of rates that
//! makes all counts together most likely (J. Kiefer and J. Wolfowitz, 1956; found by expectation
//! maximisation, N. Laird, 1978). Each count's rate is then the expected value under it (H.
//! Robbins, 1956).

use crate::saturating_cast::{i32_from_f64, ratio_or_zero, u32_from_f64};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TouchCount {
    /// Number of touches; fractions occur where the result of a read was interpolated.
    pub(super) touches: f64,
    /// The time in which they were counted, in seconds of CPU time.
    pub(super) over_s: f64,
}

impl TouchCount {
    pub(super) fn per_second(self) -> f64 {
        ratio_or_zero(self.touches, self.over_s)
    }

    /// Chance is at most an eighth here, so the count is used as it is.
    fn is_reliable(self) -> bool {
        self.touches >= 64.0
    }
}

/// In the order of `counts`. Regions without a touch count like those touched once.
pub(super) fn expected_touch_rates(counts: &[TouchCount]) -> Vec<f64> {
    let by_chance = |count: &&TouchCount| count.over_s > 0.0 && !count.is_reliable();
    let mut alike: BTreeMap<TouchCountClass, EqualTouchCountGroup> = BTreeMap::new();
    for count in counts.iter().filter(by_chance) {
        let counted = alike.entry(TouchCountClass::of(*count)).or_default();
        counted.touches = f64::from(TouchCountClass::of(*count).touches);
        counted.regions += 1.0;
        counted.over_s += count.over_s;
    }
    update_expected_touches(alike.values_mut());
    let rate = |count: &TouchCount| match alike.get(&TouchCountClass::of(*count)) {
        Some(counted) if by_chance(&count) => counted.expected,
        _ => count.per_second(),
    };
    counts.iter().map(rate).collect()
}

/// Equally many touches in about the same time. Less than half a touch counts as none: a count of
/// a hundredth, from interpolation, would make all others look touched beside a 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TouchCountClass {
    touches: u32,
    /// Logarithm of the time, in steps of a tenth.
    over: i32,
}

impl TouchCountClass {
    fn of(count: TouchCount) -> Self {
        Self {
            touches: u32_from_f64(count.touches.round()),
            over: i32_from_f64((count.over_s.ln() * 10.0).round()),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct EqualTouchCountGroup {
    regions: f64,
    touches: f64,
    over_s: f64,
    /// Expected touches of one per second.
    expected: f64,
    /// Likelihood of such a count under each rate, relative to the most likely rate.
    likely: Vec<f64>,
}

/// Ratio between neighbouring candidate rates.
const STEP: f64 = 1.2;
/// More iterations would fit the rates to the counts more closely than the data allows.
const ITERATIONS: usize = 60;

fn update_expected_touches<'c>(counted: impl Iterator<Item = &'c mut EqualTouchCountGroup>) {
    let mut counted: Vec<_> = counted.collect();
    let rates = candidate_rates(&counted);
    for at in &mut counted {
        at.likely = poisson_likelihoods(at, &rates);
    }
    let regions: f64 = counted.iter().map(|at| at.regions).sum();
    let mut share = vec![1.0 / rates.len() as f64; rates.len()];
    for _ in 0..ITERATIONS {
        let mut next = vec![0.0; rates.len()];
        for at in &counted {
            let all: f64 = at.likely.iter().zip(&share).map(|(l, s)| l * s).sum();
            for ((next, likely), share) in next.iter_mut().zip(&at.likely).zip(&share) {
                *next += at.regions / regions * likely * share / all;
            }
        }
        share = next;
    }
    for at in &mut counted {
        let parts = || at.likely.iter().zip(&share).map(|(l, s)| l * s);
        let touched: f64 = parts().zip(&rates).map(|(part, rate)| part * rate).sum();
        at.expected = touched / parts().sum::<f64>();
    }
}

/// The candidate rates: 0, and from one that would hardly ever show to twice the highest.
fn candidate_rates(counted: &[&mut EqualTouchCountGroup]) -> Vec<f64> {
    let longest_s = counted.iter().map(|at| at.over_s / at.regions);
    let lowest = 0.1 / longest_s.fold(f64::MIN_POSITIVE, f64::max);
    let highest = counted.iter().map(|at| at.touches * at.regions / at.over_s);
    let highest = 2.0 * highest.fold(0.0, f64::max);
    let steps = if highest > 0.0 {
        i32_from_f64(((highest / lowest).ln() / STEP.ln()).max(0.0)) + 1
    } else {
        0
    };
    let above = (0..steps).map(|step| lowest * STEP.powi(step));
    std::iter::once(0.0).chain(above).collect()
}

/// Likelihoods by the Poisson distribution.
fn poisson_likelihoods(at: &EqualTouchCountGroup, rates: &[f64]) -> Vec<f64> {
    let (touches, over_s) = (at.touches, at.over_s / at.regions);
    let logarithm = |rate: f64| match (touches > 0.0, rate > 0.0) {
        (true, true) => touches * (rate * over_s).ln() - rate * over_s,
        (true, false) => f64::NEG_INFINITY,
        (false, _) => -rate * over_s,
    };
    let all: Vec<f64> = rates.iter().map(|rate| logarithm(*rate)).collect();
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    all.into_iter().map(|one| (one - most).exp()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Chance;
    use proptest::prelude::*;

    /// Counts over this time in regions with these rates.
    fn counts(rates: impl Iterator<Item = f64>, over_s: f64) -> Vec<TouchCount> {
        let mut chance = Chance::default();
        rates
            .map(|rate| TouchCount { touches: chance.poisson(rate * over_s) as f64, over_s })
            .collect()
    }

    fn highest(rates: &[f64]) -> f64 {
        rates.iter().copied().fold(0.0, f64::max)
    }

    #[test]
    fn chance_does_not_rank_a_cold_region_above_its_rate() {
        let (hot, cold) = (350, 3200);
        let rates = (0..hot + cold).map(|n| if n < hot { 1100.0 } else { 90.0 });
        let counts = counts(rates, 0.024);
        let counted: Vec<f64> = counts.iter().map(|count| count.per_second()).collect();
        let expected = expected_touch_rates(&counts);
        // The count of the luckiest cold region was nearly four times its rate.
        let luckiest = highest(&counted[hot..]);
        assert!(luckiest > 300.0, "{luckiest}");
        let luckiest = highest(&expected[hot..]);
        assert!(luckiest < 180.0, "{luckiest}");
        let hot = expected[..hot].iter().copied();
        let lowest = hot.fold(f64::INFINITY, f64::min);
        assert!(lowest > 600.0, "{lowest}");
    }

    #[test]
    fn where_all_are_alike_each_has_its_share() {
        // Only one in five is touched at all.
        let counts = counts(std::iter::repeat_n(10.0, 2000), 0.02);
        let expected = expected_touch_rates(&counts);
        // Of the counts, the lowest is 0 and the highest is above 100.
        assert!(expected.iter().all(|rate| *rate > 7.0));
        assert!(highest(&expected) < 30.0, "{}", highest(&expected));
    }

    #[test]
    fn an_untouched_region_has_an_expected_rate_near_zero() {
        let count = |touches| TouchCount { touches, over_s: 0.015 };
        let hot = std::iter::repeat_n(count(12.0), 100);
        // Where reads divide the time, counts have fractions.
        let idle = std::iter::repeat_n(count(0.0), 3000).chain(std::iter::once(count(0.01)));
        let all: Vec<TouchCount> = hot.chain(idle).collect();
        let expected = expected_touch_rates(&all);
        let idle = highest(&expected[100..]);
        assert!(idle < 0.1, "{idle}");
        let touches: f64 = all.iter().map(|count| count.touches).sum();
        let expected: f64 = expected.iter().sum::<f64>() * 0.015;
        // Rates are accurate to half a step.
        assert!((expected / touches - 1.0).abs() < 0.1, "{expected}");
    }

    #[test]
    fn many_touches_outweigh_the_prior() {
        let of = |touches| TouchCount { touches, over_s: 0.01 };
        let expected = expected_touch_rates(&[of(0.0), of(0.0), of(400.0)]);
        assert_eq!(expected, [0.0, 0.0, 40_000.0]);
        assert!(expected_touch_rates(&[]).is_empty());
    }

    proptest! {
        /// A region with fewer touches in the same time never gets a higher rate.
        #[test]
        fn the_order_stays(counts in prop::collection::vec((0.0..200.0f64, 0.0..0.05f64), 0..60)) {
            let counts: Vec<TouchCount> = counts
                .into_iter()
                .map(|(touches, over_s)| TouchCount { touches, over_s })
                .collect();
            let expected = expected_touch_rates(&counts);
            prop_assert!(expected.iter().all(|rate| rate.is_finite() && *rate >= 0.0));
            let same: Vec<TouchCount> = counts.iter().map(|c| TouchCount { over_s: 0.01, ..*c }).collect();
            let mut both: Vec<_> = same.iter().zip(expected_touch_rates(&same)).collect();
            both.sort_by(|a, b| a.0.touches.total_cmp(&b.0.touches));
            for pair in both.windows(2) {
                let close = pair[1].1 >= pair[0].1 * 0.9;
                prop_assert!(close, "{pair:?}");
            }
        }
    }
}
