//! Finds which memory a program uses while all of it is under base pages, and how much of that is
//! huge later. Unlike the program's speed, this does not depend on the machine's neighbours.

use crate::clear_refs;
use crate::live::prelude::*;
use hawkeye_linux::processes::mappings;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, ProcessBpfLinks, WalkDetail};
use hawkeye_linux::sample::pagemap::read_mappings_from_smaps;
use hawkeye_policy::RegionSample;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::ops::Range;

/// Within this time a program touches much of its hot memory, and little of the rest.
pub(super) const WITHIN: Duration = Duration::from_millis(60);
const TURNS: usize = 24;

pub(super) struct RecentlyUsedMemory {
    tables: PageTableReader,
    target: ProcessBpfLinks,
    ranges: Vec<Range<u64>>,
    touched: BTreeMap<RegionAddr, u64>,
}

impl RecentlyUsedMemory {
    /// Clears access bits before each turn, by the kernel's own interface, not the manager's. Huge
    /// regions are left out: one bit does not show how much of them is used.
    pub(super) fn sample_process(program: &mut dyn MeasuredProgram) -> BenchResult<Self> {
        let tables = PageTableReader::load_bpf_programs()?;
        let target = tables.bind_to_process(program.pid())?;
        let ranges =
            mappings::collect_eligible_ranges(&read_mappings_from_smaps(program.pid())?).ranges;
        let mut in_use = Self { tables, target, ranges, touched: BTreeMap::new() };
        for _ in 0..TURNS {
            clear_refs::clear_access_bits_of_process(program.pid())?;
            measure_turn(program, WITHIN)?;
            let regions = in_use.walk_regions(WalkDetail::Regions)?;
            for seen in regions.iter().filter(|region| !region.is_huge()) {
                *in_use.touched.entry(seen.region).or_default() += u64::from(seen.accessed);
            }
        }
        if in_use.touched.values().all(|pages| *pages == 0) {
            bail!("process {} touched no memory while it worked", program.pid());
        }
        let full = in_use.walk_regions(WalkDetail::Regions)?;
        let full = full.iter().filter(|r| r.present == PAGES_PER_REGION);
        read_byte_of_every_page(program.pid(), full.map(|r| r.region))?;
        Ok(in_use)
    }

    pub(super) fn huge_percent_of_used(&mut self) -> BenchResult<f64> {
        let huge = self.walk_regions(WalkDetail::HugeOnly)?;
        let touched = |region: &RegionSample| self.touched.get(&region.region);
        let huge: u64 = huge.iter().filter_map(touched).sum();
        let all: u64 = self.touched.values().sum();
        Ok(huge as f64 * 100.0 / all as f64)
    }

    fn walk_regions(&mut self, detail: WalkDetail) -> BenchResult<Vec<RegionSample>> {
        let mut found = Vec::new();
        let (target, ranges) = (&self.target, &self.ranges);
        self.tables.walk_ranges(target, ranges, detail, &mut found, |_| {})?;
        if detail == WalkDetail::HugeOnly {
            found.retain(RegionSample::is_huge);
        }
        Ok(found)
    }
}

/// Reads a byte of each page, so that it counts as used again: khugepaged skips memory that was
/// not used recently (`SCAN_LACK_REFERENCED_PAGE`).
fn read_byte_of_every_page(pid: u32, regions: impl Iterator<Item = RegionAddr>) -> BenchResult<()> {
    let mut bytes = [0; PAGES_PER_REGION as usize];
    for region in regions {
        let pages = (region.start()..region.end()).step_by(BASE_PAGE_BYTES as usize);
        let pages: Vec<RemoteIoVec> =
            pages.map(|page| RemoteIoVec { base: page as usize, len: 1 }).collect();
        let mut local = [IoSliceMut::new(&mut bytes)];
        process_vm_readv(Pid::from_raw(pid as i32), &mut local, &pages)
            .map_err(LinuxError::wrap_errno("process_vm_readv"))?;
    }
    Ok(())
}
