//! What a policy asks for.

use crate::observation::ProcessId;
use crate::page::{PageOrder, PageOrders, RegionAddr};
use crate::reason::Reason;

/// Page sizes that a process's memory should be given at first touches from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultSizes {
    /// Sizes under that of a huge page: the largest one that fits is given, or the next one that memory is there for.
    pub orders: PageOrders,
    /// Why.
    pub reason: Reason,
}

/// A region that a policy wants promoted next.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    /// Whose region.
    pub process: ProcessId,
    /// Which: the first one, where the page is larger than a region.
    pub region: RegionAddr,
    /// By pages of which size. Smaller ones than a region replace what is present in it, block by aligned block; what has
    /// nothing present stays empty.
    pub order: PageOrder,
    /// Base pages present in the region when it was chosen; a machine refuses if the owner has freed some since.
    pub expected_present: u16,
    /// CPU time that the promotion is expected to save, in microseconds a second; `None` where the
    /// policy does not estimate it.
    pub saved_us_per_s: Option<f64>,
    /// Why.
    pub reason: Reason,
}
