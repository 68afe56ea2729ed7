//! The journal: what was done, why, at what cost and with what result. What users see of the past
//! is a view of it. What they see of the present is read from the parts of the manager.

use hawkeye_policy::event::serialize_as_seconds;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{Errno, Event, ProcessId, Reason, SampledMemory};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalEntry {
    /// Time since management began.
    #[serde(rename = "at_s", serialize_with = "serialize_as_seconds")]
    pub at: Duration,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Resident and huge memory of all managed processes, at one time. Shared memory that is managed
/// counts once, by the last samples, whichever processes map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FootprintAtTime {
    /// Seconds since management began.
    pub at_s: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Memory under huge pages, in bytes.
    pub huge_bytes: u64,
}

/// Sums over all events, for all processes that were ever managed. A sum that an older daemon does
/// not have is read as 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalTotals {
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory recovered, in bytes.
    pub recovered_bytes: u64,
    /// Huge pages searched for zero pages.
    pub scanned: u64,
    /// Candidates passed over because their process was freeing them.
    pub freed: u64,
    /// Candidates passed over because other processes share their pages.
    pub shared: u64,
    /// Samples read, one per process and sampling window.
    pub samples: u64,
    /// Refusals by error name.
    pub errors: BTreeMap<Errno, u64>,
}

/// Sums over the events of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessTotals {
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory recovered, in bytes.
    pub recovered_bytes: u64,
    /// Promotions that the kernel refused.
    pub refused: u64,
    /// Why its last region was promoted or split.
    pub last_reason: Option<Reason>,
}

/// The journal: bounded, so that a manager can run for months.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: VecDeque<JournalEntry>,
    /// Number of entries ever written.
    pub written_entries: u64,
    /// Footprints over time, oldest first.
    pub footprints: Vec<FootprintAtTime>,
    /// Only every n-th footprint is kept; this is n.
    thinning: u64,
    footprints_seen: u64,
    /// Time of the last footprint that counted, in seconds.
    footprint_at_s: Option<f64>,
    totals: JournalTotals,
    by_process: HashMap<ProcessId, ProcessTotals>,
    last_trouble: Option<(Duration, String)>,
    /// When the first region was promoted, on the machine's clock.
    pub first_promotion: Option<Duration>,
    /// The latest footprint, whether it was kept or not.
    pub latest_footprint: FootprintAtTime,
    peaks: ResidentPeaks,
}

/// The largest resident memory, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ResidentPeaks {
    /// At times when every process had been sampled.
    sampled: u64,
    /// At other times, with shared memory as often as it is mapped.
    unsampled: u64,
    /// The most that was counted again in such a sum.
    counted_again: u64,
}

/// A repeated error is written down once in this time.
const TROUBLE_AGAIN: Duration = Duration::from_secs(60);
/// Events kept in memory.
const MAX_ENTRIES: usize = 65_536;
/// Footprints kept. When full, every second one is dropped and half as many are taken from then on.
const MAX_FOOTPRINTS: usize = 1024;

