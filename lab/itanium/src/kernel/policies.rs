//! Page-size policies: the systems that the thesis classifies (section 2.4). Each policy only
//! decides; the kernel around it carries the decisions out and keeps the state.
//!
//! The machine's [`PageSizeAdvice`](crate::PageSizeAdvice) holds the page sizes that programs and
//! their administrators ask for. Each policy states whether it uses them.

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
use crate::error::{ItaniumError, Result};
use serde::Serialize;

/// Classes of policies in the thesis (section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum PolicyClass {
    /// Large pages of a fixed size, which never grow or shrink.
    Global,
    /// Pages of the best size that is available at once. They may shrink, and nothing is ever
    /// copied.
    Static,
    /// Pages that grow and shrink, and that may be copied for that.
    Dynamic,
}

/// A kernel's policy, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSizePolicy {
    /// The policy of the thesis, and of Shimizu and Takatori.
    Cover(Cover),
    /// Linux's pool of huge pages.
    HugeTlb(HugeTlb),
    /// A page size for each mapping, from a zone for such pages only.
    Winwood(Winwood),
    /// A preferred page size for each mapping.
    Solaris(Solaris),
    /// A page size for each program, and heaps that grow.
    HpUx(HpUx),
    /// A page size for each mapping, and a daemon that frees larger blocks.
    Irix(Irix),
    /// Reservations.
    Navarro(Navarro),
    /// Promotion as soon as all of a page has memory.
    Asap(Asap),
    /// Promotion by counting misses.
    ApproxOnline(ApproxOnline),
    /// Two sizes, by the share of pages that were referred to.
    HalfReferenced(HalfReferenced),
    /// Blocks of base pages that lie together, for a TLB with sub-blocks.
    PageReservation(PageReservation),
}

impl PageSizePolicy {
    /// The policy's class in the thesis.
    pub fn class(&self) -> PolicyClass {
        match self {
            Self::HugeTlb(_) | Self::Winwood(_) | Self::Solaris(_) => PolicyClass::Global,
            Self::Cover(_) | Self::HpUx(_) => PolicyClass::Static,
            Self::Irix(_)
            | Self::Navarro(_)
            | Self::Asap(_)
            | Self::ApproxOnline(_)
            | Self::HalfReferenced(_)
            | Self::PageReservation(_) => PolicyClass::Dynamic,
        }
    }

    /// The policy's decisions.
    pub fn rules(&self) -> &dyn PageSizeRules {
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

/// A first touch: what a policy gets about the page and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouchRequest {
    /// The order that its mapping should have: as advised, or as [`PageSizeRules::heap_order`]
    /// decided. 0 without either.
    pub preferred: u8,
    /// The largest order that the kernel may use.
    pub largest: u8,
    /// Free memory, in per cent.
    pub free_percent: u64,
}

/// How far a page or a reservation may reach around the page that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentLimit {
    /// Over pages of its mapping.
    Mapping,
    /// Over pages of mappings of the same kind, side by side.
    Neighbours,
    /// Over any addresses.
    Anything,
}

/// Source of memory for a page at its first touch. Orders are upper limits: the kernel takes the
/// next smaller one where an order does not fit around the page or is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSource {
    /// A page of the size that `mmap` wrote into its entry.
    AsSized,
    /// A page of this order, whole.
    Page {
        /// Largest order of the page.
        order: u8,
        /// Addresses that it may extend over.
        within: ExtentLimit,
    },
    /// A page from the pool, of the pool's order.
    Pool {
        /// With an empty pool, or where such a page does not fit, the program gets a base page. If
        /// false, the program gets no memory.
        or_base: bool,
    },
    /// This page only. Memory for the pages around it is reserved.
    Reserve {
        /// Largest order of the reservation.
        order: u8,
        /// Addresses that it may extend over.
        within: ExtentLimit,
        /// The kernel gives up another reservation if that makes room.
        preempt: bool,
    },
}

/// What the kernel does with base pages when all of a larger page has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullBlockAction {
    /// The base pages stay.
    Stay,
    /// They become one page in place, if that memory was reserved for them.
    Join,
    /// They are copied into one page.
    Copy,
}

/// Memory set aside when the machine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Order of its pages.
    pub order: u8,
    /// Number of its pages.
    pub pages: u32,
    /// Mappings on them lie in a region of addresses of their own, for which the hardware's walker
    /// takes this page size.
    pub own_region: bool,
}

/// Growth of a heap: mappings that the kernel put one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapGrowth {
    /// Order of the heap so far.
    pub preferred: u8,
    /// Number of growths by less than the heap had.
    pub growths: u32,
}

