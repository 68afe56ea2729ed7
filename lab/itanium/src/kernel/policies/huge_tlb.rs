//! HugeTLB (thesis, sections 2.4.1 and 3.5).

use super::{
    FirstTouchRequest, FrameSource, PageSizeRules, PoolSettings, check_large_order, check_setting,
    from_pool,
};
use crate::error::Result;
use crate::kernel::KernelSettings;

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
