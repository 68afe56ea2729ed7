//! What was decided, and why: counted by kind of reason, and thinned out to what a picture can show.

use hawkeye_policy::ProcessId;
use hawkeye_recording::DecisionRow;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Kinds of reasons that are told apart.
const MOST_KINDS: usize = 64;
/// The latest decisions, that are kept as they are.
const MOST_LATEST: usize = 200;
/// Spans of time that have a mark of each kind.
const MARK_COLUMNS: usize = 80;
/// Rows of a map that have one mark.
const MARK_ROWS: usize = 8;

/// Decisions of one kind: the same event for the same reason, whatever the numbers in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kind {
    /// The event.
    pub event: String,
    /// How many.
    pub count: u64,
    /// The last of them, in words.
    pub last_reason: String,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// When.
    pub at_s: f64,
    /// The process, where it concerns one.
    pub pid: Option<u32>,
    /// The first address of the region, where it concerns one.
    pub address: Option<u64>,
    /// The event.
    pub event: String,
    /// What happened and why.
    pub reason: String,
}

/// Decisions of one event, close to each other in time and addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The first of them.
    #[serde(flatten)]
    pub first: Decision,
    /// Which of the report's processes, where it concerns one: process ids are used again.
    pub process: Option<usize>,
    /// Which row of the map, where it concerns a region of one.
    pub row: Option<usize>,
    /// How many.
    pub count: u64,
}

/// What one mark stands for: a span of time, a process, rows of its map, an event.
type Nearby = (usize, Option<ProcessId>, Option<usize>, Arc<str>);

/// Collects decisions.
#[derive(Debug)]
pub struct Collecting {
    length_s: f64,
    kinds: BTreeMap<(Arc<str>, String), (u64, Arc<str>)>,
    latest: VecDeque<Decision>,
    marks: BTreeMap<Nearby, Mark>,
    total: u64,
}

/// A reason without its numbers.
fn shape(reason: &str) -> String {
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

impl Collecting {
    /// Over so many seconds.
    pub fn over(length_s: f64) -> Self {
        Self {
            length_s: length_s.max(f64::MIN_POSITIVE),
            kinds: BTreeMap::new(),
            latest: VecDeque::new(),
            marks: BTreeMap::new(),
            total: 0,
        }
    }

    /// Adds one. `row`: which row of its process's map it is in, and of how many.
    pub fn add(&mut self, row: &DecisionRow, place: Option<usize>) {
        self.total += 1;
        let key = (row.event.clone(), shape(&row.reason));
        if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&key) {
            let kind = self.kinds.entry(key);
            let (count, last) = kind.or_insert_with(|| (0, row.reason.clone()));
            *count += 1;
            *last = row.reason.clone();
        }
        let process = row.process.as_ref().map(|(process, _)| *process);
        let at_s = row.at.as_secs_f64();
        let decision = Decision {
            at_s,
            pid: process.map(|process| process.pid),
            address: row.region.map(|region| region.start()),
            event: row.event.to_string(),
            reason: row.reason.to_string(),
        };
        let column = (at_s / self.length_s * MARK_COLUMNS as f64) as usize;
        let band = place.map(|row| row / MARK_ROWS);
        let mark = self.marks.entry((column, process, band, row.event.clone()));
        let mark = mark.or_insert_with(|| Mark {
            first: decision.clone(),
            process: None,
            row: place,
            count: 0,
        });
        mark.count += 1;
        if self.latest.len() == MOST_LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(decision);
    }

    /// How many, of which kinds (most frequent first), what to mark, and the latest. `processes` are the report's, in its order.
    pub fn finish(self, processes: &[ProcessId]) -> Decisions {
        let places: BTreeMap<_, _> = processes.iter().zip(0..).collect();
        let kinds = self.kinds.into_iter();
        let mut kinds: Vec<Kind> = kinds
            .map(|((event, _), (count, last))| Kind {
                event: event.to_string(),
                count,
                last_reason: last.to_string(),
            })
            .collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        let marks = self.marks.into_iter();
        let marks = marks.map(|((_, process, ..), mark)| Mark {
            process: process.and_then(|process| places.get(&process).copied()),
            ..mark
        });
        Decisions {
            total: self.total,
            kinds,
            marks: marks.collect(),
            latest: self.latest.into(),
        }
    }
}

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decisions {
    /// All of them.
    pub total: u64,
    /// By kind, most frequent first.
    pub kinds: Vec<Kind>,
    /// For pictures.
    pub marks: Vec<Mark>,
    /// The last ones, oldest first.
    pub latest: Vec<Decision>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_differ_by_their_words() {
        assert_eq!(
            shape("promoted in 0.4 ms: coverage 500.5 of 512"),
            "promoted in # ms: coverage # of #"
        );
        assert_eq!(shape("paused."), "paused.");
    }
}
