//! How often a program accesses a huge page, from reads of its one access bit.
//!
//! A read shows only whether an access came since the bit was cleared. While the program waits for
//! a core it accesses nothing, however hot a page is. The kernel counts the CPU time of a running
//! program only at its ticks, every 4 ms with 250 a second, which is too coarse for reads within a
//! millisecond. So the program counts as running from the read before the first that finds any of
//! the pages that were cleared together accessed.

use crate::saturating_cast::u32_from_f64;

/// The time from a clear of a huge page's access bit to the first access, as far as the reads of
/// one round have shown it. Time in which the program did not run does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstAccess {
    /// Until this time the program is not known to have run, in seconds since the clear.
    waited_s: f64,
    /// The access came later than this, in seconds after `waited_s`.
    over_s: f64,
    /// It came by this time, in seconds after `waited_s`; `None`: no read has shown it.
    at_most_s: Option<f64>,
}

/// The average time between two accesses to a huge page, while its program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessInterval {
    average_s: f64,
}

/// Weight of the newest round.
const NEWEST_WEIGHT: f64 = 0.5;
/// A page of which nothing else is known, and that was not accessed in a time, is taken to be
/// accessed once in this many such times. With the usual 30 ms of reads that is twice a second.
const UNSEEN_TIMES: f64 = 16.0;
/// Of a page of which nothing else is known, no access in a shorter time tells nothing.
const LEAST_UNSEEN_S: f64 = 6e-3;
/// A page that was not accessed for this many of its average intervals is not what it was: at
/// random, one in 3,000 is not.
const COOLED_TIMES: f64 = 8.0;
/// Nor is one that was accessed within this part of its average interval: at random, one in 250 is.
const WARMED_SHARE: f64 = 1.0 / 256.0;
/// No interval is shorter, in seconds. The first read comes later than this.
const SHORTEST_S: f64 = 50e-6;
/// In a round of fewer regions, no access at first says nothing about whether the program runs.
const REGIONS_THAT_SHOW_RUNNING: usize = 8;

/// Whether a read of a round of `regions` regions, which found `touched` pages accessed, shows that
/// the program has run since the clear.
pub fn read_shows_running(touched: u64, regions: usize) -> bool {
    touched > 0 || regions < REGIONS_THAT_SHOW_RUNNING
}

impl FirstAccess {
    /// Takes in a read of the access bit, `exposed_s` seconds after its clear. `running`: an
    /// earlier read of the round has shown that the program runs.
    pub fn record_read(&mut self, exposed_s: f64, accessed: bool, running: bool) {
        if self.at_most_s.is_some() {
            return;
        }
        let running_s = (exposed_s - self.waited_s).max(self.over_s);
        if accessed {
            self.at_most_s = Some(running_s);
        } else if running {
            self.over_s = running_s;
        } else {
            self.waited_s = self.waited_s.max(exposed_s);
        }
    }

    /// What the round has shown at its end; `None`: nothing. `used_cpu`: the program used CPU time
    /// in it. If it did, and no read has shown it `running`, it accessed other memory all the time.
    pub fn at_end_of_round(mut self, used_cpu: bool, running: bool) -> Option<Self> {
        if !running {
            self.over_s = std::mem::take(&mut self.waited_s);
        }
        let shows_none = used_cpu && self.over_s > 0.0;
        (self.at_most_s.is_some() || shows_none).then_some(self)
    }

    /// Whether a page that is accessed at random times, `average_s` apart, would hardly have shown
    /// this.
    fn refutes(self, average_s: f64) -> bool {
        match self.at_most_s {
            Some(at_most_s) => at_most_s < average_s * WARMED_SHARE,
            None => self.over_s > average_s * COOLED_TIMES,
        }
    }

    /// The time to expect, in seconds, of a page of which nothing else is known.
    fn expected_alone_s(self) -> Option<f64> {
        match self.at_most_s {
            Some(_) => Some(self.expected_after_change_s()),
            None => (self.over_s >= LEAST_UNSEEN_S).then_some(self.over_s * UNSEEN_TIMES),
        }
    }

    /// The time to expect, in seconds, of a page that is not what it was.
    fn expected_after_change_s(self) -> f64 {
        self.at_most_s.map_or(self.over_s, |at_most_s| (self.over_s + at_most_s) / 2.0)
    }

    /// The time to expect, in seconds, of a page that is accessed at random times, `average_s`
    /// apart: the mean of the part of the exponential distribution that the reads leave. An access
    /// that was seen late says little, because it may have come much earlier.
    fn expected_s(self, average_s: f64) -> f64 {
        let Some(at_most_s) = self.at_most_s else { return self.over_s + average_s };
        let range_s = at_most_s - self.over_s;
        let in_range_s = match range_s / average_s {
            // The difference below would lose its digits.
            short if short < 1e-3 => range_s / 2.0,
            ranges => average_s - range_s / ranges.exp_m1(),
        };
        self.over_s + in_range_s
    }
}

