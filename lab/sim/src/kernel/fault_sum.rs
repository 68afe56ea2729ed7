//! Faults of one call.

use super::space::Faults;
use std::time::Duration;

/// What the faults of one call add up to.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) time: Duration,
    pub(super) faults: Faults,
    pub(super) zeroed: u64,
    pub(super) cold: u64,
}
