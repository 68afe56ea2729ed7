//! What a kernel does at a page fault: one file for each system.

mod freebsd;
mod hawkeye;
mod ingens;
mod linux_base;
mod linux_mthp;
mod linux_thp;
mod unzeroed;

pub use freebsd::FreeBsd;
pub use hawkeye::{HawkEyeBase, HawkEyeHuge, HawkEyeSizes};
pub use ingens::IngensFaults;
pub use linux_base::LinuxBase;
pub use linux_mthp::{LinuxMthp, MTHP_SIZES};
pub use linux_thp::{Defrag, Enabled, LinuxThp};
pub use unzeroed::Unzeroed;

use super::HugeAdvice;
use hawkeye_policy::PageOrders;
use std::fmt::Debug;

/// How a region in which nothing is mapped yet gets its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstTouch {
    /// By a base page.
    Base,
    /// By a huge page, if a huge frame is free; else by a base page.
    Huge {
        /// Whether to compact memory for one first.
        compact: bool,
    },
    /// By a base page in a huge frame that is reserved for the region.
    Reserve,
}

/// When memory is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// In the fault.
    InFault,
    /// In the fault, unless it was zeroed in advance.
    InAdvance,
    /// Never. Nobody runs that: it shows what zeroing costs (paper, Table 1).
    Never,
}

/// What a kernel does at a page fault.
pub trait FaultPolicy: Debug + Send + Sync {
    /// Its name in tables and on the command line.
    fn name(&self) -> &'static str;

    /// Asked at the first fault in a region that one mapping holds in full and that has nothing in it.
    fn first_touch(&self, advice: HugeAdvice) -> FirstTouch;

    /// Sizes under that of a huge page that a first touch maps where it maps no huge page: the largest that fits and that
    /// memory is free for. Not asked for processes that were given sizes of their own
    /// ([`Kernel::set_fault_sizes`](super::Kernel::set_fault_sizes)).
    fn sizes(&self, _advice: HugeAdvice) -> PageOrders {
        PageOrders::NONE
    }

    /// Sizes that a process can be given of its own.
    fn offered_sizes(&self) -> PageOrders {
        PageOrders::NONE
    }

    /// When memory is zeroed.
    fn zeroing(&self) -> Zeroing {
        Zeroing::InFault
    }

    /// Whether it keeps a bitmap of pages that were faulted in and not freed, so that what a promotion filled up is not
    /// taken for use.
    fn counts_faulted(&self) -> bool {
        false
    }

    /// Whether a read of untouched memory maps a page of zeros that all share.
    fn shares_zero_page(&self) -> bool {
        true
    }
}
