//! Decisions and their reasons: counted by kind of reason, and thinned out for pictures.

use hawkeye_policy::ProcessId;
use hawkeye_recording::DecisionRow;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const MOST_KINDS: usize = 64;
/// The latest decisions to keep unchanged: their number at most.
const MOST_LATEST: usize = 200;
/// Time spans that have a mark of each kind.
const MARK_COLUMNS: usize = 80;
/// Rows of a map that share one mark.
const MARK_ROWS: usize = 8;
/// The earliest marks are kept: their number at most.
const MOST_MARKS: usize = 1 << 14;

/// Decisions of one kind: the same event for the same reason, ignoring numbers in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionGroup {
    pub event: String,
    pub count: u64,
    pub last_reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordedDecision {
    pub at_s: f64,
    pub pid: Option<u32>,
    /// The first address of the region that it concerns, if any.
    pub address: Option<u64>,
    pub event: String,
    /// The event and its reason, in words.
    pub reason: String,
}

impl From<&DecisionRow> for RecordedDecision {
    fn from(row: &DecisionRow) -> Self {
        Self {
            at_s: row.at.as_secs_f64(),
            pid: row.process.as_ref().map(|(process, _)| process.pid),
            address: row.region.map(|region| region.start()),
            event: row.event.to_string(),
            reason: row.reason.to_string(),
        }
    }
}

/// Decisions with the same event, close in time and address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionMark {
    #[serde(flatten)]
    pub first: RecordedDecision,
    /// Index into the report's processes, if it concerns one. The kernel reuses process ids.
    pub process: Option<usize>,
    /// Row of the map, if it concerns a region of a process with a map.
    pub row: Option<usize>,
    pub count: u64,
}

/// Key of a mark: time span, process, rows of its map, event.
type DecisionMarkKey = (usize, Option<ProcessId>, Option<usize>, Arc<str>);

#[derive(Debug, Default)]
pub struct DecisionCollector {
    length_s: f64,
    kinds: BTreeMap<(Arc<str>, String), DecisionGroup>,
    latest: VecDeque<RecordedDecision>,
    marks: BTreeMap<DecisionMarkKey, DecisionMark>,
    total: u64,
}

fn mask_numbers(reason: &str) -> String {
    let mut shape = String::new();
    for c in reason.chars() {
        let digit = c.is_ascii_digit() || c == '.' && shape.ends_with('#');
        if !digit {
            shape.push(c);
        } else if !shape.ends_with('#') {
            shape.push('#');
        }
    }
    shape
}

impl DecisionCollector {
    pub fn for_recording_length(length_s: f64) -> Self {
        Self { length_s: length_s.max(f64::MIN_POSITIVE), ..Self::default() }
    }

    /// Counts a decision, and keeps it among the latest.
    pub fn add_decision(&mut self, row: &DecisionRow) {
        self.total += 1;
        let key = (row.event.clone(), mask_numbers(&row.reason));
        if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&key) {
            let event = row.event.to_string();
            let kind = self
                .kinds
                .entry(key)
                .or_insert(DecisionGroup { event, ..DecisionGroup::default() });
            kind.count += 1;
            kind.last_reason = row.reason.to_string();
        }
        if self.latest.len() == MOST_LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(RecordedDecision::from(row));
    }

    /// Adds a decision to the marks. `place` is its row in the map of its process, if it has one.
    pub fn add_mark(&mut self, row: &DecisionRow, place: Option<usize>) {
        let process = row.process.as_ref().map(|(process, _)| *process);
        let column = (row.at.as_secs_f64() / self.length_s * MARK_COLUMNS as f64) as usize;
        let band = place.map(|row| row / MARK_ROWS);
        let key = (column, process, band, row.event.clone());
        if self.marks.len() < MOST_MARKS || self.marks.contains_key(&key) {
            let mark = self.marks.entry(key).or_insert_with(|| DecisionMark {
                first: RecordedDecision::from(row),
                process: None,
                row: place,
                count: 0,
            });
            mark.count += 1;
        }
    }

    /// `processes` are those of the report, in its order.
    pub fn finish(self, processes: &[ProcessId]) -> Decisions {
        let places: BTreeMap<_, _> = processes.iter().zip(0..).collect();
        let mut kinds: Vec<DecisionGroup> = self.kinds.into_values().collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        let marks = self.marks.into_iter().map(|((_, process, ..), mark)| DecisionMark {
            process: process.and_then(|process| places.get(&process).copied()),
            ..mark
        });
        Decisions { total: self.total, kinds, marks: marks.collect(), latest: self.latest.into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decisions {
    pub total: u64,
    /// Most frequent first.
    pub kinds: Vec<DecisionGroup>,
    /// Of processes with a map, and of the machine; of every process if none has a map.
    pub marks: Vec<DecisionMark>,
    /// The latest ones, oldest first.
    pub latest: Vec<RecordedDecision>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_differ_by_their_words() {
        let shaped = mask_numbers("promoted in 0.4 ms: coverage 500.5 of 512");
        assert_eq!(shaped, "promoted in # ms: coverage # of #");
        assert_eq!(mask_numbers("paused."), "paused.");
    }
}
