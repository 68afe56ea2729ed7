//! Which regions are sampled, for how long, and when that is enough.

use crate::page::{PAGES_PER_REGION, RegionAddr};
use crate::saturating_cast::usize_from_u64;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

/// How a process is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionProbeSettings {
    /// Rounds for the process's rate, at most, in one window. They are small, because a hypervisor
    /// may intercept first touches. Clearing more would then slow the program down, and its rate
    /// with it.
    pub rate_rounds: u32,
    /// Regions in one of these rounds (1-64).
    pub rate_regions: usize,
    /// Later rounds, at most, in one window, which only compare regions with each other.
    pub ranking_rounds: u32,
    /// Regions in one of these rounds (1-64).
    pub ranking_regions: usize,
}

/// A first touch that takes longer than this is intercepted by a hypervisor. The processor alone
/// takes a tenth of it.
pub const INTERCEPTED: Duration = Duration::from_nanos(200);

impl RegionProbeSettings {
    /// Settings for a machine with first touches of this cost: 2.5 GiB in about a second, in 20
    /// rounds of 64. Half of the rounds are for the rate and take regions at random. The other half
    /// take the regions not seen for the longest time. Where touches are intercepted all 20 are for
    /// ranking, after 12 rounds of 8 for the rate.
    pub fn for_first_touch_cost(cost: Duration) -> Self {
        if cost >= INTERCEPTED {
            Self { rate_rounds: 12, rate_regions: 8, ranking_rounds: 20, ranking_regions: 64 }
        } else {
            Self { rate_rounds: 10, rate_regions: 64, ranking_rounds: 10, ranking_regions: 64 }
        }
    }

    /// About a third of the rounds, for the first window of a process. A third of a second shows
    /// whether promotion pays at all, and the next window is soon where it does.
    #[must_use]
    pub fn for_first_window(self) -> Self {
        Self {
            rate_rounds: (self.rate_rounds / 2).max(1),
            ranking_rounds: self.ranking_rounds / 4,
            ..self
        }
    }
}

/// Times of the reads of a round's regions, counted from their clear. The first read is for
/// programs that touch everything within a millisecond, the last for those that touch a few pages.
pub const READS_AFTER: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_micros(400),
    Duration::from_micros(1_000),
    Duration::from_micros(2_500),
    Duration::from_micros(6_000),
    Duration::from_micros(15_000),
    Duration::from_micros(30_000),
];

/// A round has seen enough when this share of its pages is marked: pages touched again don't show.
const ENOUGH_SHARE: f64 = 0.1;

/// The rounds of one process in one window: random regions, each at most once.
#[derive(Clone, Debug)]
pub struct RegionProbePlan {
    /// Shuffled; taken from the end.
    regions: Vec<RegionAddr>,
    settings: RegionProbeSettings,
    rounds: u32,
    /// Rounds to repeat once all others are done.
    again: VecDeque<ProbeRoundPlan>,
    through: bool,
}

/// One round: regions to clear and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRoundPlan {
    /// In ascending order.
    pub regions: Vec<RegionAddr>,
    /// Whether it counts for the process's rate.
    pub for_rate: bool,
}

impl RegionProbePlan {
    /// A probe of `regions` in an order determined by `seed`. Rounds that only compare start with
    /// the regions seen longest ago, by the number of the window (0: never).
    pub fn new(
        mut regions: Vec<RegionAddr>,
        settings: RegionProbeSettings,
        seed: u64,
        seen: impl Fn(RegionAddr) -> u64,
    ) -> Self {
        shuffle(&mut regions, seed);
        // Rounds for the process's rate take regions at random.
        let for_rate = settings.rate_rounds as usize * settings.rate_regions;
        let compared = regions.len().saturating_sub(for_rate);
        regions[..compared].sort_by_key(|region| Reverse(seen(*region)));
        Self { regions, settings, rounds: 0, again: VecDeque::new(), through: false }
    }

    /// The process paused in this round. The round is repeated at the end, if there is time. It is
    /// repeated once only, because the process may have paused for good.
    pub fn repeat_round_later(&mut self, round: ProbeRoundPlan) {
        if !self.through && self.settings.ranking_rounds > 0 {
            self.again.push_back(round);
        }
    }

