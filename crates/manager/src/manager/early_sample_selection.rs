//! Which programs are sampled before their turn, because their memory has grown or
//! because they were seen only in part.

use hawkeye_policy::{Event, ProcessId};
use std::collections::HashMap;
use std::time::Duration;

/// Interval of looks at the size of programs that may grow, and while one grows.
const INTERVAL: Duration = Duration::from_millis(200);
const INTERVAL_IN_GROWTH: Duration = Duration::from_millis(100);
/// The interval is at least this many times the CPU time of a look.
const INTERVAL_PER_COST: u32 = 100;
/// Looks stay frequent for this long after a program was last seen to grow.
const WATCHED: Duration = Duration::from_secs(5);
/// A program that still grows this long after its last sample is sampled while it grows.
const KEEPS_GROWING: Duration = Duration::from_secs(1);
/// The rest of a program that was seen in part is sampled after this time.
const REST_OF_PROGRAM: Duration = Duration::from_secs(1);
/// Growth that justifies a sample: by half, and at least by this much.
const GROWTH_BYTES: u64 = 32 << 20;
/// A program has stopped growing when it grows by at most this share of itself per second.
const GROWS_PER_S: f64 = 1.0 / 64.0;

/// The sizes of programs, and how they grow.
#[derive(Debug)]
pub(super) struct EarlySampleSelection {
    programs: HashMap<ProcessId, ResidentGrowth>,
    /// A new program that grows for this long is sampled while it grows.
    growth_until_first_sample: Duration,
    watched_until: Duration,
}

/// How the memory of one program grows, or of all together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResidentGrowth {
    /// Resident memory at the last sample; 0 before the first.
    sampled_bytes: u64,
    /// Whether that sample was taken while the program grew, and so shows little of its use.
    sampled_in_growth: bool,
    /// When that sample was taken, if it showed only part of a program that is worth promotions.
    partly_seen_at: Option<Duration>,
    /// Resident memory at the last look, and the time of that look.
    bytes: u64,
    at: Duration,
    pub(super) phase: GrowthPhase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum GrowthPhase {
    #[default]
    Unseen,
    /// One look says nothing about growth.
    SeenOnce,
    Grows {
        since: Duration,
    },
    Settled,
}

impl ResidentGrowth {
    pub(super) fn record_resident_bytes(&mut self, now: Duration, rss_bytes: u64) {
        let since_s = now.saturating_sub(self.at).as_secs_f64();
        let more_bytes = rss_bytes.saturating_sub(self.bytes) as f64;
        let grows = more_bytes > rss_bytes as f64 * GROWS_PER_S * since_s;
        self.phase = match self.phase {
            GrowthPhase::Unseen => GrowthPhase::SeenOnce,
            GrowthPhase::Grows { since } if grows => GrowthPhase::Grows { since },
            _ if grows => GrowthPhase::Grows { since: self.at },
            _ => GrowthPhase::Settled,
        };
        (self.bytes, self.at) = (rss_bytes, now);
    }

    /// Whether it has grown enough since the last sample to justify another one.
    pub(super) fn has_grown_since_sample(&self) -> bool {
        self.bytes > self.sampled_bytes + self.sampled_bytes / 2 + GROWTH_BYTES
    }

    pub(super) fn restart_growth_wait_from_sample(&mut self, now: Duration, partly: bool) {
        self.sampled_bytes = self.bytes;
        self.sampled_in_growth = false;
        self.partly_seen_at = partly.then_some(now);
        if let GrowthPhase::Grows { since } = &mut self.phase {
            *since = now;
            self.sampled_in_growth = true;
        }
    }
}

impl EarlySampleSelection {
    pub(super) fn new(growth_until_first_sample: Duration) -> Self {
        let (programs, watched_until) = (HashMap::new(), Duration::ZERO);
        Self { programs, growth_until_first_sample, watched_until }
    }

    pub(super) fn apply_event(&mut self, now: Duration, event: &Event) {
        match *event {
            Event::Measured { process, rss_bytes, .. } => {
                self.record_resident_bytes(now, process, rss_bytes);
            }
            Event::Sampled { process, worth_sampling_again, .. } => {
                self.restart_growth_wait_from_sample(now, process, worth_sampling_again);
            }
            _ => {}
        }
    }

    fn record_resident_bytes(&mut self, now: Duration, process: ProcessId, rss_bytes: u64) {
        let program = self.programs.entry(process).or_default();
        program.record_resident_bytes(now, rss_bytes);
        if program.phase != GrowthPhase::Settled {
            self.watched_until = self.watched_until.max(now + WATCHED);
        }
    }

