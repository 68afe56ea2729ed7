//! Solaris 9's MPSS (thesis, section 2.4.1): `ppgsz(1)`, `mpss.so.1(1)` and `memcntl(2)`.

use super::{ExtentLimit, FirstTouchRequest, FrameSource, PageSizeRules};

/// A program, or its administrator, prefers a page size for a mapping. The kernel tries that size
/// at the first touch, and then smaller ones. The thesis puts this among the global policies,
/// beside Solaris' older shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solaris;

impl PageSizeRules for Solaris {
    fn first_touch(&self, touch: &FirstTouchRequest) -> FrameSource {
        FrameSource::Page {
            order: touch.preferred,
            within: ExtentLimit::Mapping,
        }
    }
}
