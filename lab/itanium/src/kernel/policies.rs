//! Page-size policies: the systems that the thesis classifies (section 2.4). Each policy only
//! decides; the kernel around it carries the decisions out and keeps the state.
//!
//! The machine's [`PageSizeAdvice`](crate::PageSizeAdvice) holds the page sizes that programs and
//! their administrators ask for. Each policy states whether it uses them.

use super::KernelSettings;
use crate::address::BasePageSize;
use crate::error::{ItaniumError, Result};
use crate::mmu::{EventCycleCosts, WalkerMode};
use serde::Serialize;

/// Classes of policies in the thesis (section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum ThesisPolicyClass {
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
    /// The thesis' own policy (section 5.5.4): the rule of N. Shimizu and K. Takatori's patches
    /// (2003) on Itanium. `mmap` covers a mapping by the largest pages that are aligned and fit.
    /// Each page gets its memory at its first touch, or is divided.
    Cover,
    /// HugeTLB (thesis, sections 2.4.1 and 3.5). The administrator has pages of one size set aside
    /// when the machine starts, and programs request them by name. Mappings on them lie in a region
    /// of their own, with that page size in its region register. The hardware's walker therefore
    /// fills them as it does base pages elsewhere. Such mappings have no other memory: a program
    /// that touches more than the pool has is killed.
    HugeTlb {
        /// Order of the pool's pages. 256 MiB each is Itanium's default (section 3.5.3).
        order: u8,
        /// Number of pages (`nr_hugepages`).
        pages: u32,
    },
    /// S. Winwood, Y. Shuf and H. Franke, "Multiple Page Size Support in the Linux Kernel" (Ottawa
    /// Linux Symposium, 2002), as in the thesis' section 2.4.1. A program sets the page size of a
    /// mapping (`madvise`). Such pages come from a zone that nothing else uses. There is one size,
    /// as in the paper on x86 (4 MiB). The thesis does not state what happens where the zone is
    /// empty, or at the ends of a mapping; chosen: base pages.
    Winwood {
        /// Order of the zone's pages.
        order: u8,
        /// Number of its pages.
        pages: u32,
    },
    /// Solaris 9's MPSS (thesis, section 2.4.1): `ppgsz(1)`, `mpss.so.1(1)` and `memcntl(2)`. A
    /// program, or its administrator, prefers a page size for a mapping. The kernel tries that size
    /// at the first touch, and then smaller ones. The thesis puts this among the global policies,
    /// beside Solaris' older shared memory.
    Solaris,
    /// I. Subramanian, C. Mather, K. Peterson and B. Raghunath, "Implementation of Multiple
    /// Pagesize Support in HP-UX" (USENIX 1998), as in the thesis' section 2.4.2. A hint in a
    /// program's file (`chatr +pd`) is the page size of all its mappings, unless memory is short.
    /// Heaps that keep growing get larger pages without a hint, and more than they request.
    ///
    /// The thesis does not state when a heap gets larger pages, nor when memory is short. Both are
    /// chosen, in [`HP_UX`](Self::HP_UX).
    HpUx {
        /// The largest order that the kernel chooses by itself (`vps_ceiling`).
        ceiling: u8,
        /// Growths after which a heap's order goes up, and further growths for each further order.
        growths: u32,
        /// With less free memory, in per cent, pages are one size smaller.
        short_percent: u8,
    },
    /// N. Ganapathy and C. Schimmel, "General Purpose Operating System Support for Multiple Page
    /// Sizes" (USENIX 1998): IRIX 6.4, as in the thesis' section 2.4.3. Policy modules set page
    /// sizes for ranges of addresses. The first touch tries the size of its range, then smaller
    /// ones. A daemon moves pages to free blocks for requests that failed.
    Irix(CompactionDaemonSettings),
    /// J. Navarro, S. Iyer, P. Druschel and A. Cox, "Practical, transparent operating system
    /// support for superpages" (OSDI 2002), with all available page sizes; as in the thesis'
    /// section 2.4.3. The first touch reserves memory for the largest page that is aligned, lies in
    /// the mapping, and overlaps no other reservation. Base pages get their places in it as they
    /// are touched. Pages grow, size by size, as all of the next larger one has memory. If memory
    /// is short, the kernel gives up the reservation with the longest time since its last page. It
    /// also gives up reservations that a call cuts.
    ///
    /// Left out: demotion of pages that are no longer used, or written to for the first time (there
    /// are no access and dirty bits here).
    Navarro {
        /// The largest order that is reserved; `None` for all orders that the kernel may use.
        limit: Option<u8>,
        /// The authors' contiguity daemon, if it runs; the same as that of IRIX.
        daemon: Option<CompactionDaemonSettings>,
    },
    /// T. Romer, W. Ohlrich, A. Karlin and B. Bershad, "Reducing TLB and Memory Overhead Using
    /// Online Superpage Promotion" (ISCA 1995), as in the thesis' section 2.3.2. The kernel makes a
    /// larger page by copying as soon as all of it has memory.
    Asap,
    /// The same authors' policy by counting misses. A miss counts for each larger page around it of
    /// which another part is in the TLB: that page would have prevented the miss. The kernel makes
    /// a page, by copying, when its misses have cost as much as the copy. The problem is that of
    /// when to buy skis. Their third policy, `online`, takes "multiple thousands of cycles" for
    /// each miss; it is left out, as there.
    ///
    /// The kernel must see misses: those that a hardware walker fills do not count.
    ApproxOnline {
        /// Counted misses for each base page that would be copied.
        misses_per_page: u32,
    },
    /// M. Talluri, S. Kong, M. Hill and D. Patterson, "Tradeoffs in Supporting Two Page Sizes"
    /// (ISCA 1992), which the thesis cites without its rule (section 2.2): a page is large while at
    /// least half of it is being referred to. This rule is for traces and "may not reflect a real
    /// operating system's policy" (abstract), because no kernel sees references. Here, observing
    /// references costs nothing.
    ///
    /// The paper's sizes were 4 and 32 KiB; Itanium lacks the latter. The window is chosen.
    HalfReferenced {
        /// The large order.
        order: u8,
        /// References in a window.
        references: u64,
    },
    /// M. Talluri and M. Hill, "Surpassing the TLB Performance of Superpages with Less Operating
    /// System Support" (ASPLOS 1994), cited in the thesis' section 2.4: page reservation. The first
    /// touch of a block of addresses reserves an aligned block of memory, and base pages get their
    /// places in it. One entry of a TLB with sub-blocks
    /// ([`crate::mmu::ItaniumProcessorSpec::sub_block_order`]) thus holds them all. Nothing is
    /// promoted. The kernel gives up reservations where memory is short.
    PageReservation {
        /// Order of a block, equal to that of the TLB's sub-blocks.
        order: u8,
    },
}

