//! Page-size policies: the systems that the thesis classifies (section 2.4), each as what it decides and nothing else. The kernel
//! around them does what they say, and keeps what they have to remember.
//!
//! What programs and their administrators say is the machine's [`Advice`](crate::Advice); each policy says whether it listens.

mod cover;
mod hp_ux;
mod huge_tlb;
mod irix;
mod navarro;
mod romer;
mod solaris;
mod talluri;
mod winwood;

pub use cover::Cover;
pub use hp_ux::HpUx;
pub use huge_tlb::HugeTlb;
pub use irix::Irix;
pub use navarro::Navarro;
pub use romer::{ApproxOnline, Asap};
pub use solaris::Solaris;
pub use talluri::{HalfReferenced, PageReservation};
pub use winwood::Winwood;

use super::KernelSettings;
use crate::ItaniumError;
use serde::Serialize;
use std::fmt;

/// How the thesis sorts policies (section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Class {
    /// Large pages of a fixed size, which never grow or shrink.
    Global,
    /// Pages of the best size that can be had at once; they may shrink, and nothing is ever copied.
    Static,
    /// Pages grow and shrink, and may be copied for that.
    Dynamic,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Global => "global",
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        })
    }
}

/// A kernel's policy, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Policy {
    /// The thesis', and Shimizu and Takatori's.
    Cover(Cover),
    /// Linux's pool of huge pages.
    HugeTlb(HugeTlb),
    /// A page size for each mapping, from a zone of their own.
    Winwood(Winwood),
    /// A preferred page size for each mapping.
    Solaris(Solaris),
    /// A page size for each program, and heaps that grow.
    HpUx(HpUx),
    /// A page size for each mapping, and a daemon that makes room.
    Irix(Irix),
    /// Reservations.
    Navarro(Navarro),
    /// Promotion as soon as all of a page is there.
    Asap(Asap),
    /// Promotion by counting misses.
    ApproxOnline(ApproxOnline),
    /// Two sizes, by what was referred to.
    HalfReferenced(HalfReferenced),
    /// Blocks of pages that lie together, for a TLB with sub-blocks.
    PageReservation(PageReservation),
}

impl Policy {
    /// What it decides.
    pub fn rules(&self) -> &dyn PagePolicy {
        match self {
            Self::Cover(rules) => rules,
            Self::HugeTlb(rules) => rules,
            Self::Winwood(rules) => rules,
            Self::Solaris(rules) => rules,
            Self::HpUx(rules) => rules,
            Self::Irix(rules) => rules,
            Self::Navarro(rules) => rules,
            Self::Asap(rules) => rules,
            Self::ApproxOnline(rules) => rules,
            Self::HalfReferenced(rules) => rules,
            Self::PageReservation(rules) => rules,
        }
    }
}

/// What a policy knows of a page without memory that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouch {
    /// The order that its mapping is to have: as advised, or as [`PagePolicy::grow`] said. 0 if nobody said anything.
    pub preferred: u8,
    /// The largest order that the kernel may use.
    pub largest: u8,
    /// Free memory, in per cent.
    pub free_percent: u64,
}

/// How far a page or a reservation may reach around the page that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Over pages of its mapping.
    Mapping,
    /// Over pages of mappings of the same kind, side by side.
    Neighbours,
    /// Over any addresses.
    Anything,
}

/// Where memory for a page that is touched for the first time comes from. Orders are the most that is wanted: it becomes the
/// next smaller one where that does not fit around the page, or can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// A page of the size that `mmap` wrote into its entry.
    AsSized,
    /// A page of this order, whole.
    Page {
        /// Its order.
        order: u8,
        /// What it may reach over.
        within: Within,
    },
    /// A page from the pool, and of its order.
    Pool {
        /// If the pool is empty, or such a page does not fit: a base page. If not, the program gets no memory.
        or_base: bool,
    },
    /// This page only; memory for those around it is reserved.
    Reserve {
        /// Order of what is reserved.
        order: u8,
        /// What it may reach over.
        within: Within,
        /// Another reservation is given up if that makes room.
        preempt: bool,
    },
}

/// What becomes of base pages when all of a larger page has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// They stay.
    Stay,
    /// They become one, where they are, if it was reserved for them.
    Join,
    /// They are copied into one.
    Copy,
}

/// Memory set aside when the machine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pool {
    /// Order of its pages.
    pub order: u8,
    /// How many.
    pub pages: u32,
    /// Mappings on them lie in a region of addresses of their own, for which the hardware's walker takes this page size.
    pub own_region: bool,
}

/// What a policy knows of a heap: mappings that the kernel put one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapGrowth {
    /// Order that it has so far.
    pub preferred: u8,
    /// How often it has grown by less than it had.
    pub growths: u32,
}

/// Work of a daemon that moves pages together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Coalescing {
    /// It looks for work after so many page faults.
    pub every_faults: u32,
    /// Up to so many requests that failed since it last looked, it moves little.
    pub mild_failures: u32,
    /// Then blocks are freed of which at most this share is in use, in per cent.
    pub mild_percent: u32,
    /// After more failures, those of which at most this share is.
    pub strong_percent: u32,
}

