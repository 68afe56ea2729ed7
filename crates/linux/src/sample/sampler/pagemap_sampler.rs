//! Population where BPF cannot read page tables: a separate thread reads `smaps` and `pagemap`.
//! Accesses are not seen.
//!
//! Both files take the process's `mmap_lock` and are slow, so the loop does not wait for them.

use super::background_task::{BackgroundTask, POLL_INTERVAL};
use super::{
    ProcessWorkSlice, SampledProcess, Sampler, SliceResult, is_huge_page_with_memory,
    sum_huge_bytes,
};
use crate::error::{LinuxError, Result};
use crate::processes::mappings::Mapping;
use crate::promote::target_call::{CallHelperPool, SERIES_TIME};
use crate::sample::pagemap::{self, PresentPagesReading, read_eligible_present_pages};
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{ProcessId, ProcessSample, RegionAddr, RegionSample};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A process that was not read within this time is skipped for now.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct PagemapSampler {
    readings: HashMap<ProcessId, BackgroundTask<PresentPagesReading>>,
}

impl PagemapSampler {
    /// All regions of a process with something in them. Sets its eligible mappings to those of that
    /// moment.
    fn poll_present_regions(
        &mut self,
        member: &mut SampledProcess,
    ) -> SliceResult<Vec<RegionSample>> {
        if member.thp_disabled {
            return Ok(SliceProgress::Done(Vec::new()));
        }
        let process = member.handle.id;
        let begin = || BackgroundTask::spawn(move || read_eligible_present_pages(process.pid));
        let reading = self.readings.entry(process).or_insert_with(begin);
        let read = reading.poll(process.pid, PATIENCE);
        if !matches!(read, Ok(None) | Err(LinuxError::NotAnswering(_))) {
            self.readings.remove(&process);
        }
        let Some(read) = read? else {
            return Ok(SliceProgress::Unfinished(POLL_INTERVAL));
        };
        let (eligible, regions) = read?;
        member.set_eligible(eligible);
        Ok(SliceProgress::Done(regions))
    }
}

impl Sampler for PagemapSampler {
    fn retain_processes(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.readings.retain(|process, _| there(*process));
    }

    fn list_mappings(
        &mut self,
        member: &SampledProcess,
        _calls: &mut CallHelperPool,
    ) -> Result<Vec<Mapping>> {
        pagemap::read_mappings_from_smaps(member.handle.id.pid)
    }

    fn read_sample(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<ProcessSample> {
        let regions = self.poll_present_regions(slice.member)?;
        Ok(regions.map(|regions| slice.member.sample_with_population_only(regions)))
    }

    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
    ) -> Result<Option<RegionSample>> {
        let range = region.start()..region.end();
        Ok(pagemap::read_population(member.handle.id.pid, &[range])?.pop())
    }

    fn count_huge_bytes(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<u64> {
        let regions = self.poll_present_regions(slice.member)?;
        Ok(regions.map(|regions| sum_huge_bytes(&regions)))
    }

    fn list_huge_pages(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<Vec<RegionSample>> {
        let regions = self.poll_present_regions(slice.member)?;
        Ok(regions.map(|regions| slice.member.keep_unlocked_huge_pages(regions)))
    }

    fn count_zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut CallHelperPool,
    ) -> Result<Option<u16>> {
        // A read would populate a page that is not present.
        let found = self.read_region(member, region)?;
        if !found.is_some_and(|found| is_huge_page_with_memory(&found)) {
            return Ok(None);
        }
        let deadline = Instant::now() + SERIES_TIME;
        let zero = calls.find_zero_pages_by_copying(&member.handle, region, enough, deadline)?;
        Ok(Some(u16::try_from(zero.len()).unwrap_or(u16::MAX)))
    }
}
