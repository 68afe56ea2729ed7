//! Makes a whole program huge, and measures how much of it is.

use crate::error::BenchResult;
use crate::live::proc_files::read_process_file;
use hawkeye_linux::processes::mappings;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_linux::sample::pagemap;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, RegionAddr, RegionSample};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Pages that were just touched may not be on the LRU list yet, so a refused promotion may succeed.
const TRIES: usize = 3;
const CALL_TIME: Duration = Duration::from_secs(60);

/// Promotes every populated region of a process that can be huge, including memory that it shares
/// with other processes. Returns the share of its memory under huge pages afterwards, in per cent.
pub fn promote_whole_process(pid: u32) -> BenchResult<f64> {
    let process = ProcessHandle::open(pid)?;
    let mut calls = CallHelperPool::with_time_limit(CALL_TIME);
    for _ in 0..TRIES {
        for region in eligible_present_regions(pid)?.into_iter().filter(|region| !region.is_huge())
        {
            // The result includes refusals; a process that is gone causes an error below.
            let _ = calls.collapse(&process, region.region, || None);
        }
    }
    huge_memory_percent(pid)
}

/// Collapses every region of `range`, with up to five tries each. Returns how long that took.
pub fn collapse_range(process: &ProcessHandle, range: Range<u64>) -> BenchResult<Duration> {
    const MAX_TRIES: u32 = 5;
    let mut calls = CallHelperPool::with_time_limit(CALL_TIME);
    calls.start_idle_helper()?;
    let begun = Instant::now();
    for start in range.step_by(HUGE_PAGE_BYTES as usize) {
        let region = RegionAddr::containing(start);
        let mut tries = 0;
        loop {
            match calls.collapse(process, region, || None) {
                Ok(_) => break,
                Err(error) if tries + 1 == MAX_TRIES => return Err(error.into()),
                Err(_) => tries += 1,
            }
        }
    }
    Ok(begun.elapsed())
}

/// The share of a process's memory under huge pages, in per cent of the memory in whole regions.
pub fn huge_memory_percent(pid: u32) -> BenchResult<f64> {
    let (mut huge, mut all) = (0, 0);
    for region in eligible_present_regions(pid)? {
        all += u64::from(region.present) * BASE_PAGE_BYTES;
        huge += if region.is_huge() { HUGE_PAGE_BYTES } else { 0 };
    }
    Ok(huge as f64 * 100.0 / all.max(1) as f64)
}

fn eligible_present_regions(pid: u32) -> BenchResult<Vec<RegionSample>> {
    let eligible = mappings::collect_eligible_ranges(&pagemap::read_mappings_from_smaps(pid)?);
    let mut regions = pagemap::read_population(pid, &eligible.ranges)?;
    regions.extend(pagemap::read_population(pid, &shared_anonymous_regions(pid)?)?);
    Ok(regions)
}

/// The manager skips such memory, for example PostgreSQL's buffers.
fn shared_anonymous_regions(pid: u32) -> BenchResult<Vec<Range<u64>>> {
    let maps = read_process_file(pid, "maps")?;
    Ok(maps.lines().filter_map(parse_shared_anonymous_regions).collect())
}

fn parse_shared_anonymous_regions(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let writable_and_shared = words.next()? == "rw-s";
    let name = words.nth(3)?;
    if !writable_and_shared || name != "/dev/zero" {
        return None;
    }
    let address = |text| u64::from_str_radix(text, 16).ok();
    let mapping = mappings::Mapping {
        range: address(start)?..address(end)?,
        flags: 0,
        file_backed: true,
        shared_file: None,
    };
    Some(mapping.range_of_whole_regions()).filter(|regions| !regions.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anonymous_memory_counts_as_shared() {
        let regions = |line: &str| parse_shared_anonymous_regions(line);
        let buffers = "7f0000100000-7f0000700000 rw-s 00000000 00:01 1055 /dev/zero (deleted)";
        assert_eq!(regions(buffers), Some(0x7f00_0020_0000..0x7f00_0060_0000));
        let small = "7f0000100000-7f0000200000 rw-s 00000000 00:01 1055 /dev/zero (deleted)";
        assert_eq!(regions(small), None);
        let file = "7f0000100000-7f0000700000 rw-s 00000000 fd:01 77 /var/lib/some-file";
        assert_eq!(regions(file), None);
        let private = "7f0000100000-7f0000700000 rw-p 00000000 00:00 0";
        assert_eq!(regions(private), None);
    }
}
