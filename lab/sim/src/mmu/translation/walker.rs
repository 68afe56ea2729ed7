//! Page walks.

use super::dense_page_numbers::{ChunkUpperEntries, chunk_of_page};
use super::host_walker::HostWalker;
use super::mappings::Mappings;
use super::missed_pages::{
    MAX_LEVELS, MissedPage, MixedWalks, UniformKind, UniformWalks, WalkKind,
};
use super::sizes::LeafSize;
use super::table_caches::{TableCacheLine, TableCaches, WalkLoadCounts, WalkLoader};
use super::translator_spec::{PageTableSetup, TranslatorSpec};
use super::upper_entry_caches::{UpperEntryCaches, WalkStartLevels};

/// The walker of a core: its upper-entry caches, and the caches that hold tables.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    levels: usize,
    upper: UpperEntryCaches,
    host: Option<HostWalker>,
    lines: TableCaches,
    asked: WalkStartLevels,
}

/// From this level on tables have few lines: page tables and page directories are below.
const UPPER: usize = 2;

impl Walker {
    pub(super) fn new(spec: &TranslatorSpec) -> Self {
        let (levels, host) = match spec.tables {
            PageTableSetup::Native(levels) => (levels, None),
            PageTableSetup::Nested { guest, host, tables_backed_by } => {
                let host = HostWalker::new(spec.processor.nested, host, tables_backed_by);
                (guest, Some(host))
            }
        };
        Self {
            levels: levels as usize,
            upper: UpperEntryCaches::new(spec.processor.walk_caches),
            host,
            lines: TableCaches::new(spec),
            asked: WalkStartLevels::default(),
        }
    }

    /// Walks for the pages of misses, at most [`MAX_WALKS`](super::missed_pages::MAX_WALKS), all of
    /// one kind if `kind` says so.
    pub(super) fn walk_batch(
        &mut self,
        walks: &[MissedPage],
        kind: UniformKind,
        mappings: &Mappings,
    ) -> WalkLoadCounts {
        let places = &mappings.places;
        let (levels, upper) = (self.levels, &mut self.upper);
        match &mut self.host {
            None => match kind.map(|(state, cause)| (state.leaf(), cause)) {
                Some((LeafSize::Base, cause)) => {
                    self.walk_native_batch(&UniformWalks::<0>(cause), walks, mappings)
                }
                Some((LeafSize::Huge, cause)) => {
                    self.walk_native_batch(&UniformWalks::<1>(cause), walks, mappings)
                }
                Some((LeafSize::Giant, cause)) => {
                    self.walk_native_batch(&UniformWalks::<2>(cause), walks, mappings)
                }
                None => self.walk_native_batch(&MixedWalks, walks, mappings),
            },
            Some(host) => self.lines.load_all(&MixedWalks, |loader| {
                for walk in walks {
                    mappings.prefetch_access_bit(walk.page(), MixedWalks.leaf(*walk));
                    let place = &places[chunk_of_page(walk.page())];
                    load_nested_walk(loader, upper, host, *walk, place, levels);
                }
            }),
        }
    }

    fn walk_native_batch(
        &mut self,
        kind: &impl WalkKind,
        walks: &[MissedPage],
        mappings: &Mappings,
    ) -> WalkLoadCounts {
        match self.levels {
            MAX_LEVELS => self.walk_native_batch_of_depth::<MAX_LEVELS>(kind, walks, mappings),
            _ => self.walk_native_batch_of_depth::<4>(kind, walks, mappings),
        }
    }

    /// The same for tables of `LEVELS` levels.
    #[inline(never)]
    fn walk_native_batch_of_depth<const LEVELS: usize>(
        &mut self,
        kind: &impl WalkKind,
        walks: &[MissedPage],
        mappings: &Mappings,
    ) -> WalkLoadCounts {
        let (levels, places, asked) = (LEVELS, &mappings.places[..], &mut self.asked);
        self.upper.find_walk_starts(kind, walks, places, levels as u8, asked);
        let mut in_turn = self.upper.small_pdpte_cache();
        let walks = walks.iter().zip(&asked.first);
        let loads = self.lines.load_all(kind, |loader| {
            let mut loads = 0;
            for (walk, first) in walks {
                let (leaf, mut first) = (kind.leaf(*walk), usize::from(*first));
                if let Some(entries) = &mut in_turn {
                    first = entries.find_walk_start(*walk, leaf, first, levels);
                }
                match kind.uniform_walk() {
                    Some(_) => loads += first - leaf,
                    None => loader.count_loads(kind.cause(*walk), first - leaf),
                }
                mappings.prefetch_access_bit(walk.page(), leaf);
                let place = &places[chunk_of_page(walk.page())];
                load_entries_of_walk(loader, kind, *walk, place, first, levels);
            }
            if let Some((_, cause)) = kind.uniform_walk() {
                loader.count_loads(cause, loads);
            }
        });
        if let Some(entries) = in_turn {
            entries.write_back();
        }
        loads
    }

    pub(super) fn sum_load_cycles(&self, loads: &[u64; 3]) -> u64 {
        self.lines.sum_load_cycles(loads)
    }

    pub(super) fn clear(&mut self) {
        self.upper.clear();
    }

    pub(super) fn clear_host(&mut self) {
        self.upper.clear();
        if let Some(host) = &mut self.host {
            host.clear();
        }
    }
}

#[inline(always)]
fn load_entries_of_walk(
    loader: &mut WalkLoader<'_>,
    kind: &impl WalkKind,
    walk: MissedPage,
    place: &ChunkUpperEntries,
    first: usize,
    levels: usize,
) {
    let (page, leaf, cause) = (walk.page(), kind.leaf(walk), kind.cause(walk));
    // Whether upper tables are loaded is unpredictable; whether it changes anything is not.
    let [pdpte, pml4e, pml5e] = place.lines;
    let mut newest = loader.is_newest(pdpte) & loader.is_newest(pml4e);
    if levels == MAX_LEVELS {
        newest &= loader.is_newest(pml5e);
    }
    if !newest & (first > UPPER) {
        for level in (UPPER..first).rev() {
            loader.load(place.lines[level - UPPER], cause);
        }
    }
    if leaf < UPPER && first > 1 {
        loader.load(TableCacheLine::of_entry(1, page >> 9), cause);
    }
    if leaf == 0 {
        loader.load_rarely_cached(TableCacheLine::of_entry(0, page), cause);
    }
}

#[inline(always)]
fn load_nested_walk(
    loader: &mut WalkLoader<'_>,
    upper: &mut UpperEntryCaches,
    host: &mut HostWalker,
    walk: MissedPage,
    place: &ChunkUpperEntries,
    levels: usize,
) {
    let (page, state, cause) = (walk.page(), walk.state(), walk.cause());
    let [pdpte, pml4e, pml5e] = place.upper;
    let entries = [page, page >> 9, pdpte, pml4e, pml5e];
    let leaf = state.leaf() as usize;
    let first = upper.find_walk_start(&entries, leaf, levels);
    let mut load = |line: TableCacheLine| {
        loader.count_loads(cause, 1);
        loader.load(line, cause);
    };
    for level in (leaf..first).rev() {
        host.translate_table(level, entries[level], &mut load);
        load(TableCacheLine::of_entry(level as u32, entries[level]));
    }
    host.translate_page(page, place, state.host().leaf(), &mut load);
}
