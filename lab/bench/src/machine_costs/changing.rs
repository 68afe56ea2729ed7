//! Collapsing regions and splitting huge pages, by the calls that live management makes.

use super::memory::{Memory, PAGE, Pages, REGION, nanoseconds};
use super::{Found, Spread, not_here};
use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::process::own_huge_bytes;
use hawkeye_policy::PAGES_PER_REGION;
use std::time::Instant;

/// Regions that are collapsed and split: each is a turn of its own.
const REGIONS: usize = 64;
/// Pages that were just touched may be on their way to the LRU list, where they can't be collapsed.
const TRIES: usize = 5;

/// A region each.
#[derive(Debug)]
pub struct ChangeCosts {
    /// Making a region of 512 base pages huge.
    pub collapse: Found,
    /// Splitting a huge page of which every base page is in use.
    pub split_used: Found,
    /// Splitting one of which a single base page is in use: 511 become the shared zero page.
    pub split_zero: Found,
}

/// Measures.
pub fn measure() -> ChangeCosts {
    ChangeCosts {
        collapse: collapse(),
        split_used: split(|memory| {
            memory.touch(PAGE, 1);
        }),
        split_zero: split(|memory| {
            memory.touch(REGION, 1);
        }),
    }
}

fn collapse() -> Found {
    let memory = Memory::written(REGIONS * REGION, Pages::Base)?;
    // Forbidden so far, so that it was touched as base pages.
    memory.advise(0, memory.bytes(), libc::MADV_HUGEPAGE)?;
    let mut took = Vec::new();
    for region in 0..REGIONS {
        for _ in 0..TRIES {
            let begun = Instant::now();
            let done = memory.advise(region * REGION, REGION, libc::MADV_COLLAPSE);
            if done.is_ok() {
                took.push(nanoseconds(begun));
                break;
            }
        }
    }
    if took.len() < REGIONS / 2 {
        return Err(not_here("MADV_COLLAPSE makes hardly any region huge here"));
    }
    Ok(Spread::of(took))
}

fn split(fill: impl Fn(&Memory)) -> Found {
    let before = own_huge_bytes()?;
    let memory = Memory::map(REGIONS * REGION, Pages::Huge)?;
    fill(&memory);
    let huge = own_huge_bytes()?.saturating_sub(before);
    if huge < (REGIONS / 2 * REGION) as u64 {
        return Err(not_here(
            "the kernel gives no huge pages at faults to be split",
        ));
    }
    let mut took = Vec::new();
    for region in 0..REGIONS {
        let begun = Instant::now();
        memory.advise(region * REGION, PAGE, libc::MADV_COLD)?;
        took.push(nanoseconds(begun));
    }
    let left = own_huge_bytes()?.saturating_sub(before);
    if left > huge / 10 {
        return Err(not_here(
            "MADV_COLD on a base page does not split its huge page here",
        ));
    }
    Ok(Spread::of(took))
}

/// Base pages of a region that become the zero page in [`ChangeCosts::split_zero`].
pub const REMAPPED: u16 = PAGES_PER_REGION - 1;
impl ChangeCosts {
    /// What one zero page of a split adds.
    ///
    /// # Errors
    /// One of the two could not be measured.
    pub fn zero_page(&self) -> Result<f64, &LinuxError> {
        let (used, zero) = (self.split_used.as_ref()?, self.split_zero.as_ref()?);
        Ok((zero.median - used.median) / f64::from(REMAPPED))
    }
}
