//! S. Winwood, Y. Shuf and H. Franke, "Multiple Page Size Support in the Linux Kernel" (Ottawa
//! Linux Symposium, 2002), as in the thesis' section 2.4.1.

use super::{
    FirstTouchRequest, FrameSource, PageSizeRules, PoolSettings, check_large_order, check_setting,
    from_pool,
};
use crate::error::Result;
use crate::kernel::KernelSettings;

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