impl Journal {
    /// Counts an event and writes it down. A repeated error is written down once a minute.
    pub fn apply_event(&mut self, at: Duration, event: Event) {
        if let Event::Trouble { message } = &event {
            let last = self.last_trouble.as_ref();
            if last.is_some_and(|(last, then)| then == message && at < *last + TROUBLE_AGAIN) {
                return;
            }
            self.last_trouble = Some((at, message.clone()));
        }
        match &event {
            Event::Promoted { process, reason, .. } => {
                self.totals.promoted += 1;
                self.first_promotion.get_or_insert(at);
                let of_process = self.by_process.entry(*process).or_default();
                of_process.promoted += 1;
                of_process.last_reason = Some(reason.clone());
            }
            Event::Refused { process, errno, .. } => {
                *self.totals.errors.entry(*errno).or_default() += 1;
                self.by_process.entry(*process).or_default().refused += 1;
            }
            Event::CallRefused { errno } => *self.totals.errors.entry(*errno).or_default() += 1,
            Event::Freed { .. } => self.totals.freed += 1,
            Event::Shared { .. } => self.totals.shared += 1,
            Event::Recovered { process, reason, bytes, .. } => {
                self.totals.split += 1;
                self.totals.recovered_bytes += bytes;
                let of_process = self.by_process.entry(*process).or_default();
                of_process.split += 1;
                of_process.recovered_bytes += bytes;
                of_process.last_reason = Some(reason.clone());
            }
            Event::Sampled { .. } => self.totals.samples += 1,
            Event::Searched { .. } => self.totals.scanned += 1,
            Event::PromotionTried { .. }
            | Event::FileHoles { .. }
            | Event::NotSplit { .. }
            | Event::Measured { .. }
            | Event::Stretched { .. }
            | Event::FaultSizes { .. }
            | Event::Held { .. }
            | Event::NotAnswering { .. }
            | Event::Answering { .. }
            | Event::Paused
            | Event::Resumed
            | Event::Reloaded { .. }
            | Event::Trouble { .. } => {}
        }
        if !event.is_kept_in_journal() {
            return;
        }
        tracing::debug!(at_s = at.as_secs_f64(), ?event);
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(JournalEntry { at, event });
        self.written_entries += 1;
    }

    /// Forgets the sums of all processes for which `there` is false; the totals stay.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.by_process.retain(|process, _| there(*process));
    }

    /// Adds a footprint: the sum over all processes, less the shared memory that the sum contains
    /// again. `is_sampled`: all processes have been sampled, so that this is known. Of footprints
    /// within a second only the first is kept, so that the row is even.
    pub fn add_footprint(
        &mut self,
        sum: FootprintAtTime,
        counted_again: SampledMemory,
        is_sampled: bool,
    ) {
        const APART_S: f64 = 0.9;
        let rss_bytes = sum.rss_bytes.saturating_sub(counted_again.resident_bytes);
        let point = FootprintAtTime {
            rss_bytes,
            // What was promoted since the last sample is counted again as huge.
            huge_bytes: sum.huge_bytes.saturating_sub(counted_again.huge_bytes).min(rss_bytes),
            ..sum
        };
        self.latest_footprint = point;
        let peaks = &mut self.peaks;
        peaks.counted_again = peaks.counted_again.max(counted_again.resident_bytes);
        if is_sampled {
            peaks.sampled = peaks.sampled.max(point.rss_bytes);
        } else {
            peaks.unsampled = peaks.unsampled.max(sum.rss_bytes);
        }
        if self.footprint_at_s.is_some_and(|last| point.at_s < last + APART_S) {
            return;
        }
        self.footprint_at_s = Some(point.at_s);
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

    /// The largest resident memory so far, in bytes. Before the processes were sampled, it was
    /// not known how much of it was counted again. So the most that was ever seen is taken off.
    pub fn peak_rss_bytes(&self) -> u64 {
        let ResidentPeaks { sampled, unsampled, counted_again } = self.peaks;
        sampled.max(unsampled.saturating_sub(counted_again))
    }

    /// Events, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &JournalEntry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// The entries after the first `seen` ever written, oldest first, as far as they are still
    /// kept.
    pub fn entries_after_count(&self, seen: u64) -> impl Iterator<Item = &JournalEntry> {
        let new = usize_from_u64(self.written_entries.saturating_sub(seen));
        self.entries.iter().skip(self.entries.len().saturating_sub(new))
    }

    /// Promotion and recovery rates over the last [`PromotionAndRecoveryRates::OVER`], in total and
    /// by process.
    pub fn recent_rates(
        &self,
        now: Duration,
    ) -> (PromotionAndRecoveryRates, HashMap<ProcessId, PromotionAndRecoveryRates>) {
        let then = now.saturating_sub(PromotionAndRecoveryRates::OVER);
        let mut all = PromotionAndRecoveryRates::default();
        let mut each: HashMap<ProcessId, PromotionAndRecoveryRates> = HashMap::new();
        let newest_first = self.entries.iter().rev();
        for JournalEntry { event, .. } in newest_first.take_while(|entry| entry.at >= then) {
            all.count_event(event);
            if let Event::Promoted { process, .. } | Event::Recovered { process, .. } = event {
                each.entry(*process).or_default().count_event(event);
            }
        }
        let seconds = (now - then).as_secs_f64().max(1.0);
        for rates in std::iter::once(&mut all).chain(each.values_mut()) {
            rates.divide_by_seconds(seconds);
        }
        (all, each)
    }

    /// Sums over one process that still exists; `None` where they are all 0.
    pub fn process_totals(&self, process: ProcessId) -> Option<&ProcessTotals> {
        self.by_process.get(&process)
    }

    /// Sums over all events.
    pub fn totals(&self) -> &JournalTotals {
        &self.totals
    }
}

