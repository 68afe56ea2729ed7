//! HawkEye at a fault: memory that was zeroed in advance (paper, section 3.1). Its promotions and its recovery are
//! policies.

use super::{FaultPolicy, FirstTouch, MTHP_SIZES, Zeroing};
use crate::kernel::HugeAdvice;
use hawkeye_policy::PageOrders;

/// HawkEye-4KB: base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HawkEyeBase;

impl FaultPolicy for HawkEyeBase {
    fn name(&self) -> &'static str {
        "hawkeye-4kb"
    }

    fn first_touch(&self, _advice: HugeAdvice) -> FirstTouch {
        FirstTouch::Base
    }

    fn zeroing(&self) -> Zeroing {
        Zeroing::InAdvance
    }
}

/// HawkEye-2MB: a huge page at the first fault while there are any; nobody waits for compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HawkEyeHuge;

impl FaultPolicy for HawkEyeHuge {
    fn name(&self) -> &'static str {
        "hawkeye-2mb"
    }

    fn first_touch(&self, advice: HugeAdvice) -> FirstTouch {
        match advice {
            HugeAdvice::NoHuge => FirstTouch::Base,
            HugeAdvice::None | HugeAdvice::Huge => FirstTouch::Huge { compact: false },
        }
    }

    fn zeroing(&self) -> Zeroing {
        Zeroing::InAdvance
    }
}

/// HawkEye on a kernel with pages of many sizes: at first touches base pages, or what the manager chooses for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HawkEyeSizes;

impl FaultPolicy for HawkEyeSizes {
    fn name(&self) -> &'static str {
        "hawkeye-sizes"
    }

    fn first_touch(&self, _advice: HugeAdvice) -> FirstTouch {
        FirstTouch::Base
    }

    fn offered_sizes(&self) -> PageOrders {
        MTHP_SIZES
    }

    fn zeroing(&self) -> Zeroing {
        Zeroing::InAdvance
    }
}
