//! Recent rates of promotion and recovery.

use super::JournalEntry;
use hawkeye_policy::{Event, ProcessId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// Rates over the last [`RecentRates::OVER`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentRates {
    /// Regions promoted per second.
    pub promoted_per_s: f64,
    /// Huge pages split per second.
    pub split_per_s: f64,
    /// Memory that recovery gave back, in bytes per second.
    pub recovered_bytes_per_s: f64,
}

impl RecentRates {
    /// The time over which events are counted.
    pub const OVER: Duration = Duration::from_secs(10);

    fn count(&mut self, event: &Event) {
        match event {
            Event::Promoted { .. } => self.promoted_per_s += 1.0,
            Event::Recovered { bytes, .. } => {
                self.split_per_s += 1.0;
                self.recovered_bytes_per_s += *bytes as f64;
            }
            _ => {}
        }
    }

    fn divide(&mut self, seconds: f64) {
        self.promoted_per_s /= seconds;
        self.split_per_s /= seconds;
        self.recovered_bytes_per_s /= seconds;
    }
}

/// Total rates and rates by process, from entries that come newest first.
pub(super) fn rates<'a>(
    newest_first: impl Iterator<Item = &'a JournalEntry>,
    now: Duration,
) -> (RecentRates, HashMap<ProcessId, RecentRates>) {
    let then = now.saturating_sub(RecentRates::OVER);
    let mut all = RecentRates::default();
    let mut each: HashMap<ProcessId, RecentRates> = HashMap::new();
    for JournalEntry { event, .. } in newest_first.take_while(|entry| entry.at >= then) {
        all.count(event);
        if let Event::Promoted { process, .. } | Event::Recovered { process, .. } = event {
            each.entry(*process).or_default().count(event);
        }
    }
    let seconds = (now - then).as_secs_f64().max(1.0);
    all.divide(seconds);
    each.values_mut().for_each(|pace| pace.divide(seconds));
    (all, each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::events::{self, process, region, split};

    #[test]
    fn the_last_ten_seconds_count() {
        let at = |second, event| JournalEntry {
            at: Duration::from_secs(second),
            event,
        };
        let promoted = |second, pid| at(second, events::promoted(process(pid), region(0), 0));
        let recovered = at(99, split(process(2), region(0), 1000));
        let entries = [promoted(89, 1), promoted(90, 1), promoted(95, 2), recovered];
        let (all, each) = rates(entries.iter().rev(), Duration::from_secs(100));
        assert_eq!((all.promoted_per_s, all.split_per_s), (0.2, 0.1));
        assert_eq!(all.recovered_bytes_per_s, 100.0);
        assert_eq!(each[&process(1)].promoted_per_s, 0.1);
        // Soon after the start, less time has passed.
        let (all, _) = rates([promoted(1, 1)].iter(), Duration::from_secs(2));
        assert_eq!(all.promoted_per_s, 0.5);
    }
}
