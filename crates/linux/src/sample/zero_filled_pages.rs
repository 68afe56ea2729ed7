//! Base pages that a program has filled with zeros itself, in some of its regions: recovery would
//! take them back as well, once they are part of a huge page.
//!
//! One in eight pages of at most 64 regions is read, which takes some milliseconds. A read marks
//! these pages as referenced for reclaim (mm/gup.c, `FOLL_TOUCH`). Access bits stay.

use crate::error::Result;
use crate::processes::background_task::BackgroundTask;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::{CallHelperPool, ZERO_CHECKED_PER_CALL};
use crate::ring_buffer::decode_u64s;
use crate::sample::pagemap::{Pagemap, is_page_with_memory};
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample, ZeroFilledSample,
};
use std::time::{Duration, Instant};

/// Regions of one process that are read, at most.
const MOST_REGIONS: usize = 64;
/// Distance of the first pages of two reads. In each region they begin at another place: allocators
/// with arenas fill the beginnings of these first.
const READ_EVERY: u16 = 8 * ZERO_CHECKED_PER_CALL;

/// Reads some of the regions of a process of which half or more is in use, until `deadline`. `rest`
/// is called after each, with its duration.
///
/// # Errors
/// - `NoSuchProcess`: the process has ended.
/// - `NotAnswering`: a read waits for a lock of the process.
pub(super) fn sample_zero_filled_pages(
    calls: &mut CallHelperPool,
    process: &ProcessHandle,
    regions: &[RegionSample],
    deadline: Instant,
    rest: impl Fn(Duration),
) -> Result<ZeroFilledSample> {
    let is_dense =
        |region: &&RegionSample| !region.is_huge() && region.present >= PAGES_PER_REGION / 2;
    let dense: Vec<RegionSample> = regions.iter().filter(is_dense).copied().collect();
    let every = dense.len().div_ceil(MOST_REGIONS).max(1);
    let mut chosen: Vec<(usize, RegionSample)> =
        dense.iter().step_by(every).copied().enumerate().collect();
    // Those that are read before the deadline are spread over the address space.
    chosen.sort_by_key(|(index, _)| index % 8);
    let chosen: Vec<RegionSample> = chosen.into_iter().map(|(_, region)| region).collect();
    let (pid, addresses) = (process.id.pid, chosen.iter().map(|it| it.region).collect());
    // Opening the file waits while the process executes another program.
    let reading = BackgroundTask::spawn(move || find_present_runs(pid, addresses));
    let present = reading.wait_until(pid, deadline)??;
    let mut read = Vec::new();
    for (region, runs) in chosen.into_iter().zip(present) {
        let begun = Instant::now();
        let mut is_zero = Vec::new();
        for first in runs {
            is_zero.extend(read_run(calls, process, region.region, first)?);
        }
        if !is_zero.is_empty() {
            let zero_filled = is_zero.iter().filter(|is_zero| **is_zero).count();
            let pages = zero_filled * usize::from(region.present) / is_zero.len();
            read.push((region, u16::try_from(pages).unwrap_or(u16::MAX)));
        }
        if Instant::now() >= deadline {
            break;
        }
        rest(begun.elapsed());
    }
    let regions_each = match read.len() {
        0 => 0.0,
        read => dense.len() as f64 / read as f64,
    };
    Ok(ZeroFilledSample { regions: read, regions_each })
}

/// Of each region, the first pages of the runs to read. A read of a page that is not present would
/// populate it, and the zero page takes no memory.
fn find_present_runs(pid: u32, regions: Vec<RegionAddr>) -> Result<Vec<Vec<u16>>> {
    let pagemap = Pagemap::open(pid)?;
    let runs_of_region = |region: RegionAddr| {
        let mut bytes = [0u8; PAGES_PER_REGION as usize * 8];
        pagemap.read_entries(region.start(), &mut bytes)?;
        let entries: Vec<u64> = decode_u64s(&bytes).collect();
        let is_present = |first: &u16| {
            let run = &entries[usize::from(*first)..][..usize::from(ZERO_CHECKED_PER_CALL)];
            run.iter().all(|entry| is_page_with_memory(*entry))
        };
        let shifts = u64::from(READ_EVERY / ZERO_CHECKED_PER_CALL);
        let shift = u16::try_from(region.start() / HUGE_PAGE_BYTES % shifts).unwrap_or(0);
        let first = shift * ZERO_CHECKED_PER_CALL;
        let firsts = (first..PAGES_PER_REGION).step_by(usize::from(READ_EVERY));
        Ok(firsts.filter(is_present).collect())
    };
    regions.into_iter().map(runs_of_region).collect()
}

