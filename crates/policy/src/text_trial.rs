//! Whether huge pages for program text pay: decided by the program's rate, with and without them.
//!
//! Windows of equal length alternate: base pages, huge pages, ..., base pages. Each window with
//! huge pages is compared with the mean of the two around it. So a rate that drifts evenly counts
//! as no gain. The median leaves out single disturbances, and enough of the pairs must show a gain
//! that chance is an unlikely cause.

use crate::statistics::median;
use serde::Serialize;
use std::time::Duration;
use thiserror::Error;

/// The least gain for which text stays huge, in per cent.
pub const LEAST_GAIN_PERCENT: f64 = 1.0;
/// The fewest windows with huge pages. An inner window with base pages is in two pairs. So a single
/// one that is disturbed makes two pairs lose, which these still outvote.
const FEWEST_PAIRS: u32 = 9;
/// The most: more take more promotions, and the median hardly changes.
const MOST_PAIRS: u32 = 25;
/// A window that is longer than this is divided, while there are fewer than the most.
const USUAL_WINDOW: Duration = Duration::from_secs(2);
/// Text without a gain has at least as many winning pairs in at most this share of trials.
const MOST_BY_CHANCE: f64 = 0.1;
/// A window begins this share of its length after the change of pages, so that the page faults
/// that follow the change are not measured.
const SETTLING_SHARE: u32 = 10;
/// Changes of pages may take as long as all windows, and this long in any case. Promotions pause
/// longer after long calls, so on a busy machine a trial would go on for many times its length.
const LEAST_TIME_FOR_CHANGES: Duration = Duration::from_secs(60);

/// The times of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TextTrialPlan {
    /// Number of windows with huge pages. There is one more with base pages.
    pub pairs: u32,
    /// Length of each window.
    #[serde(skip)]
    pub window: Duration,
    /// Wait between a change of pages and the window after it.
    #[serde(skip)]
    pub settling: Duration,
}

impl TextTrialPlan {
    /// A trial that takes `total`.
    pub fn for_duration(total: Duration) -> Self {
        let with_usual_windows = total.as_secs() / (2 * USUAL_WINDOW.as_secs());
        let pairs = u32::try_from(with_usual_windows).unwrap_or(MOST_PAIRS);
        let pairs = pairs.clamp(FEWEST_PAIRS, MOST_PAIRS);
        let each = total / (2 * pairs + 1);
        let settling = each / SETTLING_SHARE;
        Self { pairs, window: each - settling, settling }
    }

    /// The time after which a trial that is not over is given up.
    pub fn time_limit(&self) -> Duration {
        let windows = (self.window + self.settling) * self.window_count();
        windows + windows.max(LEAST_TIME_FOR_CHANGES)
    }

    /// Number of windows.
    pub fn window_count(&self) -> u32 {
        2 * self.pairs + 1
    }

    /// The pages of each window, in order: whether they are huge.
    pub fn windows(&self) -> impl Iterator<Item = bool> + use<> {
        (0..self.window_count()).map(|window| window % 2 == 1)
    }
}

/// The result of a trial for the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextTrialDecision {
    /// It stays huge.
    Keep,
    /// It gets base pages again.
    Revert,
}

/// The gain of huge pages by the rates of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextTrialGain {
    /// The median of the pairs, in per cent.
    pub median_percent: f64,
    /// The lowest of the pairs, in per cent.
    pub lowest_percent: f64,
    /// The highest of the pairs, in per cent.
    pub highest_percent: f64,
    /// Number of pairs.
    #[serde(skip)]
    pub pairs: usize,
    /// Number of pairs in which huge pages were faster.
    pub faster_pairs: usize,
}

/// Rates from which no gain follows.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum TextTrialError {
    /// A trial begins and ends with base pages.
    #[error("a trial of {0} windows has no pairs: base pages come first and last")]
    WindowsMissing(usize),
    /// The program did no work with base pages.
    #[error("the program did no work in window {0}, so there is no rate to compare with")]
    NoWork(usize),
}

