//! Making a whole program huge, and seeing how much of it is.

use crate::live::BenchError;
use hawkeye_linux::process::ProcessHandle;
use hawkeye_linux::{LinuxError, mappings, pagemap, remote_advice};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionSample};

/// Pages that were just touched may still be on their way to the LRU list: what is refused once may be
/// had the next time.
const TRIES: usize = 3;

/// Makes every populated region of a process huge that can be; returns the share of its memory under huge
/// pages afterwards, in per cent.
pub fn promote_all(pid: u32) -> Result<f64, BenchError> {
    let process = ProcessHandle::open(pid)?;
    for _ in 0..TRIES {
        for region in regions(pid)?.into_iter().filter(|region| !region.is_huge()) {
            // How much was refused is in the result; a process that is gone is an error below.
            let _: Result<(), LinuxError> = remote_advice::collapse(&process, region.region);
        }
    }
    huge_percent(pid)
}

/// The share of a process's memory under huge pages, in per cent, of what lies in whole regions.
pub fn huge_percent(pid: u32) -> Result<f64, BenchError> {
    let (mut huge, mut all) = (0, 0);
    for region in regions(pid)? {
        all += u64::from(region.present) * BASE_PAGE_BYTES;
        huge += if region.is_huge() { HUGE_PAGE_BYTES } else { 0 };
    }
    Ok(huge as f64 * 100.0 / all.max(1) as f64)
}

/// How many of its regions are huge.
pub fn huge_regions(pid: u32) -> Result<u64, BenchError> {
    Ok(regions(pid)?
        .iter()
        .filter(|region| region.is_huge())
        .count() as u64)
}

fn regions(pid: u32) -> Result<Vec<RegionSample>, BenchError> {
    let eligible = mappings::eligible(&pagemap::mappings(pid)?);
    Ok(pagemap::population(pid, &eligible.ranges)?)
}