impl Coalescing {
    /// The most frames that it moves to free a block of so many.
    pub fn most_moved(&self, failures: u64, frames: u64) -> u64 {
        let mild = failures <= u64::from(self.mild_failures);
        let percent = if mild {
            self.mild_percent
        } else {
            self.strong_percent
        };
        frames * u64::from(percent) / 100
    }
}

/// What a system decides. Nothing here knows of frames, entries or TLBs.
pub trait PagePolicy {
    /// Where the thesis puts it.
    fn class(&self) -> Class;

    /// Where memory comes from.
    fn first_touch(&self, touch: &FirstTouch) -> Supply;

    /// Whether `mmap` writes sizes into entries.
    fn sizes_at_map(&self) -> bool {
        false
    }

    /// Memory that it sets aside at the start.
    fn pool(&self) -> Option<Pool> {
        None
    }

    /// The order that a heap has from now on, as it grows by a mapping; none if it has no heaps. More than is asked for is mapped, up to a whole
    /// page of that order.
    fn grow(&self, heap: &HeapGrowth) -> Option<u8> {
        let _ = heap;
        None
    }

    /// What becomes of pages that make up a larger one.
    fn when_full(&self) -> WhenFull {
        WhenFull::Stay
    }

    /// After how many misses, that a page of this order would have prevented, it is made. None if misses are not counted.
    fn misses_before(&self, order: u8) -> Option<u64> {
        let _ = order;
        None
    }

    /// References after which it is decided anew which pages are large, by [`Self::is_large`], and the order of these. None if
    /// references are not looked at.
    fn window(&self) -> Option<(u64, u8)> {
        None
    }

    /// Whether a page should be large of which so many base pages, of so many, were referred to in a window.
    fn is_large(&self, referred: u64, pages: u64) -> bool {
        let _ = (referred, pages);
        false
    }

    /// Its daemon that moves pages together.
    fn coalescing(&self) -> Option<Coalescing> {
        None
    }

    /// Checks that its settings fit the kernel's.
    ///
    /// # Errors
    /// They don't.
    fn check(&self, settings: &KernelSettings) -> Result<(), ItaniumError> {
        let _ = settings;
        Ok(())
    }
}

/// An order must be one of the kernel's large ones.
fn must_be_large(
    order: u8,
    settings: &KernelSettings,
    what: &'static str,
) -> Result<(), ItaniumError> {
    must(
        order > 0 && settings.orders.contains(order),
        what,
        "one of the page sizes that the kernel may use, above its base page",
    )
}

fn must(right: bool, what: &'static str, allowed: &'static str) -> Result<(), ItaniumError> {
    if right {
        Ok(())
    } else {
        Err(ItaniumError::Setup { what, allowed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(preferred: u8, free_percent: u64) -> FirstTouch {
        FirstTouch {
            preferred,
            largest: 14,
            free_percent,
        }
    }

    #[test]
    fn pools_are_for_those_who_ask_for_their_order() {
        let huge = HugeTlb { order: 8, pages: 1 };
        let zone = Winwood { order: 8, pages: 1 };
        for (preferred, asked) in [(0, false), (6, false), (8, true)] {
            let touch = touch(preferred, 50);
            let pool = |or_base| Supply::Pool { or_base };
            let supply = |or_base| {
                if asked {
                    pool(or_base)
                } else {
                    Supply::AsSized
                }
            };
            assert_eq!(huge.first_touch(&touch), supply(false));
            assert_eq!(zone.first_touch(&touch), supply(true));
        }
    }

    #[test]
    fn heaps_earn_an_order_after_every_few_growths() {
        let hp_ux = HpUx::default();
        let grown = |preferred, growths| hp_ux.grow(&HeapGrowth { preferred, growths });
        let orders = [0, 3, 4, 7, 8, 1000].map(|growths| grown(0, growths));
        assert_eq!(orders, [0, 0, 1, 1, 2, 2].map(Some));
        // A hint above the ceiling stays.
        assert_eq!(grown(6, 8), Some(6));
        let order = |free_percent| match hp_ux.first_touch(&touch(4, free_percent)) {
            Supply::Page { order, .. } => order,
            other => panic!("{other:?}"),
        };
        assert_eq!((order(5), order(4)), (4, 3));
    }

    #[test]
    fn the_daemon_moves_more_as_more_requests_fail() {
        let daemon = Irix::default().daemon;
        let most = [1, 8, 9, 1000].map(|failures| daemon.most_moved(failures, 256));
        assert_eq!(most, [33, 33, 128, 128]);
    }

    #[test]
    fn navarro_reserves_up_to_the_limit() {
        let order = |limit| {
            let navarro = Navarro {
                limit,
                daemon: None,
            };
            match navarro.first_touch(&touch(2, 50)) {
                Supply::Reserve { order, .. } => order,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((order(None), order(Some(4))), (14, 4));
    }

    #[test]
    fn half_is_enough() {
        let rule = HalfReferenced {
            order: 2,
            references: 1,
        };
        let large = [0, 1, 2, 3, 4].map(|referred| rule.is_large(referred, 4));
        assert_eq!(large, [false, false, true, true, true]);
    }
}
