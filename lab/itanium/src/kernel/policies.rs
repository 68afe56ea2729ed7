//! Page-size policies: the systems that the thesis classifies (section 2.4). Each policy only
//! decides; the kernel around it carries the decisions out and keeps the state.
//!
//! The machine's [`PageSizeAdvice`](crate::PageSizeAdvice) holds the page sizes that programs and
//! their administrators ask for. Each policy states whether it uses them.

use super::KernelSettings;
use crate::address::BasePage;
use crate::error::{ItaniumError, Result};
use crate::mmu::{EventCosts, WalkerMode};
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

// The thesis' own policy (section 5.5.4): the rule of N. Shimizu and K. Takatori's patches (2003)
// on Itanium.

/// `mmap` covers a mapping by the largest pages that are aligned and fit. Each page gets its memory
/// at its first touch, or is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover;

impl PageSizeRules for Cover {
    fn sizes_at_map(&self) -> bool {
        true
    }
}

// HugeTLB (thesis, sections 2.4.1 and 3.5).

/// The administrator has pages of one size set aside when the machine starts, and programs request
/// them by name. Mappings on them lie in a region of their own, with that page size in its region
/// register. The hardware's walker therefore fills them as it does base pages elsewhere. Such
/// mappings have no other memory: a program that touches more than the pool has is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeTlb {
    /// Order of the pool's pages. 256 MiB each is Itanium's default (section 3.5.3).
    pub order: u8,
    /// Number of pages (`nr_hugepages`).
    pub pages: u32,
}

impl PageSizeRules for HugeTlb {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        from_pool(touch, self.order, false)
    }

    fn pool_settings(&self) -> Option<PoolSettings> {
        Some(PoolSettings {
            order: self.order,
            pages: self.pages,
            own_region: true,
        })
    }

    fn check(&self, settings: &KernelSettings) -> Result {
        check_large_order(self.order, settings, "the page size of the pool")?;
        check_setting(
            self.pages > 0,
            "the number of pages in the pool",
            "at least 1",
        )
    }
}

// S. Winwood, Y. Shuf and H. Franke, "Multiple Page Size Support in the Linux Kernel" (Ottawa
// Linux Symposium, 2002), as in the thesis' section 2.4.1.

/// A program sets the page size of a mapping (`madvise`). Such pages come from a zone that nothing
/// else uses. There is one size, as in the paper on x86 (4 MiB). The thesis does not state what
/// happens where the zone is empty, or at the ends of a mapping; chosen: base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Winwood {
    /// Order of the zone's pages.
    pub order: u8,
    /// Number of its pages.
    pub pages: u32,
}

impl PageSizeRules for Winwood {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        from_pool(touch, self.order, true)
    }

    fn pool_settings(&self) -> Option<PoolSettings> {
        Some(PoolSettings {
            order: self.order,
            pages: self.pages,
            own_region: false,
        })
    }

    fn check(&self, settings: &KernelSettings) -> Result {
        check_large_order(self.order, settings, "the page size of the zone")?;
        check_setting(
            self.pages > 0,
            "the number of pages in the zone",
            "at least 1",
        )
    }
}

// Solaris 9's MPSS (thesis, section 2.4.1): `ppgsz(1)`, `mpss.so.1(1)` and `memcntl(2)`.

/// A program, or its administrator, prefers a page size for a mapping. The kernel tries that size
/// at the first touch, and then smaller ones. The thesis puts this among the global policies,
/// beside Solaris' older shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solaris;

impl PageSizeRules for Solaris {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        FrameSource::Page {
            order: touch.preferred,
            within: ExtentLimit::Mapping,
        }
    }
}

// I. Subramanian, C. Mather, K. Peterson and B. Raghunath, "Implementation of Multiple Pagesize
// Support in HP-UX" (USENIX 1998), as in the thesis' section 2.4.2.

/// A hint in a program's file (`chatr +pd`) is the page size of all its mappings, unless memory is
/// short. Heaps that keep growing get larger pages without a hint, and more than they request.
///
/// The thesis does not state when a heap gets larger pages, nor when memory is short. Both are
/// chosen, with the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HpUx {
    /// The largest order that the kernel chooses by itself (`vps_ceiling`).
    pub ceiling: u8,
    /// Growths after which a heap's order goes up, and further growths for each further order.
    pub growths: u32,
    /// With less free memory, in per cent, pages are one size smaller.
    pub short_percent: u8,
}