/// Whether each page of a run is filled with zeros; nothing where its memory is gone meanwhile.
fn read_run(
    calls: &mut CallHelperPool,
    process: &ProcessHandle,
    region: RegionAddr,
    first: u16,
) -> Result<Vec<bool>> {
    let address = region.start() + u64::from(first) * BASE_PAGE_BYTES;
    match calls.find_zero_pages_of_run(process, address) {
        Err(error) if error.errno().is_some() && !error.is_process_gone() => Ok(Vec::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anonymous_mapping::AnonymousMapping;
    use crate::sample::pagemap::read_population;
    use nix::sys::mman::MmapAdvise;

    /// Region `index` has this many base pages with data, and zeros in this many others.
    const SPARSE: (u16, u16) = (128, 100);
    const DENSE: (u16, u16) = (128, 256);
    const REGIONS: u64 = 200;

    #[test]
    fn some_pages_of_some_dense_regions_are_read_and_none_that_is_not_present() {
        if !nix::unistd::geteuid().is_root() {
            return hawkeye_test_support::this_test!().skip("it needs root");
        }
        let memory = AnonymousMapping::map(((REGIONS + 1) * HUGE_PAGE_BYTES) as usize);
        let memory = memory.expect("memory can be mapped");
        // Other tests fork meanwhile.
        memory.advise(MmapAdvise::MADV_DONTFORK).expect("the advice is accepted");
        memory.advise(MmapAdvise::MADV_NOHUGEPAGE).expect("the advice is accepted");
        let start = memory.address().next_multiple_of(HUGE_PAGE_BYTES);
        for index in 0..REGIONS {
            let (data, zeros) = if index % 10 == 0 { SPARSE } else { DENSE };
            // A read maps the zero page.
            let read_only = start + index * HUGE_PAGE_BYTES + 448 * BASE_PAGE_BYTES;
            for page in 0..64 {
                let at = memory
                    .start()
                    .as_ptr()
                    .with_addr((read_only + page * BASE_PAGE_BYTES) as usize);
                // SAFETY: within the mapping, as below.
                unsafe { at.cast::<u8>().read_volatile() };
            }
            for page in 0..data + zeros {
                let offset = index * HUGE_PAGE_BYTES + u64::from(page) * BASE_PAGE_BYTES;
                let at = memory.start().as_ptr().with_addr((start + offset) as usize);
                // SAFETY: within the mapping, which is one region longer than what is used.
                unsafe { at.cast::<u8>().write_volatile(u8::from(page < data)) };
            }
        }
        let own = std::process::id();
        let range = start..start + REGIONS * HUGE_PAGE_BYTES;
        let read = || {
            read_population(own, std::slice::from_ref(&range)).expect("this process can be read")
        };
        let before = read();
        let process = ProcessHandle::open(own).expect("this process is alive");
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = sample_zero_filled_pages(
            &mut CallHelperPool::default(),
            &process,
            &before,
            deadline,
            |_| (),
        );
        let found = found.expect("this process can be read");
        // Every third of the 180 dense regions.
        assert_eq!((found.regions.len(), found.regions_each), (60, 3.0));
        // Of the 48 pages that are read, 16 hold data.
        assert!(found.regions.iter().all(|(region, zero)| (region.present, *zero) == (384, 256)));
        assert_eq!(read(), before);
        // Nothing can be mapped there.
        let nowhere = RegionAddr::containing(0);
        let read = read_run(&mut CallHelperPool::default(), &process, nowhere, 0);
        assert!(read.expect("memory that is gone is no error").is_empty());
    }
}
