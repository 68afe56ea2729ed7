//! M. Talluri, S. Kong, M. Hill and D. Patterson, "Tradeoffs in Supporting Two Page Sizes" (ISCA
//! 1992); M. Talluri and M. Hill, "Surpassing the TLB Performance of Superpages with Less Operating
//! System Support" (ASPLOS 1994). The thesis cites both (sections 2.2 and 2.4) without their rules.

use super::{
    ExtentLimit, FirstTouchRequest, FrameSource, PageSizeRules, check_large_order, check_setting,
};
use crate::error::Result;
use crate::kernel::KernelSettings;

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