/// A first touch: what a policy gets about the page and its memory.
#[derive(Clone, Copy)]
pub(super) struct FirstTouchRequest {
    /// The order that its mapping should have: as advised, or as
    /// [`PageSizePolicy::order_of_grown_heap`] decided. 0 without either.
    pub(super) preferred: u8,
    /// The largest order that the kernel may use.
    pub(super) largest: u8,
    pub(super) free_percent: u64,
}

/// How far a page or a reservation may reach around the page that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentLimit {
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
pub(super) enum FrameSource {
    /// A page of the size that `mmap` wrote into its entry.
    AsSized,
    /// A page of this order, whole.
    Page { order: u8, within: ExtentLimit },
    /// A page from the pool, of the pool's order. Where there is none, or it does not fit, the
    /// program gets a base page, or with `or_base` false no memory.
    Pool { or_base: bool },
    /// This page only. Memory for the pages around it is reserved. With `preempt`, the kernel gives
    /// up another reservation if that makes room.
    Reserve { order: u8, within: ExtentLimit, preempt: bool },
}

/// What the kernel does with base pages when all of a larger page has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullBlockAction {
    Stay,
    /// They become one page in place, if that memory was reserved for them.
    Join,
    /// They are copied into one page.
    Copy,
}

/// Memory set aside when the machine starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct HugePagePoolSettings {
    pub(super) order: u8,
    pub(super) pages: u32,
    /// Mappings on them lie in a region of addresses of their own, for which the hardware's walker
    /// takes this page size.
    pub(super) own_region: bool,
}