/// Rates over the last [`PromotionAndRecoveryRates::OVER`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromotionAndRecoveryRates {
    /// Regions promoted per second.
    pub promoted_per_s: f64,
    /// Huge pages split per second.
    pub split_per_s: f64,
    /// Memory that recovery gave back, in bytes per second.
    pub recovered_bytes_per_s: f64,
}

impl PromotionAndRecoveryRates {
    /// The time over which events are counted.
    pub const OVER: Duration = Duration::from_secs(10);

    fn count_event(&mut self, event: &Event) {
        match event {
            Event::Promoted { .. } => self.promoted_per_s += 1.0,
            Event::Recovered { bytes, .. } => {
                self.split_per_s += 1.0;
                self.recovered_bytes_per_s += *bytes as f64;
            }
            _ => {}
        }
    }

    fn divide_by_seconds(&mut self, seconds: f64) {
        self.promoted_per_s /= seconds;
        self.split_per_s /= seconds;
        self.recovered_bytes_per_s /= seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::{
        process_with_pid, promoted_event, recovered_event, region_at_index,
    };

    #[test]
    fn footprints_stay_bounded_and_cover_the_whole_time() {
        let mut journal = Journal::default();
        for second in 0..100_000u64 {
            let sum = FootprintAtTime { at_s: second as f64, ..Default::default() };
            journal.add_footprint(sum, SampledMemory::default(), true);
        }
        let kept = &journal.footprints;
        assert!(kept.len() <= MAX_FOOTPRINTS);
        assert_eq!(kept[0].at_s, 0.0);
        assert!(kept.last().is_some_and(|p| p.at_s > 99_000.0));
        assert!(kept.windows(2).all(|pair| pair[0].at_s < pair[1].at_s));
    }

    #[test]
    fn shared_memory_counts_once_in_footprints_and_in_their_peak() {
        let mut journal = Journal::default();
        let mut add = |at_s, rss_bytes, again_bytes, is_sampled| {
            let sum = FootprintAtTime { at_s, rss_bytes, huge_bytes: 0 };
            let again = SampledMemory { resident_bytes: again_bytes, huge_bytes: 0 };
            journal.add_footprint(sum, again, is_sampled);
            (journal.latest_footprint.rss_bytes, journal.peak_rss_bytes())
        };
        assert_eq!(add(0.0, 200, 0, false), (200, 200));
        // A sample shows that 120 of it were counted again.
        assert_eq!(add(1.0, 200, 120, true), (80, 80));
        assert_eq!(add(2.0, 190, 100, true), (90, 90));
        assert_eq!(add(3.0, 100, 0, true), (100, 100));
        // A process that joins has not been sampled.
        assert_eq!(add(4.0, 230, 0, false), (230, 110));
    }

    #[test]
    fn no_more_is_huge_than_resident() {
        let mut journal = Journal::default();
        // Two processes map 64 bytes that were base pages at their last samples.
        let sum = FootprintAtTime { at_s: 0.0, rss_bytes: 128, huge_bytes: 128 };
        let again = SampledMemory { resident_bytes: 64, huge_bytes: 0 };
        journal.add_footprint(sum, again, true);
        let FootprintAtTime { rss_bytes, huge_bytes, .. } = journal.latest_footprint;
        assert_eq!((rss_bytes, huge_bytes), (64, 64));
    }

    #[test]
    fn a_full_journal_drops_its_oldest_events() {
        let mut journal = Journal::default();
        for n in 0..MAX_ENTRIES as u64 + 10 {
            journal.apply_event(Duration::from_secs(n), Event::Paused);
        }
        assert_eq!(journal.entries().count(), MAX_ENTRIES);
        let oldest = journal.entries().next().map(|entry| entry.at);
        assert_eq!(oldest, Some(Duration::from_secs(10)));
        assert_eq!(journal.entries_after_count(journal.written_entries).count(), 0);
        let last: Vec<_> =
            journal.entries_after_count(journal.written_entries - 2).map(|e| e.at).collect();
        let end = MAX_ENTRIES as u64 + 10;
        assert_eq!(last, [end - 2, end - 1].map(Duration::from_secs));
        assert_eq!(
            journal.entries_after_count(3).count(),
            MAX_ENTRIES,
            "dropped entries are left out"
        );
    }

    #[test]
    fn totals_are_kept_per_process_until_it_ends() {
        let mut journal = Journal::default();
        for (second, pid) in [(5, 1), (6, 2), (7, 1)] {
            let at = Duration::from_secs(second);
            journal.apply_event(at, promoted_event(process_with_pid(pid), region_at_index(0), 0));
        }
        assert_eq!(journal.first_promotion, Some(Duration::from_secs(5)));
        let one = journal.process_totals(process_with_pid(1)).cloned().unwrap_or_default();
        assert_eq!(one.promoted, 2);
        assert_eq!(one.last_reason, Some(Reason::new("a test")));
        journal.retain_processes(|it| it == process_with_pid(2));
        assert_eq!(journal.process_totals(process_with_pid(1)), None);
        assert_eq!(journal.totals().promoted, 3);
    }

    #[test]
    fn a_sum_that_an_older_daemon_lacks_is_read_as_zero() -> Result<(), serde_json::Error> {
        let totals: JournalTotals = serde_json::from_str(r#"{"promoted":3}"#)?;
        assert_eq!(totals, JournalTotals { promoted: 3, ..JournalTotals::default() });
        Ok(())
    }

    #[test]
    fn entries_are_json_with_units() -> Result<(), serde_json::Error> {
        let entry = JournalEntry {
            at: Duration::from_millis(1500),
            event: Event::Reloaded { refused: None },
        };
        let json = serde_json::to_string(&entry)?;
        assert_eq!(json, r#"{"at_s":1.5,"event":"reloaded","refused":null}"#);
        assert_eq!(entry.event.kind(), "reloaded");
        Ok(())
    }

    #[test]
    fn the_last_ten_seconds_count() {
        let at = |second, event| JournalEntry { at: Duration::from_secs(second), event };
        let promoted =
            |second, pid| at(second, promoted_event(process_with_pid(pid), region_at_index(0), 0));
        let recovered = at(99, recovered_event(process_with_pid(2), region_at_index(0), 1000));
        let rates = |entries: Vec<JournalEntry>, second| {
            let journal = Journal { entries: entries.into(), ..Journal::default() };
            journal.recent_rates(Duration::from_secs(second))
        };
        let entries = vec![promoted(89, 1), promoted(90, 1), promoted(95, 2), recovered];
        let (all, each) = rates(entries, 100);
        assert_eq!((all.promoted_per_s, all.split_per_s), (0.2, 0.1));
        assert_eq!(all.recovered_bytes_per_s, 100.0);
        assert_eq!(each[&process_with_pid(1)].promoted_per_s, 0.1);
        // Soon after the start, less time has passed.
        let (all, _) = rates(vec![promoted(1, 1)], 2);
        assert_eq!(all.promoted_per_s, 0.5);
    }
}