impl TextTrialGain {
    /// The gain by the rates of all windows, in order, in any unit.
    pub fn from_rates_in_turn(rates: &[f64]) -> Result<Self, TextTrialError> {
        if rates.len() < 3 || rates.len() % 2 == 0 {
            return Err(TextTrialError::WindowsMissing(rates.len()));
        }
        let triples = rates.windows(3).enumerate().step_by(2);
        let gain = |(first, rates): (usize, &[f64])| {
            let base = f64::midpoint(rates[0], rates[2]);
            let gain = (rates[1] / base - 1.0) * 100.0;
            let is_known = base > 0.0 && gain.is_finite();
            if is_known { Ok(gain) } else { Err(TextTrialError::NoWork(first + 1)) }
        };
        let gains = triples.map(gain).collect::<Result<Vec<f64>, _>>()?;
        Ok(Self {
            median_percent: median(&gains),
            lowest_percent: gains.iter().copied().fold(f64::INFINITY, f64::min),
            highest_percent: gains.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            pairs: gains.len(),
            faster_pairs: gains.iter().filter(|gain| **gain > 0.0).count(),
        })
    }

    /// What follows from the gain.
    pub fn decision(&self) -> TextTrialDecision {
        match self.median_percent >= LEAST_GAIN_PERCENT && self.is_unlikely_by_chance() {
            true => TextTrialDecision::Keep,
            false => TextTrialDecision::Revert,
        }
    }

