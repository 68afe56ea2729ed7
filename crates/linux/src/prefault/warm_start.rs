//! Decides which new mappings of a process are filled as soon as they exist, for a requested warm
//! start.

use hawkeye_policy::RegionAddr;
use std::ops::Range;
use std::time::Duration;

/// Mappings smaller than this part of the request are ignored: an interpreter's code beside the
/// heap, for example.
const MIN_MAPPING_PART: u64 = 4;
/// New mappings that are filled after one look, at most: as many streams as a process can have.
const MOST_NEW_RANGES: usize = 16;
/// Time between two looks at the mappings at the start of a process ...
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// ... and at the end.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// In between, the pause is this part of the time watched so far, which costs 1 % of a core.
const PAUSE_SHARE: u32 = 16;

/// A program that touches all of its memory at its start has done so after this time.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct WarmStart {
    began: Duration,
    pub(super) next_look: Duration,
    least_bytes: u64,
    /// Address ranges already handled, in bytes. They are in order and do not overlap.
    seen: Vec<Range<u64>>,
}

impl WarmStart {
    /// A process that is watched from now on, with `bytes` to fill.
    pub(super) fn new(now: Duration, bytes: u64) -> Self {
        Self { began: now, next_look: now, least_bytes: bytes / MIN_MAPPING_PART, seen: Vec::new() }
    }

    /// Whether new mappings are no longer waited for.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now >= self.began + PATIENCE
    }

    /// The last whole region of each large range that is new in `mapped`, the largest range first.
    /// Of many new ranges the smaller ones stay new. `mapped`: the process's mappings that may be
    /// huge, in order of address.
    pub(super) fn last_regions_of_new_ranges(
        &mut self,
        now: Duration,
        mapped: &[Range<u64>],
    ) -> Vec<RegionAddr> {
        let age = now.saturating_sub(self.began);
        self.next_look = now + (age / PAUSE_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut new = self.large_unseen_parts(mapped);
        new.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
        new.truncate(MOST_NEW_RANGES);
        self.seen.extend(new.iter().cloned());
        self.seen.sort_by_key(|range| range.start);
        let last = |range: &Range<u64>| RegionAddr::containing(range.end - 1);
        new.iter().map(last).collect()
    }

    /// Nothing could be filled around this region yet, so its mapping counts as new at the next
    /// look. A mapping in which the program has written nothing cannot be collapsed.
    pub(super) fn retry_mapping_later(&mut self, region: RegionAddr) {
        self.seen.retain(|range| !range.contains(&region.start()));
    }

    /// The large parts of mappings that were not seen before, which is what they grew by.
    fn large_unseen_parts(&self, mapped: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        for mapping in mapped {
            let first = self.seen.partition_point(|seen| seen.end <= mapping.start);
            let within = self.seen[first..].iter().take_while(|seen| seen.start < mapping.end);
            let mut start = mapping.start;
            for seen in within {
                parts.push(start..seen.start);
                start = seen.end;
            }
            parts.push(start..mapping.end);
        }
        parts.retain(|part| part.end.saturating_sub(part.start) >= self.least_bytes.max(1));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES;

    fn regions(from: u64, to: u64) -> Range<u64> {
        from * HUGE_PAGE_BYTES..to * HUGE_PAGE_BYTES
    }

    fn last(at: u64) -> RegionAddr {
        RegionAddr::containing(at * HUGE_PAGE_BYTES)
    }

    #[test]
    fn new_mappings_are_returned_once_the_largest_first() {
        let mut warm = WarmStart::new(Duration::ZERO, 64 * HUGE_PAGE_BYTES);
        let mut look =
            |mapped: &[Range<u64>]| warm.last_regions_of_new_ranges(Duration::ZERO, mapped);
        let all = [regions(100, 120), regions(200, 210), regions(300, 340)];
        assert_eq!(look(&all), [last(339), last(119)]);
        assert_eq!(look(&all), []);
        // It has grown on either side.
        assert_eq!(look(&[regions(50, 150)]), [last(99), last(149)]);
        assert_eq!(look(&[regions(45, 155)]), []);
        // The fill was refused.
        warm.retry_mapping_later(last(149));
        let again = warm.last_regions_of_new_ranges(Duration::ZERO, &[regions(50, 150)]);
        assert_eq!(again, [last(149)]);
    }

    #[test]
    fn many_mappings_are_taken_some_at_a_time_the_largest_first() {
        let mut warm = WarmStart::new(Duration::ZERO, 4 * HUGE_PAGE_BYTES);
        let all: Vec<_> = (0..30_000).map(|n| regions(8 * n, 8 * n + 1 + n % 4)).collect();
        for look in 1..4 {
            let new = warm.last_regions_of_new_ranges(Duration::ZERO, &all);
            assert_eq!((new.len(), warm.seen.len()), (16, 16 * look));
            assert!(new.iter().all(|region| region.start() / HUGE_PAGE_BYTES % 8 == 3));
        }
    }

    #[test]
    fn a_young_process_is_checked_often() {
        let mut warm = WarmStart::new(Duration::ZERO, 64 * HUGE_PAGE_BYTES);
        warm.last_regions_of_new_ranges(Duration::ZERO, &[]);
        assert_eq!(warm.next_look, SHORTEST_PAUSE);
        let hour = Duration::from_secs(3600);
        warm.last_regions_of_new_ranges(hour, &[]);
        assert_eq!(warm.next_look, hour + LONGEST_PAUSE);
    }
}
