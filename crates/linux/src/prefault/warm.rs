//! Which mappings of a process are to be filled as soon as they are there, because somebody asked for it.

use hawkeye_policy::RegionAddr;
use std::ops::Range;
use std::time::Duration;

/// Mappings that are smaller than this part of what was asked for were not meant: an interpreter's code, say, beside
/// the heap.
const LEAST_PART: u64 = 4;
/// Its mappings are looked at this often at the start of a process ...
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// ... and this often in the end.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// In between, after so large a part of the time that it has been watched: it costs 1 % of a core.
const PAUSE_SHARE: u32 = 16;

/// A program that touches all of its memory at its start has done so after this time.
const PATIENCE: Duration = Duration::from_secs(600);

/// What has been seen of one process.
#[derive(Debug)]
pub(super) struct WarmStart {
    began: Duration,
    next_look: Duration,
    least_bytes: u64,
    /// Mappings that are dealt with, in bytes.
    seen: Vec<Range<u64>>,
}

impl WarmStart {
    /// A process that is watched from now on; so many bytes are to be filled.
    pub(super) fn new(now: Duration, bytes: u64) -> Self {
        Self {
            began: now,
            next_look: now,
            least_bytes: bytes / LEAST_PART,
            seen: Vec::new(),
        }
    }

    /// Whether what has not been mapped by now is not waited for any longer.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now >= self.began + PATIENCE
    }

    /// When to look at its mappings again.
    pub(super) fn next_look(&self) -> Duration {
        self.next_look
    }

    /// Its mappings that may be huge, as they are now: the last whole region of each large piece that was not there
    /// before, the largest first.
    pub(super) fn look(&mut self, now: Duration, mapped: &[Range<u64>]) -> Vec<RegionAddr> {
        let age = now.saturating_sub(self.began);
        self.next_look = now + (age / PAUSE_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let pieces = mapped.iter().flat_map(|range| self.unseen(range));
        let mut new: Vec<Range<u64>> = pieces.collect();
        new.retain(|range| range.end - range.start >= self.least_bytes);
        new.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
        self.seen.extend(new.iter().cloned());
        let last = |range: &Range<u64>| RegionAddr::containing(range.end - 1);
        new.iter().map(last).collect()
    }

    /// Nothing could be filled around this region yet: its mapping counts as new at the next look. A mapping in which
    /// its program has written nothing at all can't be collapsed.
    pub(super) fn not_yet(&mut self, region: RegionAddr) {
        self.seen.retain(|range| !range.contains(&region.start()));
    }

    /// The pieces of a mapping that were not seen before: what it grew by.
    fn unseen(&self, mapping: &Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = vec![mapping.clone()];
        for seen in &self.seen {
            let cut = |piece: Range<u64>| {
                let below = piece.start..piece.end.min(seen.start);
                let above = piece.start.max(seen.end)..piece.end;
                [below, above].into_iter().filter(|p| p.start < p.end)
            };
            pieces = pieces.into_iter().flat_map(cut).collect();
        }
        pieces
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
    fn each_large_mapping_is_seen_once_the_largest_first() {
        let mut warm = WarmStart::new(Duration::ZERO, 64 * HUGE_PAGE_BYTES);
        let all = [regions(100, 120), regions(200, 210), regions(300, 340)];
        assert_eq!(warm.look(Duration::ZERO, &all), [last(339), last(119)]);
        assert_eq!(warm.look(Duration::ZERO, &all), []);
    }

    #[test]
    fn what_it_grew_by_is_new_on_either_side() {
        let mut warm = WarmStart::new(Duration::ZERO, 64 * HUGE_PAGE_BYTES);
        warm.look(Duration::ZERO, &[regions(100, 120)]);
        let grown = [regions(50, 150)];
        assert_eq!(warm.look(Duration::ZERO, &grown), [last(99), last(149)]);
        assert_eq!(warm.look(Duration::ZERO, &[regions(45, 155)]), []);
    }

    #[test]
    fn what_was_refused_is_tried_again() {
        let mut warm = WarmStart::new(Duration::ZERO, 64 * HUGE_PAGE_BYTES);
        let all = [regions(100, 120), regions(200, 220)];
        warm.look(Duration::ZERO, &all);
        warm.not_yet(last(119));
        assert_eq!(warm.look(Duration::ZERO, &all), [last(119)]);
    }

    #[test]
    fn who_is_young_is_looked_at_often() {
        let mut warm = WarmStart::new(Duration::ZERO, 64 * HUGE_PAGE_BYTES);
        warm.look(Duration::ZERO, &[]);
        assert_eq!(warm.next_look(), SHORTEST_PAUSE);
        let hour = Duration::from_secs(3600);
        warm.look(hour, &[]);
        assert_eq!(warm.next_look(), hour + LONGEST_PAUSE);
    }
}
