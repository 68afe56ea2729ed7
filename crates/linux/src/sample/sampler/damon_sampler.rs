//! Population from pagemap, with accesses estimated by DAMON.

use super::damon::DamonSessions;
use super::pagemap_sampler::PagemapSampler;
use super::{ProcessWorkSlice, SampledProcess, Sampler, SliceResult};
use crate::error::Result;
use crate::processes::mappings::Mapping;
use crate::promote::target_call::CallHelperPool;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{
    CoverageSource, ProcessId, ProcessSample, RegionAddr, RegionSample, SampleKinds,
};

#[derive(Default)]
pub(super) struct DamonSampler {
    population: PagemapSampler,
    sessions: DamonSessions,
}

impl Sampler for DamonSampler {
    fn retain_processes(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.population.retain_processes(there);
        self.sessions.retain_processes(there);
    }

    fn start_window(
        &mut self,
        slice: &mut ProcessWorkSlice,
        _needs: SampleKinds,
    ) -> SliceResult<()> {
        if slice.member.thp_disabled {
            return Ok(SliceProgress::Done(()));
        }
        self.sessions.start_window(slice.member.handle.id)
    }

    fn read_sample(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<ProcessSample> {
        let process = slice.member.handle.id;
        if let SliceProgress::Unfinished(wait) = self.sessions.end_window(process)? {
            return Ok(SliceProgress::Unfinished(wait));
        }
        let sample = self.population.read_sample(slice)?;
        Ok(sample.map(|mut sample| {
            if self.sessions.apply_estimates(process, &mut sample.regions) {
                sample.source = CoverageSource::Estimated;
            }
            sample
        }))
    }

    // The rest concerns the population only.

    fn list_mappings(
        &mut self,
        member: &SampledProcess,
        calls: &mut CallHelperPool,
    ) -> Result<Vec<Mapping>> {
        self.population.list_mappings(member, calls)
    }

    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        calls: &mut CallHelperPool,
    ) -> Result<Option<RegionSample>> {
        self.population.read_region(member, region, calls)
    }

    fn count_huge_bytes(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<u64> {
        self.population.count_huge_bytes(slice)
    }

    fn list_huge_pages(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<Vec<RegionSample>> {
        self.population.list_huge_pages(slice)
    }

    fn count_zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut CallHelperPool,
    ) -> Result<Option<u16>> {
        self.population.count_zero_pages(member, region, enough, calls)
    }
}
