//! Linux with folios of many sizes for anonymous memory (mTHP; since 6.8, `Documentation/admin-guide/mm/transhuge.rst`).

use super::{FaultPolicy, FirstTouch, LinuxThp};
use crate::kernel::HugeAdvice;
use hawkeye_policy::{PageOrder, PageOrders};

/// 16 KiB to 1 MiB: all that there is under a huge page. Anonymous folios of two pages can't be
/// (`THP_ORDERS_ALL_ANON` of `include/linux/huge_mm.h`).
pub const MTHP_SIZES: PageOrders = {
    let mut sizes = PageOrders::NONE;
    let mut number = 2;
    while number < PageOrder::HUGE.number() as u8 {
        if let Some(order) = PageOrder::new(number) {
            sizes = sizes.with(order);
        }
        number += 1;
    }
    sizes
};

/// What is given at first touches to everybody who didn't refuse (`hugepages-*kB/enabled` is `always`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxMthp {
    /// Huge pages, if any are given.
    pub huge: Option<LinuxThp>,
    /// Sizes under that. Nobody waits for compaction for them.
    pub sizes: PageOrders,
}

impl FaultPolicy for LinuxMthp {
    fn name(&self) -> &'static str {
        match self.huge {
            Some(_) => "linux-mthp",
            None => "linux-mthp-small",
        }
    }

    fn first_touch(&self, advice: HugeAdvice) -> FirstTouch {
        let huge = self.huge.map(|huge| huge.first_touch(advice));
        huge.unwrap_or(FirstTouch::Base)
    }

    fn sizes(&self, advice: HugeAdvice) -> PageOrders {
        match advice {
            HugeAdvice::NoHuge => PageOrders::NONE,
            HugeAdvice::None | HugeAdvice::Huge => self.sizes,
        }
    }
}
