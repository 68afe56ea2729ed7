//! What was done, why, what it cost and what came of it. Everything a person sees is a view of this.

use hawkeye_policy::{CoverageSource, Hold, ProcessId, Reason, RegionAddr, StretchedBy};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A process was sampled.
    Sampled {
        /// Which.
        process: ProcessId,
        /// Where access figures come from.
        source: CoverageSource,
        /// Regions with anything in them.
        regions: usize,
        /// Of these, huge.
        huge: usize,
        /// Base pages accessed.
        accessed_pages: u64,
    },
    /// Windows are further apart than asked for.
    Stretched {
        /// Why.
        because: StretchedBy,
    },
    /// A region became huge.
    Promoted {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// Why this one.
        reason: Reason,
        /// How long the call took.
        took: Duration,
    },
    /// The kernel refused a promotion; it will be tried again after a cool-down.
    Refused {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// The error's name.
        errno: &'static str,
    },
    /// A candidate was passed over because its owner has freed some of it.
    Freed {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
    },
    /// A huge page was split and its zero pages given back.
    Recovered {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// Why.
        reason: Reason,
        /// Memory given back.
        bytes: u64,
        /// How long the calls took together.
        took: Duration,
    },
    /// Promotion was held back, or goes on (`None`).
    Held {
        /// Why.
        hold: Option<Hold>,
    },
    /// Something went wrong that is nobody's region.
    Trouble {
        /// What.
        message: String,
    },
}

/// An event and when it happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Since management began.
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// Resident and huge memory of everything managed, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FootprintPoint {
    /// Seconds since management began.
    pub at_s: f64,
    /// Resident, in bytes.
    pub rss_bytes: u64,
    /// Under huge pages, in bytes.
    pub huge_bytes: u64,
}

/// Sums over everything that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory recovered, in bytes.
    pub recovered_bytes: u64,
    /// Huge pages searched for zero pages.
    pub scanned: u64,
    /// Candidates passed over because their owner was freeing them.
    pub freed: u64,
    /// Sampling windows read.
    pub samples: u64,
    /// Refusals by error name.
    pub errors: BTreeMap<&'static str, u64>,
}

/// The journal: bounded, so that a manager can run for months.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
    footprints: Vec<FootprintPoint>,
    /// Every how many-th footprint is kept.
    thinning: u64,
    footprints_seen: u64,
    totals: Totals,
    last_trouble: Option<(Duration, String)>,
    latest: FootprintPoint,
    peak_rss_bytes: u64,
}

/// The same trouble is written down once in this time.
const TROUBLE_AGAIN: Duration = Duration::from_secs(60);
/// Events kept in memory.
const MAX_ENTRIES: usize = 65_536;
/// Footprints kept; when full, every second one is dropped and half as many are taken from then on.
const MAX_FOOTPRINTS: usize = 1024;

impl Journal {
    /// Writes an event down.
    pub fn note(&mut self, at: Duration, event: Event) {
        tracing::debug!(at_s = at.as_secs_f64(), ?event);
        match &event {
            Event::Promoted { .. } => self.totals.promoted += 1,
            Event::Refused { errno, .. } => *self.totals.errors.entry(errno).or_default() += 1,
            Event::Freed { .. } => self.totals.freed += 1,
            Event::Recovered { bytes, .. } => {
                self.totals.split += 1;
                self.totals.recovered_bytes += bytes;
            }
            Event::Sampled { .. } => self.totals.samples += 1,
            Event::Stretched { .. } | Event::Held { .. } | Event::Trouble { .. } => {}
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { at, event });
    }

    /// Writes down that something went wrong; not again while it is the same thing within a minute.
    pub fn note_trouble(&mut self, at: Duration, message: &str) {
        let recent = self
            .last_trouble
            .as_ref()
            .is_some_and(|(last, then)| then == message && at < *last + TROUBLE_AGAIN);
        if !recent {
            self.last_trouble = Some((at, message.to_owned()));
            let message = message.to_owned();
            self.note(at, Event::Trouble { message });
        }
    }

    /// One more huge page was searched for zero pages.
    pub fn note_scan(&mut self) {
        self.totals.scanned += 1;
    }

    /// An error that is counted but concerns no promotion.
    pub fn note_error(&mut self, errno: &'static str) {
        *self.totals.errors.entry(errno).or_default() += 1;
    }

    /// Writes a footprint down.
    pub fn note_footprint(&mut self, point: FootprintPoint) {
        self.latest = point;
        self.peak_rss_bytes = self.peak_rss_bytes.max(point.rss_bytes);
        if self.footprints_seen % self.thinning.max(1) == 0 {
            if self.footprints.len() == MAX_FOOTPRINTS {
                let mut keep = false;
                self.footprints.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.thinning = self.thinning.max(1) * 2;
            }
            self.footprints.push(point);
        }
        self.footprints_seen += 1;
    }

    /// Events, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Footprints over time, oldest first.
    pub fn footprints(&self) -> &[FootprintPoint] {
        &self.footprints
    }

    /// The last footprint seen.
    pub fn latest(&self) -> FootprintPoint {
        self.latest
    }

    /// The largest resident memory seen, in bytes.
    pub fn peak_rss_bytes(&self) -> u64 {
        self.peak_rss_bytes
    }

    /// Sums.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprints_stay_bounded_and_cover_the_whole_time() {
        let mut journal = Journal::default();
        for second in 0..100_000u64 {
            journal.note_footprint(FootprintPoint {
                at_s: second as f64,
                ..Default::default()
            });
        }
        let kept = journal.footprints();
        assert!(kept.len() <= MAX_FOOTPRINTS);
        assert_eq!(kept[0].at_s, 0.0);
        assert!(kept.last().is_some_and(|p| p.at_s > 99_000.0));
        assert!(kept.windows(2).all(|pair| pair[0].at_s < pair[1].at_s));
    }

    #[test]
    fn the_oldest_events_make_room() {
        let mut journal = Journal::default();
        for n in 0..MAX_ENTRIES as u64 + 10 {
            journal.note(
                Duration::from_secs(n),
                Event::Trouble {
                    message: String::new(),
                },
            );
        }
        assert_eq!(journal.entries().count(), MAX_ENTRIES);
        assert_eq!(
            journal.entries().next().map(|e| e.at),
            Some(Duration::from_secs(10))
        );
    }
}