/// Growth of a heap: mappings that the kernel put one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeapGrowth {
    /// Order of the heap so far.
    pub(super) preferred: u8,
    /// Number of growths by less than the heap had.
    pub(super) growths: u32,
}

/// Work of a daemon that moves pages to free larger blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionDaemonSettings {
    /// Page faults between two passes.
    pub every_faults: u32,
    /// At most this number of failed requests since the last pass counts as mild demand.
    pub mild_failures: u32,
    /// Mild demand: the daemon frees blocks of which at most this share is in use, in per cent.
    pub mild_percent: u32,
    /// Stronger demand: the daemon frees blocks of which at most this share is in use, in per cent.
    pub strong_percent: u32,
}

impl CompactionDaemonSettings {
    /// The thesis describes IRIX's daemon only by "varying levels of aggression depending on the
    /// current contiguity requirements"; its numbers are chosen.
    pub const IRIX: Self =
        Self { every_faults: 64, mild_failures: 8, mild_percent: 13, strong_percent: 50 };

    /// The largest number of frames that it moves to free a block of `frames` frames.
    pub(super) fn most_moves_per_block(&self, failures: u64, frames: u64) -> u64 {
        let mild = failures <= u64::from(self.mild_failures);
        let percent = if mild { self.mild_percent } else { self.strong_percent };
        frames * u64::from(percent) / 100
    }

    fn check(&self) -> Result {
        let what = "the page faults between two passes of the daemon";
        ItaniumError::require_setting(self.every_faults > 0, what, "at least 1")?;
        let fits = self.mild_percent <= self.strong_percent && self.strong_percent <= 100;
        let what = "the share of a block that the daemon moves";
        ItaniumError::require_setting(fits, what, "0 to 100 %, and no less under stronger demand")
    }
}

impl PageSizePolicy {
    /// HP-UX with at most four base pages (HP-UX 11 tunables, docs.hp.com: 16 KiB with 4 KiB
    /// pages).
    pub const HP_UX: Self = Self::HpUx { ceiling: 2, growths: 4, short_percent: 5 };

    /// [`ApproxOnline`](Self::ApproxOnline) with the threshold at which the misses have cost as
    /// much as the promotion, or `percent` per cent of that. At 100 per cent the total is at most
    /// twice the best possible cost (`threshold` = cost of promotion / cost of a miss). Fang et al.
    /// (HPCA 2001; thesis, section 2.3.2) found low thresholds better on processors that execute
    /// several instructions at a time.
    pub fn approx_online_ski_rental(
        costs: &EventCycleCosts,
        walker: WalkerMode,
        base: BasePageSize,
        percent: u32,
    ) -> Self {
        let copy = costs.copied_byte * base.bytes() as f64;
        let misses = copy / costs.cycles_per_software_miss(walker) * f64::from(percent) / 100.0;
        Self::ApproxOnline {
            misses_per_page: misses.round().clamp(1.0, f64::from(u32::MAX)) as u32,
        }
    }

    /// The policy's class in the thesis.
    pub fn thesis_class(&self) -> ThesisPolicyClass {
        match self {
            Self::HugeTlb { .. } | Self::Winwood { .. } | Self::Solaris => {
                ThesisPolicyClass::Global
            }
            Self::Cover | Self::HpUx { .. } => ThesisPolicyClass::Static,
            Self::Irix(_)
            | Self::Navarro { .. }
            | Self::Asap
            | Self::ApproxOnline { .. }
            | Self::HalfReferenced { .. }
            | Self::PageReservation { .. } => ThesisPolicyClass::Dynamic,
        }
    }