    /// The next round; `None` when all regions are done or this window has seen enough.
    pub fn next_round(&mut self) -> Option<ProbeRoundPlan> {
        let all = self.settings.rate_rounds + self.settings.ranking_rounds;
        if self.regions.is_empty() || self.rounds >= all {
            self.through = true;
            return self.again.pop_front();
        }
        let for_rate = self.rounds < self.settings.rate_rounds;
        let most =
            if for_rate { self.settings.rate_regions } else { self.settings.ranking_regions };
        self.rounds += 1;
        let rest = self.regions.len().saturating_sub(most.max(1));
        let mut regions = self.regions.split_off(rest);
        regions.sort_unstable();
        Some(ProbeRoundPlan { regions, for_rate })
    }

    /// Whether a round needs no further read after read number `read` (from 0), which found
    /// `touched` pages in `regions` regions.
    pub fn round_has_enough_touches(read: usize, touched: u64, regions: usize) -> bool {
        let pages = regions as f64 * f64::from(PAGES_PER_REGION);
        read + 1 >= READS_AFTER.len() || touched as f64 >= pages * ENOUGH_SHARE
    }
}

/// Fisher and Yates's shuffle: it only makes the order independent of addresses.
fn shuffle(regions: &mut [RegionAddr], seed: u64) {
    let mut random = xorshift(seed | 1);
    for last in (1..regions.len()).rev() {
        regions.swap(last, usize_from_u64(random() % (last as u64 + 1)));
    }
}

/// Random numbers by three shifts (G. Marsaglia, "Xorshift RNGs", 2003). The state is not 0.
pub(crate) fn xorshift(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::region;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn regions_sampled_longest_ago_come_first() {
        let settings = RegionProbeSettings::for_first_touch_cost(INTERCEPTED);
        let count = 3000;
        let mut windows: HashMap<RegionAddr, u64> = HashMap::new();
        for window in 1..=3 {
            let seen = windows.clone();
            let mut probe = RegionProbePlan::new(
                (0..count).map(region).collect(),
                settings,
                window,
                |region| seen.get(&region).copied().unwrap_or(0),
            );
            while let Some(round) = probe.next_round() {
                windows.extend(round.regions.into_iter().map(|region| (region, window)));
            }
        }
        // 1280 regions are compared in a window.
        assert_eq!(windows.len() as u64, count);
    }

    #[test]
    fn a_round_during_a_pause_is_repeated_at_the_end() {
        let all: Vec<RegionAddr> = (0..100).map(region).collect();
        let settings = RegionProbeSettings::for_first_touch_cost(Duration::ZERO);
        let mut probe = RegionProbePlan::new(all.clone(), settings, 7, |_| 0);
        let first = probe.next_round().expect("a round is due");
        probe.repeat_round_later(first.clone());
        let second = probe.next_round().expect("a second round is due");
        assert_eq!(second.regions.len(), 100 - first.regions.len());
        assert_eq!(probe.next_round(), Some(first));
        assert_eq!(probe.next_round(), None);
        // A process that pauses for good.
        let mut probe = RegionProbePlan::new(all, settings, 7, |_| 0);
        let mut rounds = 0;
        while let Some(round) = probe.next_round() {
            probe.repeat_round_later(round);
            rounds += 1;
        }
        assert_eq!(rounds, 2 * 2);
    }

    #[test]
    fn a_round_ends_when_a_tenth_is_touched_or_time_is_up() {
        assert!(!RegionProbePlan::round_has_enough_touches(0, 100, 16));
        assert!(RegionProbePlan::round_has_enough_touches(0, 820, 16));
        assert!(RegionProbePlan::round_has_enough_touches(READS_AFTER.len() - 1, 0, 16));
    }

    proptest! {
        #[test]
        fn no_region_is_cleared_twice_and_no_round_is_long(
            count in 0u64..5000, seed in any::<u64>(),
        ) {
            let settings = RegionProbeSettings::for_first_touch_cost(INTERCEPTED);
            let mut probe = RegionProbePlan::new((0..count).map(region).collect(), settings, seed, |_| 0);
            let mut seen = Vec::new();
            while let Some(round) = probe.next_round() {
                let most = if round.for_rate { 8 } else { 64 };
                prop_assert!(!round.regions.is_empty() && round.regions.len() <= most);
                prop_assert!(round.regions.is_sorted());
                seen.extend(round.regions);
            }
            let all = seen.len();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), all);
            prop_assert_eq!(all as u64, count.min(12 * 8 + 20 * 64));
        }
    }
}
