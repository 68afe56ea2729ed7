//! How often a program accesses a huge page, from reads of its one access bit.
//!
//! A read shows only whether an access came since the bit was cleared. While the program waits for
//! a core it accesses nothing, however hot a page is. The kernel counts the CPU time of a running
//! program only at its ticks, every 4 ms with 250 a second, which is too coarse for reads within a
//! millisecond. So the program counts as running from the first read that finds any of the pages
//! that were cleared together accessed.

use crate::saturating_cast::u32_from_f64;

/// The time from a clear of a huge page's access bit to the first access, as far as the reads of
/// one round have shown it. Time in which the program did not run does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstAccess {
    /// No page of the round had been accessed by this time, in seconds since the clear.
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
/// A page that was not accessed in a time is taken to be accessed once in this many such times.
/// With the usual 30 ms of reads that is twice a second.
const UNSEEN_TIMES: f64 = 16.0;
/// A page that was not accessed for this many of its average intervals is not what it was: at
/// random, one in 3,000 is not.
const REFUTED_TIMES: f64 = 8.0;
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
    /// Takes in a read of the access bit, `exposed_s` seconds after its clear. `running`: this read
    /// or an earlier one has shown that the program runs.
    pub fn record_read(&mut self, exposed_s: f64, accessed: bool, running: bool) {
        if self.at_most_s.is_some() {
            return;
        }
        if !running {
            self.waited_s = self.waited_s.max(exposed_s);
            return;
        }
        let running_s = (exposed_s - self.waited_s).max(self.over_s);
        if accessed {
            self.at_most_s = Some(running_s);
        } else {
            self.over_s = running_s;
        }
    }

    /// Ends a round in which the program used CPU time. If it accessed none of the pages meanwhile,
    /// it ran elsewhere.
    pub fn count_wait_as_running(&mut self) {
        if self.at_most_s.is_none() && self.over_s == 0.0 {
            self.over_s = std::mem::take(&mut self.waited_s);
        }
    }

    fn shows_nothing(self) -> bool {
        self.at_most_s.is_none() && self.over_s == 0.0
    }

    /// Whether a page that was accessed `average_s` apart would have been accessed.
    fn refutes(self, average_s: f64) -> bool {
        self.at_most_s.is_none() && self.over_s > average_s * REFUTED_TIMES
    }

    /// The time to expect, in seconds, of a page of which nothing else is known.
    fn expected_alone_s(self) -> f64 {
        self.at_most_s.map_or(self.over_s * UNSEEN_TIMES, |at_most| (self.over_s + at_most) / 2.0)
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
        if seen.shows_nothing() {
            return before;
        }
        let before = before.filter(|before| !seen.refutes(before.average_s));
        let average_s = before.map_or(seen.expected_alone_s(), |Self { average_s }| {
            average_s + (seen.expected_s(average_s) - average_s) * NEWEST_WEIGHT
        });
        Some(Self { average_s: average_s.max(SHORTEST_S) })
    }

    /// Accesses per second while the program runs.
    pub fn accesses_per_s(self) -> u32 {
        u32_from_f64(1.0 / self.average_s)
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
    fn rates_of_waiting_program(hot: usize, cold: usize) -> [Vec<u32>; 2] {
        let mut random = xorshift(7);
        let mut share = || (random() >> 11) as f64 / (1_u64 << 53) as f64;
        let apart_s: Vec<f64> = [vec![25e-6; hot], vec![2e-3; cold]].concat();
        let mut known = vec![None; apart_s.len()];
        for _ in 0..6 {
            let begins_s = (share() * 9e-3 - 3e-3).max(0.0);
            let first = |apart_s: &f64| begins_s - (1.0 - share()).ln() * apart_s;
            let first_s: Vec<f64> = apart_s.iter().map(first).collect();
            let mut seen = vec![FirstAccess::default(); apart_s.len()];
            let earliest_s = first_s.iter().copied().fold(f64::INFINITY, f64::min);
            for read_s in reads_s() {
                for (seen, first_s) in seen.iter_mut().zip(&first_s) {
                    seen.record_read(read_s, *first_s <= read_s, earliest_s <= read_s);
                }
            }
            for (known, seen) in known.iter_mut().zip(seen) {
                *known = AccessInterval::after_round(*known, seen);
            }
        }
        let rates = known.iter().map(|known| known.map_or(0, AccessInterval::accesses_per_s));
        let mut hot_rates: Vec<u32> = rates.collect();
        let mut cold_rates = hot_rates.split_off(hot);
        hot_rates.sort_unstable();
        cold_rates.sort_unstable();
        [hot_rates, cold_rates]
    }

    #[test]
    fn a_hot_page_of_a_program_that_waits_for_a_core_is_not_taken_for_a_cold_one() {
        let [hot, cold] = rates_of_waiting_program(1000, 1000);
        // Twice as many accesses decide between pages with half as many zero base pages.
        let (worst_hot, worst_cold) = (hot[hot.len() / 20], cold[cold.len() * 19 / 20]);
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
    fn a_page_that_cools_down_is_known_to_after_one_round() {
        let rate = |known: Option<AccessInterval>| known.map(AccessInterval::accesses_per_s);
        let unseen = seen_by_reads(1.0, &reads_s());
        let known = AccessInterval::after_round(interval(1.5e-4), unseen);
        assert_eq!(rate(known), Some(2));
        // A short round refutes nothing.
        let short = seen_by_reads(1.0, &[3e-4]);
        let known = AccessInterval::after_round(interval(1.5e-4), short);
        assert_eq!(rate(known), Some(3333));
        // Without earlier rounds it says no more than that the page is not among the hottest.
        assert_eq!(rate(AccessInterval::after_round(None, short)), Some(208));
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
    fn a_round_in_which_the_program_did_not_run_tells_nothing() {
        let mut slept = FirstAccess::default();
        for read_s in reads_s() {
            slept.record_read(read_s, false, false);
        }
        assert_eq!(AccessInterval::after_round(None, slept), None);
        assert_eq!(AccessInterval::after_round(interval(0.25), slept), interval(0.25));
        // It ran, but accessed none of these pages.
        slept.count_wait_as_running();
        assert_eq!(slept, seen_by_reads(1.0, &reads_s()));
        // Where it was seen to run, the wait before does not count.
        let mut waited = FirstAccess::default();
        waited.record_read(4e-3, false, false);
        waited.record_read(5e-3, false, true);
        waited.count_wait_as_running();
        assert_eq!((waited.over_s, waited.at_most_s), (1e-3, None));
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
            for expected_s in [seen.expected_s(average_s), seen.expected_alone_s()] {
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
            let rate = |first_s| {
                let seen = seen_by_reads(first_s, &reads_s());
                AccessInterval::after_round(interval(average_s), seen).map(|it| it.average_s)
            };
            prop_assert!(rate(first_s * earlier) <= rate(first_s).map(|it| it + 1e-12));
        }
    }
}
