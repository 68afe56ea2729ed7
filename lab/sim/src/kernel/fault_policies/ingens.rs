//! Ingens at a fault: base pages only (`__handle_mm_fault` in its deferred modes). Its promotions are the
//! policy `ingens`.

use super::{FaultPolicy, FirstTouch};
use crate::kernel::HugeAdvice;

/// Base pages always; huge pages come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngensFaults;

impl FaultPolicy for IngensFaults {
    fn name(&self) -> &'static str {
        "ingens"
    }

    fn first_touch(&self, _advice: HugeAdvice) -> FirstTouch {
        FirstTouch::Base
    }

    /// `population_node`: a bit is set in `do_anonymous_page`, and cleared by `munmap` and `MADV_DONTNEED`.
    fn counts_faulted(&self) -> bool {
        true
    }
}
