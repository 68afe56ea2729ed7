//! I. Subramanian, C. Mather, K. Peterson and B. Raghunath, "Implementation of Multiple Pagesize
//! Support in HP-UX" (USENIX 1998), as in the thesis' section 2.4.2.

use super::{
    ExtentLimit, FirstTouchRequest, FrameSource, HeapGrowth, PageSizeRules, check_large_order,
    check_setting,
};
use crate::error::Result;
use crate::kernel::KernelSettings;

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
