//! T. Romer, W. Ohlrich, A. Karlin and B. Bershad, "Reducing TLB and Memory Overhead Using Online
//! Superpage Promotion" (ISCA 1995), as in the thesis' section 2.3.2. The problem is that of when
//! to buy skis. The third policy, `online`, takes "multiple thousands of cycles" for each miss; it
//! is left out, as there.

use super::{FullBlockAction, PageSizeRules, check_setting};
use crate::address::BasePage;
use crate::error::Result;
use crate::kernel::KernelSettings;
use crate::mmu::{EventCosts, WalkerMode};

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