impl Default for HpUx {
    /// Four base pages (HP-UX 11 tunables, docs.hp.com: 16 KiB with 4 KiB pages).
    fn default() -> Self {
        Self {
            ceiling: 2,
            growths: 4,
            short_percent: 5,
        }
    }
}

impl PageSizeRules for HpUx {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        let short = touch.free_percent < u64::from(self.short_percent);
        FrameSource::Page {
            order: touch.preferred.saturating_sub(short.into()),
            within: ExtentLimit::Neighbours,
        }
    }

    fn heap_order(&self, heap: &HeapGrowth) -> Option<u8> {
        let earned = u64::from(heap.growths / self.growths.max(1)).min(u8::MAX.into()) as u8;
        Some(heap.preferred.max(earned.min(self.ceiling)))
    }

    fn check(&self, settings: &KernelSettings) -> Result {
        check_large_order(self.ceiling, settings, "the largest page size of heaps")?;
        let grows = self.growths > 0;
        check_setting(
            grows,
            "the growths before a larger page size of a heap",
            "at least 1",
        )?;
        let share = self.short_percent <= 100;
        check_setting(
            share,
            "the share of free memory below which pages are smaller",
            "0 to 100 %",
        )
    }
}

// N. Ganapathy and C. Schimmel, "General Purpose Operating System Support for Multiple Page Sizes"
// (USENIX 1998): IRIX 6.4, as in the thesis' section 2.4.3.

/// Policy modules set page sizes for ranges of addresses. The first touch tries the size of its
/// range, then smaller ones. A daemon moves pages to free blocks for requests that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Irix {
    /// Settings of the daemon.
    pub daemon: CompactionSettings,
}

impl Default for Irix {
    /// The thesis describes the daemon only by "varying levels of aggression depending on the
    /// current contiguity requirements"; its numbers are chosen.
    fn default() -> Self {
        Self {
            daemon: CompactionSettings {
                every_faults: 64,
                mild_failures: 8,
                mild_percent: 13,
                strong_percent: 50,
            },
        }
    }
}

impl PageSizeRules for Irix {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        FrameSource::Page {
            order: touch.preferred,
            within: ExtentLimit::Mapping,
        }
    }

    fn compaction_daemon(&self) -> Option<CompactionSettings> {
        Some(self.daemon)
    }

    fn check(&self, _: &KernelSettings) -> Result {
        check_daemon(&self.daemon)
    }
}

fn check_daemon(daemon: &CompactionSettings) -> Result {
    let what = "the page faults between two passes of the daemon";
    check_setting(daemon.every_faults > 0, what, "at least 1")?;
    let fits = daemon.mild_percent <= daemon.strong_percent && daemon.strong_percent <= 100;
    let what = "the share of a block that the daemon moves";
    check_setting(fits, what, "0 to 100 %, and no less under stronger demand")
}

// J. Navarro, S. Iyer, P. Druschel and A. Cox, "Practical, transparent operating system support
// for superpages" (OSDI 2002), with all available page sizes; as in the thesis' section 2.4.3.

/// The first touch reserves memory for the largest page that is aligned, lies in the mapping, and
/// overlaps no other reservation. Base pages get their places in it as they are touched. Pages
/// grow, size by size, as all of the next larger one has memory. If memory is short, the kernel
/// gives up the reservation with the longest time since its last page. It also gives up
/// reservations that a call cuts.
///
/// Left out: demotion of pages that are no longer used, or written to for the first time (there are
/// no access and dirty bits here).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Navarro {
    /// The largest order that is reserved; `None` for all orders that the kernel may use.
    pub limit: Option<u8>,
    /// The authors' contiguity daemon, if it runs; the same as that of IRIX.
    pub daemon: Option<CompactionSettings>,
}

impl PageSizeRules for Navarro {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        FrameSource::Reserve {
            order: self.limit.unwrap_or(touch.largest),
            within: ExtentLimit::Mapping,
            preempt: true,
        }
    }

    fn full_block_action(&self) -> FullBlockAction {
        FullBlockAction::Join
    }

    fn compaction_daemon(&self) -> Option<CompactionSettings> {
        self.daemon
    }

    fn check(&self, _: &KernelSettings) -> Result {
        self.daemon.as_ref().map_or(Ok(()), check_daemon)
    }
}

