//! What goes from stage to stage, and what does not have to.

use super::access::{Access, STORE};
use super::lines::Cause;
use super::state::RegionState;

/// Pages that are taken from stage to stage at a time, at most: many enough that what is done once for all of them
/// does not show, few enough to stay near the host's core.
pub(super) const BATCH: usize = 1024;
/// Walks that these lead to, at most: each for itself and one beforehand.
pub(super) const MAX_WALKS: usize = 2 * BATCH;

/// A page that was missed: its number, how its region is mapped (from bit 32), and its cause (from bit 40).
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss(u64);

impl Miss {
    /// Stands where there is none.
    pub(super) const NONE: Self = Self(0);

    #[inline]
    pub(super) fn new(page: u32, state: RegionState, cause: Cause) -> Self {
        Self(u64::from(page) | u64::from(state.byte()) << 32 | (cause as u64) << 40)
    }

    #[inline]
    pub(super) fn page(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn state(self) -> RegionState {
        RegionState::from_byte((self.0 >> 32) as u8)
    }

    #[inline]
    pub(super) fn cause(self) -> Cause {
        match self.0 >> 40 {
            0 => Cause::Load,
            1 => Cause::Store,
            _ => Cause::Prefetch,
        }
    }
}

/// How walks of a batch find out at which level they end and for what they are made. What is the same for all of
/// them the compiler works out once.
pub(super) trait Kind {
    fn leaf(&self, walk: Miss) -> usize;
    fn cause(&self, walk: Miss) -> Cause;

    /// The level and the cause of all walks, if they are known to have one.
    fn one(&self) -> Option<(usize, Cause)>;
}

/// All walks end at this level and have this cause.
pub(super) struct Each<const LEVEL: usize>(pub(super) Cause);

impl<const LEVEL: usize> Kind for Each<LEVEL> {
    #[inline(always)]
    fn leaf(&self, _: Miss) -> usize {
        LEVEL
    }

    #[inline(always)]
    fn cause(&self, _: Miss) -> Cause {
        self.0
    }

    #[inline(always)]
    fn one(&self) -> Option<(usize, Cause)> {
        Some((LEVEL, self.0))
    }
}

/// Walks differ.
pub(super) struct Own;

impl Kind for Own {
    #[inline(always)]
    fn leaf(&self, walk: Miss) -> usize {
        walk.state().leaf() as usize
    }

    #[inline(always)]
    fn cause(&self, walk: Miss) -> Cause {
        walk.cause()
    }

    #[inline(always)]
    fn one(&self) -> Option<(usize, Cause)> {
        None
    }
}

/// How all pages are mapped and why they were missed, if that is the same of all. What is left of such pages by the stages is
/// of the same kind: it is looked for once.
pub(super) type OneKind = Option<(RegionState, Cause)>;

pub(super) fn one_kind(pages: &[Miss]) -> OneKind {
    let first = *pages.first()?;
    let other = pages
        .iter()
        .fold(0, |other, page| other | (page.0 ^ first.0));
    (other >> 32 == 0).then(|| (first.state(), first.cause()))
}

/// Leaves, at the begin, the pages that were not there: so many. Without a branch, as nobody can foresee which
/// these are.
#[inline(always)]
pub(super) fn leave_missed(pages: &mut [Miss], mut is_here: impl FnMut(Miss) -> bool) -> usize {
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
pub(super) struct Window {
    mask: u64,
    base: u64,
}

impl Window {
    pub(super) const NONE: Self = Self { mask: 0, base: 1 };

    /// That of an access to the entry that these bits of the address tell; of loads only if stores would fault.
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

    /// The first address behind that of an access that it holds.
    #[inline]
    pub(super) fn end(&self, access: Access) -> u64 {
        (access.address() | !(self.mask | STORE)) + 1
    }
}
