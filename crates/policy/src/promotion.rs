//! Requests of a policy.

use crate::file_region::FileRegion;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::ProcessId;
use crate::page::{PageOrder, PageOrderSet, RegionAddr};
use crate::reason::Reason;
use std::time::Duration;

/// Page sizes that a process's memory should get at first touches from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultSizes {
    /// Sizes below that of a huge page. The kernel uses the largest one that fits, or the next one
    /// for which there is memory.
    pub orders: PageOrderSet,
    /// The reason.
    pub reason: Reason,
}

/// A region that a policy wants promoted next.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    /// The process.
    pub process: ProcessId,
    /// The region; the first one, where the page is larger than a region.
    pub region: RegionAddr,
    /// Size of the new pages. Sizes smaller than a region replace what is present in it, block by
    /// aligned block. Blocks with nothing present stay empty.
    pub order: PageOrder,
    /// Base pages present in the region when it was chosen. A machine refuses the promotion if the
    /// process has freed some since.
    pub expected_present: u16,
    /// Of shared memory: which part of which file it was when it was chosen. A machine refuses the
    /// promotion if it is another one now. `None`: private memory.
    pub file: Option<FileRegion>,
    /// CPU time that the promotion is expected to save, in microseconds per second. `None` where
    /// the policy does not estimate it.
    pub saved_us_per_s: Option<f64>,
    /// The reason.
    pub reason: Reason,
}

impl Promotion {
    /// A promotion to a huge page, by a policy that does not estimate what it saves.
    pub fn to_huge_page(
        process: ProcessId,
        region: RegionAddr,
        expected_present: u16,
        file: Option<FileRegion>,
        reason: Reason,
    ) -> Self {
        let order = PageOrder::HUGE;
        Self { process, region, order, expected_present, file, saved_us_per_s: None, reason }
    }
}

/// What a promotion cost.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredPromotionCost {
    /// CPU time of its call. The call may take much longer, because it waits for the process's
    /// locks.
    pub cpu: Duration,
    /// How the kernel got its huge page.
    pub supply: HugePageReadiness,
}