    pub(super) fn first_touch_frame_source(&self, touch: &FirstTouchRequest) -> FrameSource {
        let within = ExtentLimit::Mapping;
        match *self {
            Self::HugeTlb { order, .. } if touch.preferred == order => {
                FrameSource::Pool { or_base: false }
            }
            Self::Winwood { order, .. } if touch.preferred == order => {
                FrameSource::Pool { or_base: true }
            }
            Self::Solaris | Self::Irix(_) => FrameSource::Page { order: touch.preferred, within },
            Self::HpUx { short_percent, .. } => {
                let short = touch.free_percent < u64::from(short_percent);
                FrameSource::Page {
                    order: touch.preferred.saturating_sub(short.into()),
                    within: ExtentLimit::Neighbours,
                }
            }
            Self::Navarro { limit, .. } => FrameSource::Reserve {
                order: limit.unwrap_or(touch.largest),
                within,
                preempt: true,
            },
            Self::PageReservation { order } => {
                FrameSource::Reserve { order, within: ExtentLimit::Anything, preempt: false }
            }
            _ => FrameSource::AsSized,
        }
    }

    pub(super) fn pool_settings(&self) -> Option<HugePagePoolSettings> {
        let (order, pages, own_region) = match *self {
            Self::HugeTlb { order, pages } => (order, pages, true),
            Self::Winwood { order, pages } => (order, pages, false),
            _ => return None,
        };
        Some(HugePagePoolSettings { order, pages, own_region })
    }

    /// The order of a heap after it grew by a mapping; `None` if the policy has no heaps. The
    /// kernel maps more than requested, up to a whole page of that order.
    pub(super) fn order_of_grown_heap(&self, heap: &HeapGrowth) -> Option<u8> {
        let Self::HpUx { ceiling, growths, .. } = *self else {
            return None;
        };
        let earned = u64::from(heap.growths / growths.max(1)).min(u8::MAX.into()) as u8;
        Some(heap.preferred.max(earned.min(ceiling)))
    }

    pub(super) fn full_block_action(&self) -> FullBlockAction {
        match self {
            Self::Navarro { .. } => FullBlockAction::Join,
            Self::Asap => FullBlockAction::Copy,
            _ => FullBlockAction::Stay,
        }
    }

    /// Number of misses, which a page of this order would have prevented, after which the kernel
    /// makes it. `None` if the policy does not count misses.
    pub(super) fn misses_before_promotion(&self, order: u8) -> Option<u64> {
        match self {
            Self::ApproxOnline { misses_per_page } => Some(u64::from(*misses_per_page) << order),
            _ => None,
        }
    }

    /// Number of references between two decisions by [`Self::should_be_large`], and the order of
    /// the large pages. `None` if the policy does not use references.
    pub(super) fn reference_window_and_order(&self) -> Option<(u64, u8)> {
        match *self {
            Self::HalfReferenced { order, references } => Some((references, order)),
            _ => None,
        }
    }

    /// Whether a page of `pages` base pages, `referred` of them in a window, should be large.
    pub(super) fn should_be_large(&self, referred: u64, pages: u64) -> bool {
        2 * referred >= pages
    }

    /// Settings of its daemon that frees larger blocks.
    pub(super) fn compaction_daemon_settings(&self) -> Option<CompactionDaemonSettings> {
        match *self {
            Self::Irix(daemon) => Some(daemon),
            Self::Navarro { daemon, .. } => daemon,
            _ => None,
        }
    }

