//! J. Navarro, S. Iyer, P. Druschel and A. Cox, "Practical, transparent operating system support
//! for superpages" (OSDI 2002), with all available page sizes; as in the thesis' section 2.4.3.

use super::irix::check_daemon;
use super::{
    CompactionSettings, ExtentLimit, FirstTouchRequest, FrameSource, FullBlockAction, PageSizeRules,
};
use crate::error::Result;
use crate::kernel::KernelSettings;

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