impl AccessInterval {
    /// The interval after one more round, which has shown `seen`. `before` is that of earlier
    /// rounds. `None`: nothing is known yet.
    pub fn after_round(before: Option<Self>, seen: FirstAccess) -> Option<Self> {
        let average_s = match before {
            None => seen.expected_alone_s()?,
            Some(Self { average_s }) if seen.refutes(average_s) => seen.expected_after_change_s(),
            Some(Self { average_s }) => {
                average_s + (seen.expected_s(average_s) - average_s) * NEWEST_WEIGHT
            }
        };
        Some(Self { average_s: average_s.max(SHORTEST_S) })
    }

    /// Accesses per second of a program that runs for this share of the time (0-1).
    pub fn accesses_per_s(self, running_share: f64) -> u32 {
        u32_from_f64(running_share / self.average_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk_rate::region_probe_plan::{READS_AFTER, xorshift};
    use proptest::prelude::*;

    /// Reads of a round, in seconds since the clear: clearing takes a while, too.
    fn reads_s() -> [f64; READS_AFTER.len()] {
        READS_AFTER.map(|after| after.as_secs_f64() + 3e-4)
    }

    /// What the reads show of a page of a running program that is first accessed at `first_s`.
    fn seen_by_reads(first_s: f64, reads_s: &[f64]) -> FirstAccess {
        let mut seen = FirstAccess::default();
        for read_s in reads_s {
            seen.record_read(*read_s, first_s <= *read_s, true);
        }
        seen
    }

    fn interval(average_s: f64) -> Option<AccessInterval> {
        Some(AccessInterval { average_s })
    }

    /// The accesses per second of `hot` pages that are accessed 25 us apart, and of `cold` pages
    /// that are accessed 2 ms apart, by six rounds. Two in three rounds begin while the program
    /// waits for a core.
    fn rates_of_waiting_program(hot: usize, cold: usize, seed: u64) -> [Vec<u32>; 2] {
        let mut random = xorshift(seed);
        let mut share = || (random() >> 11) as f64 / (1_u64 << 53) as f64;
        let apart_s: Vec<f64> = [vec![25e-6; hot], vec![2e-3; cold]].concat();
        let mut known = vec![None; apart_s.len()];
        for _ in 0..6 {
            let begins_s = (share() * 9e-3 - 3e-3).max(0.0);
            let first = |apart_s: &f64| begins_s - (1.0 - share()).ln() * apart_s;
            let first_s: Vec<f64> = apart_s.iter().map(first).collect();
            let mut seen = vec![FirstAccess::default(); apart_s.len()];
            let earliest_s = first_s.iter().copied().fold(f64::INFINITY, f64::min);
            let mut running = false;
            for read_s in reads_s() {
                for (seen, first_s) in seen.iter_mut().zip(&first_s) {
                    seen.record_read(read_s, *first_s <= read_s, running);
                }
                running |= earliest_s <= read_s;
            }
            for (known, seen) in known.iter_mut().zip(seen) {
                if let Some(seen) = seen.at_end_of_round(true, running) {
                    *known = AccessInterval::after_round(*known, seen);
                }
            }
        }
        let rates =
            known.iter().map(|known| known.map_or(0, |it: AccessInterval| it.accesses_per_s(1.0)));
        let mut hot_rates: Vec<u32> = rates.collect();
        let cold_rates = hot_rates.split_off(hot);
        [hot_rates, cold_rates]
    }

    #[test]
    fn a_hot_page_of_a_program_that_waits_for_a_core_is_not_taken_for_a_cold_one() {
        let rates = |n: usize| {
            (1..40).flat_map(move |seed| rates_of_waiting_program(50, 50, seed)[n].clone())
        };
        let [mut hot, mut cold] = [0, 1].map(|n| rates(n).collect::<Vec<u32>>());
        hot.sort_unstable();
        cold.sort_unstable();
        // Twice as many accesses decide between pages with half as many zero base pages.
        let (worst_hot, worst_cold) = (hot[hot.len() / 20], cold[cold.len() * 9 / 10]);
        assert!(worst_hot > 2 * worst_cold, "{worst_hot} and {worst_cold} accesses per second");
    }

    #[test]
    fn an_access_seen_late_changes_little() {
        let known = AccessInterval::after_round(None, seen_by_reads(0.0, &[3e-4]));
        assert_eq!(known, interval(1.5e-4));
        let late = seen_by_reads(0.0, &[6e-3]);
        let after = AccessInterval::after_round(known, late).expect("known");
        assert!((after.average_s - 1.5e-4).abs() < 1e-9, "{after:?}");
    }

    #[test]
    fn a_page_that_cools_down_or_warms_up_is_known_to_after_one_round() {
        let rate = |known: Option<AccessInterval>| known.map(|it| it.accesses_per_s(1.0));
        let unseen = seen_by_reads(1.0, &reads_s());
        let cooled = AccessInterval::after_round(interval(1.5e-4), unseen);
        assert_eq!(rate(cooled), Some(33));
        let warmed = AccessInterval::after_round(interval(0.5), seen_by_reads(0.0, &reads_s()));
        assert_eq!(rate(warmed), Some(6666));
        assert_eq!(warmed.map(|it| it.accesses_per_s(0.25)), Some(1666));
        // A short round shows too little for either.
        let short = seen_by_reads(1.0, &[3e-4]);
        assert_eq!(rate(AccessInterval::after_round(interval(1.5e-4), short)), Some(3333));
        assert_eq!(rate(AccessInterval::after_round(None, short)), None);
        let late = seen_by_reads(0.0, &[6e-3]);
        assert!(rate(AccessInterval::after_round(cooled, late)) < Some(70));
    }

    #[test]
    fn a_page_accessed_at_once_counts_with_the_most_that_reads_can_show() {
        let mut known = None;
        for _ in 0..20 {
            known = AccessInterval::after_round(known, seen_by_reads(0.0, &[0.0]));
        }
        assert_eq!(known, interval(SHORTEST_S));
    }

    #[test]
    fn a_wait_for_a_core_does_not_count() {
        let waits_until_the_last_read = |accessed: bool, others_accessed: bool| {
            let mut seen = FirstAccess::default();
            let mut running = false;
            let reads = reads_s();
            for (n, read_s) in reads.into_iter().enumerate() {
                let is_last = n + 1 == reads.len();
                seen.record_read(read_s, accessed && is_last, running);
                running |= others_accessed && is_last;
            }
            seen
        };
        let gap_s = (READS_AFTER[6] - READS_AFTER[5]).as_secs_f64();
        let accessed = waits_until_the_last_read(true, true);
        assert_eq!(accessed.at_end_of_round(false, true), Some(accessed));
        let at_most_s = accessed.at_most_s.expect("accessed");
        assert!((at_most_s - gap_s).abs() < 1e-9 && accessed.over_s == 0.0, "{accessed:?}");
        // Others were accessed at the end, so it began to run too late to show anything.
        assert_eq!(waits_until_the_last_read(false, true).at_end_of_round(true, true), None);
        // It ran, but accessed none of the pages; or it did not run.
        let elsewhere = waits_until_the_last_read(false, false);
        let whole = seen_by_reads(1.0, &reads_s());
        assert_eq!(elsewhere.at_end_of_round(true, false), Some(whole));
        assert_eq!(elsewhere.at_end_of_round(false, false), None);
        assert_eq!(whole.at_end_of_round(true, true), Some(whole));
        assert_eq!(whole.at_end_of_round(false, true), None);
    }

    #[test]
    fn a_few_regions_do_not_show_whether_the_program_runs() {
        assert!(!read_shows_running(0, 8) && read_shows_running(1, 8));
        assert!(read_shows_running(0, 7));
    }

    proptest! {
        /// What is expected lies between the reads, or after the last.
        #[test]
        fn what_is_expected_agrees_with_the_reads(
            first_s in 0.0..0.1f64, average_s in 1e-6..10.0f64,
            reads in prop::collection::vec(0.0..0.05f64, 1..8),
        ) {
            let seen = seen_by_reads(first_s, &reads);
            let alone_s = seen.expected_alone_s().unwrap_or(seen.over_s);
            for expected_s in [seen.expected_s(average_s), alone_s] {
                prop_assert!(expected_s >= seen.over_s, "{expected_s} {seen:?}");
                let at_most_s = seen.at_most_s.unwrap_or(f64::INFINITY);
                prop_assert!(expected_s <= at_most_s + 1e-12, "{expected_s} {seen:?}");
            }
        }

        /// A page that is accessed earlier is never taken to be accessed less often.
        #[test]
        fn earlier_is_hotter(
            first_s in 0.0..0.1f64, earlier in 0.0..1.0f64, average_s in 1e-6..10.0f64,
        ) {
            let average_after_s = |first_s| {
                let seen = seen_by_reads(first_s, &reads_s());
                AccessInterval::after_round(interval(average_s), seen).map(|it| it.average_s)
            };
            let later_s = average_after_s(first_s).map(|it| it + 1e-12);
            prop_assert!(average_after_s(first_s * earlier) <= later_s);
        }
    }
}
