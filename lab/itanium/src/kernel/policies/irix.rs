//! N. Ganapathy and C. Schimmel, "General Purpose Operating System Support for Multiple Page Sizes"
//! (USENIX 1998): IRIX 6.4, as in the thesis' section 2.4.3.

use super::{
    CompactionSettings, ExtentLimit, FirstTouchRequest, FrameSource, PageSizeRules, check_setting,
};
use crate::error::Result;
use crate::kernel::KernelSettings;

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

pub(super) fn check_daemon(daemon: &CompactionSettings) -> Result {
    let what = "the page faults between two passes of the daemon";
    check_setting(daemon.every_faults > 0, what, "at least 1")?;
    let fits = daemon.mild_percent <= daemon.strong_percent && daemon.strong_percent <= 100;
    let what = "the share of a block that the daemon moves";
    check_setting(fits, what, "0 to 100 %, and no less under stronger demand")
}
