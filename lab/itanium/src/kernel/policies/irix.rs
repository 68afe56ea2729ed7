//! N. Ganapathy and C. Schimmel, "General Purpose Operating System Support for Multiple Page Sizes" (USENIX 1998): IRIX 6.4, as in the
//! thesis' section 2.4.3.

use super::{Class, Coalescing, FirstTouch, PagePolicy, Supply, Within, must};
use crate::ItaniumError;
use crate::kernel::KernelSettings;
use serde::Serialize;

/// Page sizes are said for ranges of addresses (policy modules), tried at the first touch, and then smaller ones. A daemon moves
/// pages together for those that could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Irix {
    /// The daemon.
    pub daemon: Coalescing,
}

impl Default for Irix {
    /// "Varying levels of aggression depending on the current contiguity requirements" is all that the thesis says of the daemon; its numbers are
    /// chosen.
    fn default() -> Self {
        Self {
            daemon: Coalescing {
                every_faults: 64,
                mild_failures: 8,
                mild_percent: 13,
                strong_percent: 50,
            },
        }
    }
}

impl PagePolicy for Irix {
    fn class(&self) -> Class {
        Class::Dynamic
    }

    fn first_touch(&self, touch: &FirstTouch) -> Supply {
        Supply::Page {
            order: touch.preferred,
            within: Within::Mapping,
        }
    }

    fn coalescing(&self) -> Option<Coalescing> {
        Some(self.daemon)
    }

    fn check(&self, _: &KernelSettings) -> Result<(), ItaniumError> {
        check_daemon(&self.daemon)
    }
}

pub(super) fn check_daemon(daemon: &Coalescing) -> Result<(), ItaniumError> {
    must(
        daemon.every_faults > 0,
        "the page faults between two looks of the daemon",
        "at least 1",
    )?;
    must(
        daemon.mild_percent <= daemon.strong_percent && daemon.strong_percent <= 100,
        "what the daemon moves of a block",
        "0 to 100 %, and no less if more requests failed",
    )
}