// T. Romer, W. Ohlrich, A. Karlin and B. Bershad, "Reducing TLB and Memory Overhead Using Online
// Superpage Promotion" (ISCA 1995), as in the thesis' section 2.3.2. The problem is that of when
// to buy skis. The third policy, `online`, takes "multiple thousands of cycles" for each miss; it
// is left out, as there.

/// The kernel makes a larger page by copying as soon as all of it has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asap;

impl PageSizeRules for Asap {
    fn full_block_action(&self) -> FullBlockAction {
        FullBlockAction::Copy
    }
}

/// A miss counts for each larger page around it of which another part is in the TLB: that page
/// would have prevented the miss. The kernel makes a page, by copying, when its misses have cost as
/// much as the copy.
///
/// The kernel must see misses: those that a hardware walker fills do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApproxOnline {
    /// Counted misses for each base page that would be copied.
    pub misses_per_page: u32,
}

impl ApproxOnline {
    /// The threshold at which the misses have cost as much as the promotion, or `percent` per cent
    /// of that. At 100 per cent the total is at most twice the best possible cost (`threshold` =
    /// cost of promotion / cost of a miss). Fang et al. (HPCA 2001; thesis, section 2.3.2) found
    /// low thresholds better on processors that execute several instructions at a time.
    pub fn ski_rental(
        costs: &EventCosts,
        walker: WalkerMode,
        base: BasePage,
        percent: u32,
    ) -> Self {
        let copy = costs.copied_byte * base.bytes() as f64;
        let misses = copy / costs.software_miss_cycles(walker) * f64::from(percent) / 100.0;
        Self {
            misses_per_page: misses.round().clamp(1.0, f64::from(u32::MAX)) as u32,
        }
    }
}

impl PageSizeRules for ApproxOnline {
    fn promotion_threshold(&self, order: u8) -> Option<u64> {
        Some(u64::from(self.misses_per_page) << order)
    }

    fn check(&self, _: &KernelSettings) -> Result {
        let what = "the misses for each base page before a promotion";
        check_setting(self.misses_per_page > 0, what, "at least 1")
    }
}

// M. Talluri, S. Kong, M. Hill and D. Patterson, "Tradeoffs in Supporting Two Page Sizes" (ISCA
// 1992); M. Talluri and M. Hill, "Surpassing the TLB Performance of Superpages with Less Operating
// System Support" (ASPLOS 1994). The thesis cites both (sections 2.2 and 2.4) without their rules.

/// 1992: a page is large while at least half of it is being referred to. This rule is for traces
/// and "may not reflect a real operating system's policy" (abstract), because no kernel sees
/// references. Here, observing references costs nothing.
///
/// The paper's sizes were 4 and 32 KiB; Itanium lacks the latter. The window is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfReferenced {
    /// The large order.
    pub order: u8,
    /// References in a window.
    pub references: u64,
}

impl PageSizeRules for HalfReferenced {
    fn reference_window(&self) -> Option<(u64, u8)> {
        Some((self.references, self.order))
    }

    fn should_be_large(&self, referred: u64, pages: u64) -> bool {
        2 * referred >= pages
    }

    fn check(&self, settings: &KernelSettings) -> Result {
        check_large_order(self.order, settings, "the large page size")?;
        let some = self.references > 0;
        check_setting(some, "the number of references in a window", "at least 1")
    }
}

/// 1994: page reservation. The first touch of a block of addresses reserves an aligned block of
/// memory, and base pages get their places in it. One entry of a TLB with sub-blocks
/// ([`crate::mmu::ItaniumProcessorSpec::sub_block_order`]) thus holds them all. Nothing is
/// promoted.
/// The kernel gives up reservations where memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageReservation {
    /// Order of a block, equal to that of the TLB's sub-blocks.
    pub order: u8,
}

impl PageSizeRules for PageReservation {
    fn first_touch(&self, _: &FirstTouchRequest) -> FrameSource {
        FrameSource::Reserve {
            order: self.order,
            within: ExtentLimit::Anything,
            preempt: false,
        }
    }

    fn check(&self, _: &KernelSettings) -> Result {
        let fits = (1..=8).contains(&self.order);
        check_setting(fits, "the order of a block of pages", "1 to 8")
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
