//! Page walks.

use super::guest::Host;
use super::lines::{Cause, Line, Lines, Loads};
use super::place::Place;
use super::spec::{Tables, TranslatorSpec};
use super::state::RegionState;
use super::upper::{MAX_LEVELS, UpperEntries};
use std::ops::Range;

/// The walker of a core, its caches and those in which it finds tables.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    levels: usize,
    upper: UpperEntries,
    host: Option<Host>,
    lines: Lines,
}

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
        }
    }

    /// Walks for a page.
    #[inline(always)]
    pub(super) fn walk(&mut self, page: u32, state: RegionState, place: &Place, cause: Cause) {
        let [pdpte, pml4e, pml5e] = place.upper;
        let entries = [page, page >> 9, pdpte, pml4e, pml5e];
        let leaf = state.leaf() as usize;
        let first = self.upper.first_level(&entries, leaf, self.levels);
        let lines = &mut self.lines;
        let Some(host) = &mut self.host else {
            // One place in the program for each level: what happens there is foreseen by level.
            let mut load = Native {
                lines,
                entries: &entries,
                levels: leaf..first,
                cause,
            };
            load.level::<4>();
            load.level::<3>();
            load.level::<2>();
            load.level::<1>();
            load.level::<0>();
            return;
        };
        let mut load = |line: Line| lines.load(line, cause);
        for level in (leaf..first).rev() {
            host.find_table(level, entries[level], &mut load);
            load(Line::of(level as u32, entries[level]));
        }
        host.find_page(page, place, state.host(), &mut load);
    }

    /// The loads of the walks since the last time.
    pub(super) fn finish(&mut self) -> Loads {
        self.lines.finish()
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

/// The loads of a walk without a host.
struct Native<'a> {
    lines: &'a mut Lines,
    entries: &'a [u32; MAX_LEVELS],
    /// Those that are loaded.
    levels: Range<usize>,
    cause: Cause,
}

impl Native<'_> {
    #[inline(always)]
    fn level<const LEVEL: usize>(&mut self) {
        if self.levels.contains(&LEVEL) {
            let line = Line::of(LEVEL as u32, self.entries[LEVEL]);
            self.lines.load(line, self.cause);
        }
    }
}
