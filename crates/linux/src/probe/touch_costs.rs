//! Costs of first touches.

use serde::Deserialize;

/// Costs of first touches, from the times of two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct TouchCosts {
    /// Cost of a fault that maps one page, without zeroing it, in nanoseconds.
    pub fault_ns: f64,
    /// Cost of zeroing a base page, in nanoseconds.
    pub zero_base_ns: f64,
    /// Cost of the first touch of a base page that is mapped already, in nanoseconds. It includes a
    /// page walk and, where a hypervisor shadows page tables, an exit to it.
    pub touch_ns: f64,
}

impl TouchCosts {
    /// Whether all times are above 0.
    pub(crate) fn is_sound(self) -> bool {
        let all = [self.fault_ns, self.zero_base_ns, self.touch_ns];
        all.into_iter().all(|ns| ns > 0.0 && ns.is_finite())
    }
}
