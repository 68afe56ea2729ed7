//! Page walks.

use super::guest::Host;
use super::lines::{Line, Lines};
use super::place::Place;
use super::spec::{Tables, TranslatorSpec};
use super::state::RegionState;
use super::upper::UpperEntries;

/// For what a walk is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Load = 0,
    Store = 1,
    Prefetch = 2,
}

/// Loads of walks that were made, by their cause and by where the lines were.
pub(super) type Loads = [[u64; 3]; 3];

/// The walker of a core, its caches and those in which it finds tables.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    levels: usize,
    upper: UpperEntries,
    host: Option<Host>,
    lines: Lines,
    /// Loads that are to be made.
    pending: Vec<Pending>,
}

/// A line, the level it is of, and the cause of its walk.
#[derive(Clone, Copy, Debug)]
struct Pending(Line, u8, u8);

/// Levels of which there are many lines: page tables and page directories.
const LOWER: u8 = 1;
/// Loads that are made at a time, at least.
const BATCH: usize = 1024;

impl Walker {
    pub(super) fn new(spec: &TranslatorSpec) -> Self {
        let (levels, host) = match spec.tables {
            Tables::Native(levels) => (levels, None),
            Tables::Nested {
                guest,
                host,
                tables_backed_by,
            } => {
                let host = Host::new(spec.processor.nested, host, tables_backed_by);
                (guest, Some(host))
            }
        };
        Self {
            levels: levels as usize,
            upper: UpperEntries::new(spec.processor.walk_caches),
            host,
            lines: Lines::new(spec),
            pending: Vec::with_capacity(2 * BATCH),
        }
    }

    /// Walks for a page; its loads are among those counted when they have been made.
    #[inline]
    pub(super) fn walk(
        &mut self,
        page: u32,
        state: RegionState,
        place: &Place,
        cause: Cause,
        made: &mut Loads,
    ) {
        let [pdpte, pml4e, pml5e] = place.upper;
        let entries = [page, page >> 9, pdpte, pml4e, pml5e];
        let leaf = state.leaf() as usize;
        let first = self.upper.first_level(&entries, leaf, self.levels);
        let pending = &mut self.pending;
        let mut load = |level: usize, line: Line| {
            pending.push(Pending(line, level as u8, cause as u8));
        };
        match &mut self.host {
            None => {
                for level in (leaf..first).rev() {
                    load(level, Line::of(level as u32, entries[level]));
                }
            }
            Some(host) => {
                for level in (leaf..first).rev() {
                    host.find_table(level, entries[level], &mut load);
                    load(level, Line::of(level as u32, entries[level]));
                }
                host.find_page(page, place, state.host(), &mut load);
            }
        }
        if self.pending.len() >= BATCH {
            self.load_pending(made);
        }
    }

    /// Makes the loads of the walks so far.
    pub(super) fn load_pending(&mut self, made: &mut Loads) {
        for Pending(line, level, cause) in &self.pending {
            let found = self.lines.load(*line, *level > LOWER);
            made[usize::from(*cause)][found] += 1;
        }
        self.pending.clear();
    }

    /// Cycles of so many loads, by where the lines were.
    pub(super) fn cycles(&self, loads: &[u64; 3]) -> u64 {
        self.lines.cycles(loads)
    }

    /// Forgets upper entries.
    pub(super) fn clear(&mut self) {
        self.upper.clear();
    }

    /// Forgets upper entries, and what it knows of the host.
    pub(super) fn clear_host(&mut self) {
        self.upper.clear();
        if let Some(host) = &mut self.host {
            host.clear();
        }
    }
}
