//! Linux with transparent huge pages: the paper's Linux-2MB (`Documentation/admin-guide/mm/transhuge.rst`).
//!
//! What khugepaged does is the policy `linux`.

use super::{FaultPolicy, FirstTouch};
use crate::kernel::HugeAdvice;

/// Who gets huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Everybody who didn't refuse.
    #[default]
    Always,
    /// Who asked for them.
    Madvise,
}

/// Who waits for compaction in a fault (`.../defrag`). Where nobody waits the background may compact:
/// [`Kernel::step`](crate::kernel::Kernel::step) doesn't, khugepaged's promotions do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defrag {
    /// Everybody: the default until Linux 4.6, and in the paper.
    #[default]
    Always,
    /// Nobody; memory is compacted in the background.
    Defer,
    /// Who asked for huge pages; the default since.
    Madvise,
    /// Nobody.
    Never,
}

/// A huge page at the first fault if one is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxThp {
    /// Who gets huge pages.
    pub enabled: Enabled,
    /// Who waits for compaction.
    pub defrag: Defrag,
}

impl FaultPolicy for LinuxThp {
    fn name(&self) -> &'static str {
        "linux-2mb"
    }

    fn first_touch(&self, advice: HugeAdvice) -> FirstTouch {
        let asked = advice == HugeAdvice::Huge;
        let gets = advice != HugeAdvice::NoHuge && (asked || self.enabled == Enabled::Always);
        if !gets {
            return FirstTouch::Base;
        }
        let compact = match self.defrag {
            Defrag::Always => true,
            Defrag::Madvise => asked,
            Defrag::Defer | Defrag::Never => false,
        };
        FirstTouch::Huge { compact }
    }
}
