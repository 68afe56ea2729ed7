//! How often a program accesses a huge page, from reads of its one access bit.
//!
//! A read shows only whether an access came since the bit was cleared. Times count in CPU time of
//! the program: while it waits for a core it accesses nothing, however hot a page is.

use crate::saturating_cast::u32_from_f64;

/// The CPU time from a clear of a huge page's access bit to the first access, as far as the reads
/// of one window have shown it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstAccess {
    /// It came later than this, in seconds.
    over_s: f64,
    /// It came by this time, in seconds; `None`: no read has shown it.
    at_most_s: Option<f64>,
}

/// The average CPU time between two accesses to a huge page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessInterval {
    average_s: f64,
}

/// Weight of the newest window.
const NEWEST_WEIGHT: f64 = 0.5;
/// A page that was not accessed in a time is taken to be accessed once in this many such times.
/// With the usual 30 ms of reads that is twice a second.
const UNSEEN_TIMES: f64 = 16.0;
/// No interval is shorter, in seconds. Reads of the access bit are far further apart.
const SHORTEST_S: f64 = 1e-6;

impl FirstAccess {
    /// Takes in a read of the access bit, `exposed_s` seconds of CPU time after its clear.
    pub fn record_read(&mut self, exposed_s: f64, accessed: bool) {
        if self.at_most_s.is_some() {
            return;
        }
        let exposed_s = exposed_s.max(self.over_s);
        if accessed {
            self.at_most_s = Some(exposed_s);
        } else {
            self.over_s = exposed_s;
        }
    }

    /// Whether the program did not run while the access bit was read.
    fn shows_nothing(self) -> bool {
        self.at_most_s.is_none() && self.over_s == 0.0
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
    /// The interval after one more window, which has shown `seen`. `before` is that of earlier
    /// windows. `None`: nothing is known yet.
    pub fn after_window(before: Option<Self>, seen: FirstAccess) -> Option<Self> {
        if seen.shows_nothing() {
            return before;
        }
        let average_s = before.map_or(seen.expected_alone_s(), |Self { average_s }| {
            average_s + (seen.expected_s(average_s) - average_s) * NEWEST_WEIGHT
        });
        Some(Self { average_s: average_s.max(SHORTEST_S) })
    }

    /// Accesses per second of a program that uses `cpu_cores`.
    pub fn accesses_per_s(self, cpu_cores: f64) -> u32 {
        u32_from_f64(cpu_cores / self.average_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk_rate::region_probe_plan::{READS_AFTER, xorshift};
    use proptest::prelude::*;

    /// What reads at these times show of a page that was first accessed at `first_s`.
    fn seen_by_reads(first_s: f64, reads_s: &[f64]) -> FirstAccess {
        let mut seen = FirstAccess::default();
        for read_s in reads_s {
            seen.record_read(*read_s, first_s <= *read_s);
        }
        seen
    }

    fn interval(average_s: f64) -> Option<AccessInterval> {
        Some(AccessInterval { average_s })
    }

    /// The rate after windows in which a program waits for a core until a random time, and only
    /// then begins to access the page every `average_s` at random.
    fn rate_of_waiting_program(average_s: f64, windows: u32, seed: u64) -> u32 {
        let mut random = xorshift(seed | 1);
        let mut share = || (random() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut known = None;
        for _ in 0..windows {
            let begins_s = (share() * 8e-3 - 4e-3).max(0.0);
            let first_s = -(1.0 - share()).ln() * average_s;
            let reads_s = READS_AFTER.map(|after| (after.as_secs_f64() + 3e-4 - begins_s).max(0.0));
            known = AccessInterval::after_window(known, seen_by_reads(first_s, &reads_s));
        }
        known.map_or(0, |known| known.accesses_per_s(1.0))
    }

    #[test]
    fn a_hot_page_of_a_program_that_waits_for_a_core_is_not_taken_for_a_cold_one() {
        let pages = 1000_u64;
        let mut rates = [25e-6, 2e-3].map(|average_s| {
            let rate = |seed| rate_of_waiting_program(average_s, 6, seed * 7919 + 1);
            let mut rates: Vec<u32> = (0..pages).map(rate).collect();
            rates.sort_unstable();
            rates
        });
        let [hot, cold] = &mut rates;
        // Twice as many accesses decide between pages with half as many zero base pages.
        let worst_hot = hot[hot.len() / 20];
        let worst_cold = cold[cold.len() * 19 / 20];
        assert!(worst_hot > 2 * worst_cold, "{worst_hot} and {worst_cold} accesses per second");
    }

    #[test]
    fn an_access_seen_late_changes_little() {
        let soon = seen_by_reads(0.0, &[3e-4]);
        let late = seen_by_reads(0.0, &[6e-3]);
        let known = AccessInterval::after_window(None, soon);
        assert_eq!(known, interval(1.5e-4));
        let after = AccessInterval::after_window(known, late).expect("known");
        assert!((after.average_s - 1.5e-4).abs() < 1e-9, "{after:?}");
        // Without an access until then it would have changed much.
        let cooled = AccessInterval::after_window(known, seen_by_reads(1.0, &[6e-3]));
        assert_eq!(cooled, interval(1.5e-4 + 3e-3));
    }

    #[test]
    fn a_window_in_which_the_program_did_not_run_tells_nothing() {
        let slept = seen_by_reads(1.0, &[0.0, 0.0]);
        assert_eq!(AccessInterval::after_window(None, slept), None);
        assert_eq!(AccessInterval::after_window(interval(0.25), slept), interval(0.25));
    }

    #[test]
    fn a_page_without_an_access_in_30_ms_counts_with_two_a_second() {
        let seen = seen_by_reads(1.0, &READS_AFTER.map(|after| after.as_secs_f64()));
        let known = AccessInterval::after_window(None, seen).expect("known");
        assert_eq!(known.accesses_per_s(1.0), 2);
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
        fn earlier_is_hotter(first_s in 0.0..0.1f64, earlier in 0.0..1.0f64, average_s in 1e-6..10.0f64) {
            let reads = READS_AFTER.map(|after| after.as_secs_f64());
            let expected = |first_s| seen_by_reads(first_s, &reads).expected_s(average_s);
            prop_assert!(expected(first_s * earlier) <= expected(first_s) + 1e-12);
        }
    }
}
