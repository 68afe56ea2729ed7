//! Linux without huge pages (`enabled` is `never`): the paper's Linux-4KB.

use super::{FaultPolicy, FirstTouch};
use crate::kernel::HugeAdvice;

/// Base pages always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxBase;

impl FaultPolicy for LinuxBase {
    fn name(&self) -> &'static str {
        "linux-4kb"
    }

    fn first_touch(&self, _advice: HugeAdvice) -> FirstTouch {
        FirstTouch::Base
    }
}
