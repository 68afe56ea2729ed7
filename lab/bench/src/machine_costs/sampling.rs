//! Clearing and reading access bits.

use super::memory::{Memory, Pages, REGION, nanoseconds};
use super::{Found, not_here, turns};
use hawkeye_linux::LinuxError;
use hawkeye_linux::sample::access_bits;
use hawkeye_linux::sample::page_tables::{Detail, PageTables};
use std::time::Instant;

/// Memory that is cleared and read: much more than the rest of this process.
const REGIONS: usize = 256;

/// A region each.
#[derive(Debug)]
pub struct SamplingCosts {
    /// Clearing the access bits of a region of base pages.
    pub clear_region: Found,
    /// Clearing that of a huge page.
    pub clear_huge: Found,
    /// Reading the access bits of a region of base pages.
    pub read_region: Found,
    /// Reading that of a huge page.
    pub read_huge: Found,
}

/// Measures. Reading takes privileges.
pub fn measure() -> SamplingCosts {
    SamplingCosts {
        clear_region: clear(Pages::Base),
        clear_huge: clear(Pages::Huge),
        read_region: read(Pages::Base),
        read_huge: read(Pages::Huge),
    }
}

fn clear(pages: Pages) -> Found {
    let pid = std::process::id();
    let once = || {
        let begun = Instant::now();
        access_bits::clear(pid).map(|()| nanoseconds(begun))
    };
    let [cleared] = turns(|| {
        let alone = once()?;
        let memory = Memory::written(REGIONS * REGION, pages)?;
        let together = once()?;
        drop(memory);
        Ok([((together - alone) / REGIONS as f64).max(0.0)])
    })?;
    Ok(cleared)
}

fn read(pages: Pages) -> Found {
    let mut tables = PageTables::load()?;
    let memory = Memory::written(REGIONS * REGION, pages)?;
    let range = memory.address()..memory.address() + memory.bytes() as u64;
    let target = tables.bind(std::process::id())?;
    let [walked] = turns(|| {
        let mut regions = Vec::new();
        let begun = Instant::now();
        tables.walk(
            &target,
            std::slice::from_ref(&range),
            Detail::Regions,
            &mut regions,
            |_| {},
        )?;
        let took = nanoseconds(begun);
        if regions.len() < REGIONS / 2 {
            return Err::<_, LinuxError>(not_here("the walk of page tables saw hardly anything"));
        }
        Ok([took / regions.len() as f64])
    })?;
    Ok(walked)
}
