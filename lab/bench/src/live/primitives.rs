//! Figures of the primitives alone, for comparison with what the manager makes of them.

use crate::error::BenchError;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::remote_advice;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

const MAX_TRIES: u32 = 5;

/// Collapses every region of `range` with nothing in between; returns how long that took.
pub fn collapse_all(process: &ProcessHandle, range: Range<u64>) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    for start in range.step_by(HUGE_PAGE_BYTES as usize) {
        let region = RegionAddr::containing(start);
        // Pages that were just touched may still be on their way to the LRU list.
        let mut tries = 0;
        while let Err(error) = remote_advice::collapse(process, region) {
            tries += 1;
            if tries == MAX_TRIES {
                return Err(error.into());
            }
        }
    }
    Ok(begun.elapsed())
}
