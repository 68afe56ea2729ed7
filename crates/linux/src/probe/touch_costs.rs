//! What first touches cost.

use serde::Deserialize;

/// What first touches cost, out of the times of two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct TouchCosts {
    /// A fault that maps one page, without zeroing it, in nanoseconds.
    pub fault_ns: f64,
    /// Zeroing a base page.
    pub zero_base_ns: f64,
    /// Touching a base page for the first time that is mapped already: a page walk, and where a hypervisor shadows page
    /// tables an exit to it.
    pub touch_ns: f64,
}

impl TouchCosts {
    /// Whether all are times over 0.
    pub(crate) fn is_sound(self) -> bool {
        let all = [self.fault_ns, self.zero_base_ns, self.touch_ns];
        all.into_iter().all(|ns| ns > 0.0 && ns.is_finite())
    }
}
