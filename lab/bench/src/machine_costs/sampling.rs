//! Costs of clearing and reading access bits.

use super::prelude::*;
use hawkeye_linux::sample::access_bits;
use hawkeye_linux::sample::page_tables::{Detail, PageTables};

/// Memory that is cleared and read: much more than the rest of this process.
const REGIONS: usize = 256;

/// Measures, for a region each: clearing access bits of base pages and of a huge page, and reading
/// them. Reading needs privileges.
pub fn measure() -> [Found; 4] {
    [
        clear(Pages::Base),
        clear(Pages::Huge),
        read(Pages::Base),
        read(Pages::Huge),
    ]
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
            return Err::<_, LinuxError>(not_here("the walk of page tables found too few regions"));
        }
        Ok([took / regions.len() as f64])
    })?;
    Ok(walked)
}
