//! FreeBSD's reservations (`sys/vm/vm_reserv.c`; Navarro et al., OSDI'02).
//!
//! The kernel reserves a huge frame at the first fault in a region, maps base pages in it as they are touched, makes
//! it a huge page when all 512 are there, and gives the rest of the least recently used reservation back
//! when memory is short.

use super::{FaultPolicy, FirstTouch};
use crate::kernel::HugeAdvice;

/// Reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeBsd;

impl FaultPolicy for FreeBsd {
    fn name(&self) -> &'static str {
        "freebsd"
    }

    fn first_touch(&self, _advice: HugeAdvice) -> FirstTouch {
        FirstTouch::Reserve
    }

    /// `vm_fault` zero-fills a page of its own for reads too.
    fn shares_zero_page(&self) -> bool {
        false
    }
}