/// Work of a daemon that moves pages to free larger blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Page faults between two passes.
    pub every_faults: u32,
    /// At most this number of failed requests since the last pass counts as mild demand.
    pub mild_failures: u32,
    /// Mild demand: the daemon frees blocks of which at most this share is in use, in per cent.
    pub mild_percent: u32,
    /// Stronger demand: the daemon frees blocks of which at most this share is in use, in per cent.
    pub strong_percent: u32,
}

impl CompactionSettings {
    /// The largest number of frames that it moves to free a block of `frames` frames.
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

/// Decisions of a system. They do not depend on frames, entries or TLBs.
pub trait PageSizeRules {
    /// Source of memory for a first touch.
    fn first_touch(&self, _touch: &FirstTouchRequest) -> FrameSource {
        FrameSource::AsSized
    }

    /// Whether `mmap` writes sizes into entries.
    fn sizes_at_map(&self) -> bool {
        false
    }

    /// Memory that it sets aside at the start.
    fn pool_settings(&self) -> Option<PoolSettings> {
        None
    }

    /// The order of a heap after it grew by a mapping; `None` if the policy has no heaps. The
    /// kernel maps more than requested, up to a whole page of that order.
    fn heap_order(&self, _heap: &HeapGrowth) -> Option<u8> {
        None
    }

    /// What the kernel does when all of a larger page has memory.
    fn full_block_action(&self) -> FullBlockAction {
        FullBlockAction::Stay
    }

    /// Number of misses, which a page of this order would have prevented, after which the kernel
    /// makes it. `None` if the policy does not count misses.
    fn promotion_threshold(&self, _order: u8) -> Option<u64> {
        None
    }

    /// Number of references between two decisions by [`Self::should_be_large`], and the order of
    /// the large pages. `None` if the policy does not use references.
    fn reference_window(&self) -> Option<(u64, u8)> {
        None
    }

    /// Whether a page of `pages` base pages, `referred` of them in a window, should be large.
    fn should_be_large(&self, _referred: u64, _pages: u64) -> bool {
        false
    }

    /// Settings of its daemon that frees larger blocks.
    fn compaction_daemon(&self) -> Option<CompactionSettings> {
        None
    }

    /// Checks that its settings fit the kernel's.
    ///
    /// # Errors
    /// The settings do not fit.
    fn check(&self, _settings: &KernelSettings) -> Result {
        Ok(())
    }
}

fn check_large_order(order: u8, settings: &KernelSettings, what: &'static str) -> Result {
    let fits = order > 0 && settings.orders.contains(order);
    check_setting(
        fits,
        what,
        "one of the kernel's page sizes above its base page",
    )
}

fn check_setting(right: bool, what: &'static str, allowed: &'static str) -> Result {
    ItaniumError::unless(right, what, allowed)
}

fn from_pool(touch: &FirstTouchRequest, order: u8, or_base: bool) -> FrameSource {
    if touch.preferred == order {
        FrameSource::Pool { or_base }
    } else {
        FrameSource::AsSized
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(preferred: u8, free_percent: u64) -> FirstTouchRequest {
        FirstTouchRequest {
            preferred,
            largest: 14,
            free_percent,
        }
    }

    #[test]
    fn only_mappings_of_the_pools_order_get_its_pages() {
        let huge = HugeTlb { order: 8, pages: 1 };
        let zone = Winwood { order: 8, pages: 1 };
        for (preferred, asked) in [(0, false), (6, false), (8, true)] {
            let touch = touch(preferred, 50);
            let pool = |or_base| FrameSource::Pool { or_base };
            let supply = |or_base| {
                if asked {
                    pool(or_base)
                } else {
                    FrameSource::AsSized
                }
            };
            assert_eq!(huge.first_touch(&touch), supply(false));
            assert_eq!(zone.first_touch(&touch), supply(true));
        }
    }

    #[test]
    fn heaps_get_a_larger_order_after_every_few_growths() {
        let hp_ux = HpUx::default();
        let grown = |preferred, growths| hp_ux.heap_order(&HeapGrowth { preferred, growths });
        let orders = [0, 3, 4, 7, 8, 1000].map(|growths| grown(0, growths));
        assert_eq!(orders, [0, 0, 1, 1, 2, 2].map(Some));
        // A hint above the ceiling stays.
        assert_eq!(grown(6, 8), Some(6));
        let order = |free_percent| match hp_ux.first_touch(&touch(4, free_percent)) {
            FrameSource::Page { order, .. } => order,
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
                FrameSource::Reserve { order, .. } => order,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((order(None), order(Some(4))), (14, 4));
    }

    #[test]
    fn a_page_with_half_referenced_is_large() {
        let rule = HalfReferenced {
            order: 2,
            references: 1,
        };
        let large = [0, 1, 2, 3, 4].map(|referred| rule.should_be_large(referred, 4));
        assert_eq!(large, [false, false, true, true, true]);
    }
}