    /// Checks that its settings fit the kernel's.
    pub(super) fn check_against_kernel(&self, settings: &KernelSettings) -> Result {
        let must = ItaniumError::require_setting;
        let large = |order: u8, what| {
            let fits = order > 0 && settings.orders.contains(order);
            let allowed = "one of the kernel's page sizes above its base page";
            must(fits, what, allowed)
        };
        let some = |number: u64, what| must(number > 0, what, "at least 1");
        match *self {
            Self::Cover | Self::Solaris | Self::Asap => Ok(()),
            Self::HugeTlb { order, pages } => {
                large(order, "the page size of the pool")?;
                some(pages.into(), "the number of pages in the pool")
            }
            Self::Winwood { order, pages } => {
                large(order, "the page size of the zone")?;
                some(pages.into(), "the number of pages in the zone")
            }
            Self::HpUx { ceiling, growths, short_percent } => {
                large(ceiling, "the largest page size of heaps")?;
                let what = "the growths before a larger page size of a heap";
                some(growths.into(), what)?;
                let what = "the share of free memory below which pages are smaller";
                must(short_percent <= 100, what, "0 to 100 %")
            }
            Self::Irix(daemon) => daemon.check(),
            Self::Navarro { daemon, .. } => daemon.map_or(Ok(()), |daemon| daemon.check()),
            Self::ApproxOnline { misses_per_page } => {
                let what = "the misses for each base page before a promotion";
                some(misses_per_page.into(), what)
            }
            Self::HalfReferenced { order, references } => {
                large(order, "the large page size")?;
                some(references, "the number of references in a window")
            }
            Self::PageReservation { order } => {
                let fits = (1..=8).contains(&order);
                must(fits, "the order of a block of pages", "1 to 8")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(preferred: u8, free_percent: u64) -> FirstTouchRequest {
        FirstTouchRequest { preferred, largest: 14, free_percent }
    }

    #[test]
    fn only_mappings_of_the_pools_order_get_its_pages() {
        let huge = PageSizePolicy::HugeTlb { order: 8, pages: 1 };
        let zone = PageSizePolicy::Winwood { order: 8, pages: 1 };
        for (preferred, asked) in [(0, false), (6, false), (8, true)] {
            let touch = touch(preferred, 50);
            let pool = |or_base| FrameSource::Pool { or_base };
            let supply = |or_base| {
                if asked { pool(or_base) } else { FrameSource::AsSized }
            };
            assert_eq!(huge.first_touch_frame_source(&touch), supply(false));
            assert_eq!(zone.first_touch_frame_source(&touch), supply(true));
        }
    }

    #[test]
    fn heaps_get_a_larger_order_after_every_few_growths() {
        let hp_ux = PageSizePolicy::HP_UX;
        let grown =
            |preferred, growths| hp_ux.order_of_grown_heap(&HeapGrowth { preferred, growths });
        let orders = [0, 3, 4, 7, 8, 1000].map(|growths| grown(0, growths));
        assert_eq!(orders, [0, 0, 1, 1, 2, 2].map(Some));
        // A hint above the ceiling stays.
        assert_eq!(grown(6, 8), Some(6));
        let order = |free_percent| match hp_ux.first_touch_frame_source(&touch(4, free_percent)) {
            FrameSource::Page { order, .. } => order,
            other => panic!("{other:?}"),
        };
        assert_eq!((order(5), order(4)), (4, 3));
    }

    #[test]
    fn the_daemon_moves_more_as_more_requests_fail() {
        let daemon = CompactionDaemonSettings::IRIX;
        let most = [1, 8, 9, 1000].map(|failures| daemon.most_moves_per_block(failures, 256));
        assert_eq!(most, [33, 33, 128, 128]);
    }

    #[test]
    fn navarro_reserves_up_to_the_limit() {
        let order = |limit| {
            let navarro = PageSizePolicy::Navarro { limit, daemon: None };
            match navarro.first_touch_frame_source(&touch(2, 50)) {
                FrameSource::Reserve { order, .. } => order,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((order(None), order(Some(4))), (14, 4));
    }

    #[test]
    fn a_page_with_half_referenced_is_large() {
        let rule = PageSizePolicy::HalfReferenced { order: 2, references: 1 };
        let large = [0, 1, 2, 3, 4].map(|referred| rule.should_be_large(referred, 4));
        assert_eq!(large, [false, false, true, true, true]);
    }
}
