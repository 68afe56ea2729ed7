//! Data that stages pass on, and shortcuts for uniform batches.

use super::access::{Access, STORE};
use super::region_translation::RegionTranslation;

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
        Self(u64::from(page) | u64::from(state.to_byte()) << 32 | (cause as u64) << 40)
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

pub(super) fn uniform_kind(pages: &[MissedPage]) -> UniformKind {
    let first = *pages.first()?;
    let other = pages.iter().fold(0, |other, page| other | (page.0 ^ first.0));
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
pub(super) struct LastEntryWindow {
    mask: u64,
    base: u64,
}

impl LastEntryWindow {
    pub(super) const NONE: Self = Self { mask: 0, base: 1 };

    /// The window of an access to the entry of these bits; of loads only, if stores would fault.
    #[inline(always)]
    pub(super) fn new(access: Access, page: u64, writable: bool) -> Self {
        let load_or_store = !STORE;
        let kinds = if writable { load_or_store } else { u64::MAX };
        Self { mask: page & kinds, base: access.address() & page }
    }

    #[inline]
    pub(super) fn holds(&self, access: Access) -> bool {
        access.to_bits() & self.mask == self.base
    }
}
