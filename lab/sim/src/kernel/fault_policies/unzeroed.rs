//! Linux that doesn't zero memory at all: the last two columns of the paper's Table 1.

use super::{FaultPolicy, FirstTouch, LinuxThp, Zeroing};
use crate::kernel::HugeAdvice;

/// Which pages it maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unzeroed {
    /// Base pages.
    Base,
    /// Huge pages, as [`LinuxThp`] does.
    Huge,
}

impl FaultPolicy for Unzeroed {
    fn name(&self) -> &'static str {
        match self {
            Self::Base => "linux-4kb-unzeroed",
            Self::Huge => "linux-2mb-unzeroed",
        }
    }

    fn first_touch(&self, advice: HugeAdvice) -> FirstTouch {
        match self {
            Self::Base => FirstTouch::Base,
            Self::Huge => LinuxThp::default().first_touch(advice),
        }
    }

    fn zeroing(&self) -> Zeroing {
        Zeroing::Never
    }
}
