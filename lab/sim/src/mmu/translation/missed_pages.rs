//! Data that stages pass on, and shortcuts for uniform batches.

use super::access::{Access, STORE};
use super::sizes::RegionTranslation;
use super::table_caches::TableCacheLine;

/// Levels of tables, from the lowest: PTE, PDE, PDPTE, PML4E, PML5E.
pub(in crate::mmu) const MAX_LEVELS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkCause {
    Load = 0,
    Store = 1,
    Prefetch = 2,
}

/// Most pages in a batch: amortises the work per batch, and fits the simulating core's caches.
pub(super) const BATCH: usize = 1024;
/// Most walks of a batch: for each page one, and one prefetch.
pub(super) const MAX_WALKS: usize = 2 * BATCH;

/// A page that missed: its number, its region's mapping (from bit 32), its cause (from bit 40).
#[derive(Clone, Copy, Debug)]
pub(super) struct MissedPage(u64);

impl MissedPage {
    pub(super) const NONE: Self = Self(0);

    #[inline]
    pub(super) fn new(page: u32, state: RegionTranslation, cause: WalkCause) -> Self {
        Self(u64::from(page) | u64::from(state.byte()) << 32 | (cause as u64) << 40)
    }

    #[inline]
    pub(super) fn page(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn state(self) -> RegionTranslation {
        RegionTranslation::from_byte((self.0 >> 32) as u8)
    }

    #[inline]
    pub(super) fn cause(self) -> WalkCause {
        match self.0 >> 40 {
            0 => WalkCause::Load,
            1 => WalkCause::Store,
            _ => WalkCause::Prefetch,
        }
    }
}

/// How walks of a batch find the level at which they end, and their cause. The compiler computes in
/// advance what is the same for all of them.
pub(super) trait WalkKind {
    fn leaf(&self, walk: MissedPage) -> usize;
    fn cause(&self, walk: MissedPage) -> WalkCause;

    /// The level and the cause of all walks, if known to be the same.
    fn uniform_walk(&self) -> Option<(usize, WalkCause)>;
}

/// All walks end at this level and have this cause.
pub(super) struct UniformWalks<const LEVEL: usize>(pub(super) WalkCause);

impl<const LEVEL: usize> WalkKind for UniformWalks<LEVEL> {
    #[inline(always)]
    fn leaf(&self, _: MissedPage) -> usize {
        LEVEL
    }

    #[inline(always)]
    fn cause(&self, _: MissedPage) -> WalkCause {
        self.0
    }

    #[inline(always)]
    fn uniform_walk(&self) -> Option<(usize, WalkCause)> {
        Some((LEVEL, self.0))
    }
}

pub(super) struct MixedWalks;

impl WalkKind for MixedWalks {
    #[inline(always)]
    fn leaf(&self, walk: MissedPage) -> usize {
        walk.state().leaf() as usize
    }

    #[inline(always)]
    fn cause(&self, walk: MissedPage) -> WalkCause {
        walk.cause()
    }

    #[inline(always)]
    fn uniform_walk(&self) -> Option<(usize, WalkCause)> {
        None
    }
}

/// Mapping and cause of all pages, if the same: computed once, because stages keep them.
pub(super) type UniformKind = Option<(RegionTranslation, WalkCause)>;

pub(super) fn one_kind(pages: &[MissedPage]) -> UniformKind {
    let first = *pages.first()?;
    let other = pages
        .iter()
        .fold(0, |other, page| other | (page.0 ^ first.0));
    (other >> 32 == 0).then(|| (first.state(), first.cause()))
}

/// Moves missed pages to the front; returns their number. No branch: it is unpredictable.
#[inline(always)]
pub(super) fn retain_missed(
    pages: &mut [MissedPage],
    mut is_here: impl FnMut(MissedPage) -> bool,
) -> usize {
    let mut missed = 0;
    for index in 0..pages.len() {
        let page = pages[index];
        pages[missed] = page;
        missed += usize::from(!is_here(page));
    }
    missed
}

/// Accesses that hit the TLB entry that was used last: `key & mask == base`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastEntryHits {
    mask: u64,
    base: u64,
}

impl LastEntryHits {
    pub(super) const NONE: Self = Self { mask: 0, base: 1 };

    /// The window of an access to the entry of these bits; of loads only, if stores would fault.
    #[inline(always)]
    pub(super) fn new(access: Access, page: u64, writable: bool) -> Self {
        let load_or_store = !STORE;
        let kinds = if writable { load_or_store } else { u64::MAX };
        Self {
            mask: page & kinds,
            base: access.address() & page,
        }
    }

    #[inline]
    pub(super) fn holds(&self, access: Access) -> bool {
        access.key() & self.mask == self.base
    }
}

/// Most mapped pieces of 1 GiB, with the one that stands for "unmapped".
pub(super) const MAX_CHUNKS: usize = 1 << 13;
pub(super) const REGIONS_PER_CHUNK: usize = 512;
pub(super) const CHUNK_BYTES: u64 = 1 << 30;

/// Position of a piece of 1 GiB, and the entries of the upper tables that lead to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkTables {
    /// Entries of the topmost three of five levels, from the lowest: PDPTE, PML4E, PML5E.
    pub(super) upper: [u32; 3],
    pub(super) lines: [TableCacheLine; 3],
    pub(super) gib: u32,
}

impl ChunkTables {
    pub(super) fn new(upper: [u32; 3], gib: u32) -> Self {
        let [pdpte, pml4e, pml5e] = upper;
        let lines = [
            TableCacheLine::of(2, pdpte),
            TableCacheLine::of(3, pml4e),
            TableCacheLine::of(4, pml5e),
        ];
        Self { upper, lines, gib }
    }
}

#[inline]
pub(super) const fn page_number(chunk: u32, address: u64) -> u32 {
    chunk << 18 | (address >> 12) as u32 & 0x3_ffff
}

#[inline]
pub(super) const fn chunk_of(page: u32) -> usize {
    (page >> 18) as usize
}

#[inline]
pub(super) const fn region_of(page: u32) -> usize {
    (page >> 9) as usize
}
