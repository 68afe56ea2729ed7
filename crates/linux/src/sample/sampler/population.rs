//! Population where page tables can't be read by BPF: `smaps` and `pagemap`, by a thread of its own.
//!
//! Both take the process's `mmap_lock` and are slow: the loop does not wait for them.

use super::task::{ASK_AGAIN, Task};
use super::{Member, Sampler, Slice, Sliced, Turn};
use crate::error::{LinuxError, Result};
use crate::processes::mappings::{self, Eligible, Mapping};
use crate::promote::target_call::TargetCalls;
use crate::sample::pagemap;
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, ProcessSample, RegionAddr, RegionSample};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A process that was not read by then is passed over for now.
const PATIENCE: Duration = Duration::from_secs(1);

/// Mappings, and the regions in them.
type Population = (Eligible, Vec<RegionSample>);

/// Sees which pages are present, and no accesses.
#[derive(Default)]
pub(super) struct PopulationSampler {
    /// Under way.
    readings: HashMap<ProcessId, Task<Result<Population>>>,
}

fn read(pid: u32) -> Result<Population> {
    let eligible = mappings::eligible(&pagemap::mappings(pid)?);
    let regions = pagemap::population(pid, &eligible.ranges)?;
    Ok((eligible, regions))
}

fn is_present(region: &RegionSample) -> bool {
    region.is_huge() && region.present > 0
}

impl PopulationSampler {
    /// All regions of a process with something in them. Its eligible mappings are then those of that
    /// moment.
    pub(super) fn regions(&mut self, member: &mut Member) -> Sliced<Vec<RegionSample>> {
        if member.thp_disabled {
            return Ok(Slice::Done(Vec::new()));
        }
        let process = member.handle.id;
        let begin = || Task::begin(move || read(process.pid));
        let reading = self.readings.entry(process).or_insert_with(begin);
        let read = reading.poll(process.pid, PATIENCE);
        if !matches!(read, Ok(None) | Err(LinuxError::NotAnswering(_))) {
            self.readings.remove(&process);
        }
        let Some(read) = read? else {
            return Ok(Slice::Unfinished(ASK_AGAIN));
        };
        let (eligible, regions) = read?;
        member.eligible = eligible;
        Ok(Slice::Done(regions))
    }
}

impl Sampler for PopulationSampler {
    fn retain(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.readings.retain(|process, _| there(*process));
    }

    fn mappings(&mut self, member: &Member, _calls: &mut TargetCalls) -> Result<Vec<Mapping>> {
        pagemap::mappings(member.handle.id.pid)
    }

    fn sample(&mut self, member: &mut Member, _turn: &mut Turn) -> Sliced<ProcessSample> {
        let regions = self.regions(member)?;
        Ok(regions.map(|regions| member.population(regions)))
    }

    fn look(&mut self, member: &Member, region: RegionAddr) -> Result<Option<RegionSample>> {
        let range = region.start()..region.end();
        Ok(pagemap::population(member.handle.id.pid, &[range])?.pop())
    }

    fn huge_bytes(&mut self, member: &mut Member, _deadline: Instant) -> Sliced<u64> {
        let huge = |regions: Vec<_>| regions.iter().filter(|region| is_present(region)).count();
        let regions = self.regions(member)?;
        Ok(regions.map(|regions| huge(regions) as u64 * HUGE_PAGE_BYTES))
    }

    fn huge_pages(&mut self, member: &mut Member, _turn: &mut Turn) -> Sliced<Vec<RegionSample>> {
        let regions = self.regions(member)?;
        Ok(regions.map(|mut regions| {
            regions.retain(|r| is_present(r) && !member.eligible.is_locked(r.region));
            regions
        }))
    }

    fn zero_pages(
        &mut self,
        member: &Member,
        region: RegionAddr,
        enough: u16,
        calls: &mut TargetCalls,
    ) -> Result<Option<u16>> {
        // Reading what is not there would have it made.
        if !self.look(member, region)?.as_ref().is_some_and(is_present) {
            return Ok(None);
        }
        let zero = calls.zero_pages(&member.handle, region, enough)?;
        Ok(Some(u16::try_from(zero.len()).unwrap_or(u16::MAX)))
    }
}
