//! Work that is done one slice at a time.

use crate::error::Result;
use crate::promote::target_call::TargetCalls;
use hawkeye_manager::SliceProgress;
use std::time::Instant;

/// Result of a slice, or why it failed.
pub type SliceResult<T> = Result<SliceProgress<T>>;

/// The deadline of a slice, and the calls that it may make.
pub struct SliceContext<'a> {
    /// Calls that take locks of the process.
    pub calls: &'a mut TargetCalls,
    /// End of the slice.
    pub deadline: Instant,
}