    /// Programs that have grown much since their last sample, or were seen only in part. One that
    /// grows is left alone at first: its accesses would only show what is being filled. A new one
    /// soon gets its first promotions nevertheless.
    pub(super) fn programs_due_for_sample(&self, now: Duration) -> Vec<ProcessId> {
        let rested = |program: &ResidentGrowth| {
            program.partly_seen_at.is_some_and(|at| now >= at + REST_OF_PROGRAM)
        };
        let wants_sample = |program: &ResidentGrowth| {
            let grown = program.has_grown_since_sample();
            match program.phase {
                GrowthPhase::Unseen | GrowthPhase::SeenOnce => false,
                GrowthPhase::Grows { since } => {
                    let is_new = program.sampled_bytes == 0;
                    let wait = if is_new { self.growth_until_first_sample } else { KEEPS_GROWING };
                    grown && now >= since + wait
                }
                GrowthPhase::Settled => grown || program.sampled_in_growth || rested(program),
            }
        };
        let grown = self.programs.iter().filter(|(_, program)| wants_sample(program));
        let mut grown: Vec<ProcessId> = grown.map(|(process, _)| *process).collect();
        grown.sort_unstable();
        grown
    }

    fn restart_growth_wait_from_sample(&mut self, now: Duration, process: ProcessId, partly: bool) {
        if let Some(program) = self.programs.get_mut(&process) {
            program.restart_growth_wait_from_sample(now, partly);
        }
    }

    pub(super) fn retain_processes(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.programs.retain(|process, _| is_there(*process));
    }

    /// When to look at sizes again, if that should be soon. The last look took `cost` of CPU time.
    pub(super) fn next_size_check(&self, now: Duration, cost: Duration) -> Option<Duration> {
        let mut programs = self.programs.values();
        let grows = programs.any(|program| matches!(program.phase, GrowthPhase::Grows { .. }));
        let interval = if grows { INTERVAL_IN_GROWTH } else { INTERVAL };
        let next = now + interval.max(cost.saturating_mul(INTERVAL_PER_COST));
        (now < self.watched_until).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::process_with_pid;

    const MIB: u64 = 1 << 20;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn selection() -> EarlySampleSelection {
        EarlySampleSelection::new(ms(400))
    }

    /// Looks every 100 ms at a program of these sizes in MiB; returns the times, in ms, at which it
    /// was sampled.
    fn samples(sizes_mib: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut looks = selection();
        let mut sampled = Vec::new();
        for (n, size) in (0..).zip(sizes_mib) {
            let now = ms(n * 100);
            looks.record_resident_bytes(now, process_with_pid(1), size * MIB);
            if looks.programs_due_for_sample(now) == [process_with_pid(1)] {
                looks.restart_growth_wait_from_sample(now, process_with_pid(1), false);
                sampled.push(n * 100);
            }
        }
        sampled
    }

    #[test]
    fn a_program_that_was_there_before_is_sampled_at_the_second_look() {
        assert_eq!(samples([1000; 50]), [100]);
    }

    #[test]
    fn a_program_is_sampled_as_soon_as_it_stops_growing() {
        assert_eq!(samples([1, 200, 300, 300, 300, 300, 300]), [300]);
        // Too little growth.
        assert!(samples([1, 20, 30, 32, 32, 32]).is_empty());
    }

    #[test]
    fn a_program_that_keeps_growing_is_sampled_each_time_it_has_grown_by_half() {
        let times = samples((0..600).map(|n| n * 10));
        // The first one comes sooner.
        assert_eq!(times[0], 400);
        assert!((6..12).contains(&times.len()), "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1000));
        // Once more when it has stopped, because samples in growth show what is being filled.
        let times = samples((0..100).map(|n: u64| n.min(16) * 50));
        assert_eq!(times, [400, 1400, 1700]);
    }

    #[test]
    fn the_rest_of_a_program_seen_in_part_is_sampled_a_second_later() {
        let mut looks = selection();
        for (at, wanted, partly) in [
            (0, false, false),
            (200, true, true),
            (1000, false, false),
            (1200, true, true),
            (2200, true, false),
            (9000, false, false),
        ] {
            looks.record_resident_bytes(ms(at), process_with_pid(1), 1000 * MIB);
            assert_eq!(!looks.programs_due_for_sample(ms(at)).is_empty(), wanted, "{at}");
            if wanted {
                looks.restart_growth_wait_from_sample(ms(at), process_with_pid(1), partly);
            }
        }
    }

    #[test]
    fn looks_are_frequent_only_after_growth_and_within_their_cost() {
        let mut looks = selection();
        assert_eq!(looks.next_size_check(ms(0), ms(0)), None);
        looks.record_resident_bytes(ms(0), process_with_pid(1), MIB);
        assert_eq!(looks.next_size_check(ms(0), ms(1)), Some(ms(200)));
        assert_eq!(looks.next_size_check(ms(0), ms(5)), Some(ms(500)));
        looks.record_resident_bytes(ms(4000), process_with_pid(1), 100 * MIB);
        assert_eq!(looks.next_size_check(ms(4000), ms(0)), Some(ms(4100)));
        looks.record_resident_bytes(ms(8900), process_with_pid(1), 100 * MIB);
        assert_eq!(looks.next_size_check(ms(8900), ms(0)), Some(ms(9100)));
        assert_eq!(looks.next_size_check(ms(9000), ms(0)), None);
        looks.retain_processes(|_| false);
        assert!(looks.programs_due_for_sample(ms(9000)).is_empty());
    }
}