    /// Whether enough pairs were faster: the sign test, on one side.
    fn is_unlikely_by_chance(&self) -> bool {
        // Without a gain, each pair is faster or slower with equal chance.
        // Row `pairs` of Pascal's triangle: outcomes by the number of pairs that are faster.
        let mut outcomes = vec![1.0];
        for _ in 0..self.pairs {
            let next = outcomes.windows(2).map(|two| two[0] + two[1]);
            outcomes = [1.0].into_iter().chain(next).chain([1.0]).collect();
        }
        let all: f64 = outcomes.iter().sum();
        let as_many: f64 = outcomes.iter().skip(self.faster_pairs).sum();
        as_many <= all * MOST_BY_CHANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gain(rates: &[f64]) -> TextTrialGain {
        TextTrialGain::from_rates_in_turn(rates).expect("the rates are complete")
    }

    #[test]
    fn the_median_of_the_pairs_decides_and_their_range_is_known() {
        let found = gain(&[100.0, 104.0, 100.0, 150.0, 100.0, 103.0, 100.0, 104.0, 100.0]);
        let rounded = [found.lowest_percent, found.median_percent, found.highest_percent]
            .map(|percent| percent.round());
        assert_eq!(rounded, [3.0, 4.0, 50.0]);
        assert_eq!(found.decision(), TextTrialDecision::Keep);
        // One disturbed window is no gain.
        let disturbed = gain(&[100.0, 100.0, 100.0, 150.0, 100.0, 100.5, 100.0]);
        assert_eq!(disturbed.decision(), TextTrialDecision::Revert);
    }

    #[test]
    fn text_stays_huge_from_one_per_cent_on() {
        for (huge, decision) in [
            (1010.0, TextTrialDecision::Keep),
            (1009.0, TextTrialDecision::Revert),
            (900.0, TextTrialDecision::Revert),
            (0.0, TextTrialDecision::Revert),
        ] {
            let rates = [1000.0, huge, 1000.0, huge, 1000.0, huge, 1000.0, huge, 1000.0];
            assert_eq!(gain(&rates).decision(), decision, "{huge}");
        }
    }

    /// Of 9 pairs, 7 or more are faster by chance in 9.0 % of trials, 6 or more in 25.4 %; of 15,
    /// 11 or more in 5.9 %, 10 or more in 15.1 %.
    #[test]
    fn a_gain_that_chance_explains_is_none() {
        for (pairs, faster, decision) in [
            (3, 3, TextTrialDecision::Revert),
            (9, 7, TextTrialDecision::Keep),
            (9, 6, TextTrialDecision::Revert),
            (15, 11, TextTrialDecision::Keep),
            (15, 10, TextTrialDecision::Revert),
        ] {
            let rates = (0..=2 * pairs).map(|window| match window {
                _ if window % 2 == 0 => 100.0,
                _ if window < 2 * faster => 105.0,
                _ => 95.0,
            });
            let found = gain(&rates.collect::<Vec<f64>>());
            assert_eq!((found.pairs, found.faster_pairs), (pairs, faster));
            assert_eq!(found.decision(), decision, "{faster} of {pairs}");
        }
    }

    #[test]
    fn rates_that_are_missing_or_zero_give_no_gain() {
        let error = |rates: &[f64]| TextTrialGain::from_rates_in_turn(rates).expect_err("no gain");
        assert_eq!(error(&[]), TextTrialError::WindowsMissing(0));
        assert_eq!(error(&[1.0, 2.0, 1.0, 2.0]), TextTrialError::WindowsMissing(4));
        assert_eq!(error(&[1.0, 2.0, 1.0, 2.0, -1.0]), TextTrialError::NoWork(3));
        assert_eq!(error(&[1.0, f64::NAN, 1.0]), TextTrialError::NoWork(1));
    }

    #[test]
    fn one_disturbed_window_decides_nothing_in_the_shortest_trial() {
        let plan = TextTrialPlan::for_duration(Duration::from_secs(3));
        let without_and_with_gain =
            [(100.0, TextTrialDecision::Revert), (103.0, TextTrialDecision::Keep)];
        for (huge, decision) in without_and_with_gain {
            let rates: Vec<f64> =
                plan.windows().map(|is_huge| if is_huge { huge } else { 100.0 }).collect();
            for disturbed in 0..rates.len() {
                for rate in [50.0, 200.0] {
                    let mut rates = rates.clone();
                    rates[disturbed] = rate;
                    assert_eq!(gain(&rates).decision(), decision, "{rates:?}");
                }
            }
        }
    }

    #[test]
    fn a_trial_has_9_to_25_pairs_and_its_windows_alternate() {
        for (seconds, pairs) in [(4, 9), (39, 9), (60, 15), (3600, 25)] {
            let total = Duration::from_secs(seconds);
            let plan = TextTrialPlan::for_duration(total);
            assert_eq!(plan.pairs, pairs, "{seconds}");
            let windows: Vec<bool> = plan.windows().collect();
            assert_eq!(windows.len() as u32, 2 * pairs + 1);
            assert!(windows.iter().step_by(2).all(|huge| !huge));
            assert_eq!(windows.iter().filter(|huge| **huge).count() as u32, pairs);
            let planned = (plan.window + plan.settling) * (2 * pairs + 1);
            assert!(planned <= total && planned > total - Duration::from_millis(1));
        }
    }

    proptest! {
        #[test]
        fn an_even_drift_is_no_gain(
            first in 1.0f64..1e6, step in 0.0f64..1e5, pairs in 1usize..10
        ) {
            let rates: Vec<f64> = (0..=2 * pairs).map(|n| first + step * n as f64).collect();
            let found = gain(&rates);
            prop_assert!(found.median_percent.abs() < 1e-6, "{found:?}");
            prop_assert_eq!(found.decision(), TextTrialDecision::Revert);
        }

        #[test]
        fn the_median_is_in_the_range(rates in prop::collection::vec(1.0f64..1e6, 3..20)) {
            let odd = rates.len() - 1 + rates.len() % 2;
            let found = gain(&rates[..odd]);
            prop_assert!(found.lowest_percent <= found.median_percent);
            prop_assert!(found.median_percent <= found.highest_percent);
        }
    }
}
