//! Population where BPF cannot read page tables: a separate thread reads `smaps` and `pagemap`.
//! Accesses are estimated by DAMON, or not seen.
//!
//! Both files take the process's `mmap_lock` and are slow, so the loop does not wait for them. One
//! region is read by a helper process, as all calls into a process are made.

use super::damon::DamonSessions;
use super::{
    ProcessWorkSlice, SampledProcess, Sampler, SliceResult, is_huge_page_with_memory,
    sum_huge_bytes,
};
use crate::error::{LinuxError, Result};
use crate::processes::background_task::{BackgroundTask, POLL_INTERVAL};
use crate::processes::mappings::Mapping;
use crate::processes::process::with_cpu_time;
use crate::promote::target_call::{CallHelperPool, SERIES_TIME};
use crate::sample::pagemap::{self, PresentPages, read_eligible_present_pages};
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{
    CoverageSource, HUGE_PAGE_BYTES, ProcessId, ProcessSample, RegionAddr, RegionSample,
    SampleKinds,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A process that was not read within this time is skipped for now.
const PATIENCE: Duration = Duration::from_secs(1);
/// A footprint repeats the last reading until this many times its CPU time have passed, times the
/// number of processes. So the footprints of all processes together take one per cent of a core.
const PAUSE_PER_CPU_TIME: u32 = 100;

/// Mappings of a process that are kept for explanations. It can have a million.
const MAX_MAPPINGS: usize = 1000;

#[derive(Default)]
pub(super) struct PagemapSampler {
    /// `None`: accesses are not estimated.
    damon: Option<DamonSessions>,
    readings: HashMap<ProcessId, BackgroundTask<TimedReading>>,
    last: HashMap<ProcessId, LastReading>,
}

/// What was read, and the CPU time that it took.
type TimedReading = (Result<PresentPages>, Duration);

struct LastReading {
    /// `None`: it failed.
    huge_bytes: Option<u64>,
    /// The first that are as large as a region.
    mappings: Vec<Mapping>,
    /// No footprint reads the process again before this time.
    rest_until: Instant,
}

impl PagemapSampler {
    pub(super) fn with_damon() -> Self {
        Self { damon: Some(DamonSessions::default()), ..Self::default() }
    }

    /// All regions of a process with something in them. Sets its eligible mappings to those of that
    /// moment.
    fn poll_present_regions(
        &mut self,
        member: &mut SampledProcess,
    ) -> SliceResult<Vec<RegionSample>> {
        if member.is_free_of_huge_pages() {
            return Ok(SliceProgress::Done(Vec::new()));
        }
        let process = member.handle.id;
        let work = move || with_cpu_time(|| read_eligible_present_pages(process.pid));
        let begin = || BackgroundTask::spawn(work);
        let reading = self.readings.entry(process).or_insert_with(begin);
        let read = reading.poll(process.pid, PATIENCE);
        if !matches!(read, Ok(None) | Err(LinuxError::NotAnswering(_))) {
            self.readings.remove(&process);
        }
        let Some((read, cpu)) = read? else {
            return Ok(SliceProgress::Unfinished(POLL_INTERVAL));
        };
        let processes = u32::try_from(self.last.len()).unwrap_or(u32::MAX).max(1);
        let rest_until = Instant::now() + cpu * PAUSE_PER_CPU_TIME.saturating_mul(processes);
        let failed = LastReading { huge_bytes: None, mappings: Vec::new(), rest_until };
        let last = self.last.entry(process).insert_entry(failed).into_mut();
        let PresentPages { mut mappings, eligible, regions } = read?;
        mappings.retain(|mapping| mapping.range.end - mapping.range.start >= HUGE_PAGE_BYTES);
        mappings.truncate(MAX_MAPPINGS);
        (last.huge_bytes, last.mappings) = (Some(sum_huge_bytes(&regions)), mappings);
        member.set_eligible(eligible);
        Ok(SliceProgress::Done(regions))
    }
}

impl Sampler for PagemapSampler {
    fn retain_processes(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.readings.retain(|process, _| there(*process));
        self.last.retain(|process, _| there(*process));
        if let Some(sessions) = &mut self.damon {
            sessions.retain_processes(there);
        }
    }

    fn start_window(
        &mut self,
        slice: &mut ProcessWorkSlice,
        _needs: SampleKinds,
    ) -> SliceResult<()> {
        match &mut self.damon {
            Some(sessions) => sessions.start_window(slice.member.handle.id),
            None => Ok(SliceProgress::Done(())),
        }
    }

    fn list_mappings(
        &mut self,
        member: &SampledProcess,
        _calls: &mut CallHelperPool,
    ) -> Result<Vec<Mapping>> {
        let last = self.last.get(&member.handle.id);
        let unknown = LinuxError::NotMeasured("the mappings have not been read yet");
        last.map(|last| last.mappings.clone()).ok_or(unknown)
    }

    fn read_sample(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<ProcessSample> {
        let process = slice.member.handle.id;
        let ended = self.damon.as_mut().map(|sessions| sessions.end_window(process)).transpose()?;
        if let Some(SliceProgress::Unfinished(wait)) = ended {
            return Ok(SliceProgress::Unfinished(wait));
        }
        let regions = self.poll_present_regions(slice.member)?;
        Ok(regions.map(|regions| {
            let mut sample = slice.member.sample_with_population_only(regions);
            let estimated =
                |it: &mut DamonSessions| it.apply_estimates(process, &mut sample.regions);
            if self.damon.as_mut().is_some_and(estimated) {
                sample.source = CoverageSource::Estimated;
            }
            sample
        }))
    }

    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        calls: &mut CallHelperPool,
    ) -> Result<Option<RegionSample>> {
        let entries = calls.read_pagemap_of_region(member.handle.id, region)?;
        Ok(pagemap::region_sample_from_entries(region, &entries))
    }

    fn count_huge_bytes(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<u64> {
        let last = self.last.get(&slice.member.handle.id);
        if let Some(last) = last.filter(|last| Instant::now() < last.rest_until) {
            let unknown = LinuxError::NotMeasured("the last reading of its pages failed");
            return last.huge_bytes.map(SliceProgress::Done).ok_or(unknown);
        }
        let regions = self.poll_present_regions(slice.member)?;
        Ok(regions.map(|regions| {
            slice.member.record_huge_pages(&regions);
            slice.member.update_seen_free_of_huge_pages();
            sum_huge_bytes(&regions)
        }))
    }

    fn list_huge_pages(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<Vec<RegionSample>> {
        let regions = self.poll_present_regions(slice.member)?;
        Ok(regions.map(|regions| {
            slice.member.record_huge_pages(&regions);
            slice.member.update_seen_free_of_huge_pages();
            slice.member.keep_unlocked_huge_pages(regions)
        }))
    }

    fn count_zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut CallHelperPool,
    ) -> Result<Option<u16>> {
        // A read would populate a page that is not present.
        let found = self.read_region(member, region, calls)?;
        if !found.is_some_and(|found| is_huge_page_with_memory(&found)) {
            return Ok(None);
        }
        let deadline = Instant::now() + SERIES_TIME;
        let zero = calls.find_zero_pages_by_copying(&member.handle, region, enough, deadline)?;
        Ok(Some(u16::try_from(zero.len()).unwrap_or(u16::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promote::stuck_target::StuckTarget;
    use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessAttributes, ProcessSettings};
    use std::sync::mpsc;
    use std::thread;

    fn managed(pid: u32) -> SampledProcess {
        let opened =
            SampledProcess::open(pid, ProcessAttributes::default(), ProcessSettings::default());
        opened.expect("the process can be opened")
    }

    /// The whole answer of `work`, which may be unfinished at first.
    fn finished<T>(mut work: impl FnMut() -> SliceResult<T>) -> T {
        loop {
            match work() {
                Ok(SliceProgress::Done(done)) => return done,
                Ok(SliceProgress::Unfinished(wait)) => thread::sleep(wait),
                Err(LinuxError::NotAnswering(_)) => {}
                Err(error) => panic!("the process can be read: {error}"),
            }
        }
    }

    #[test]
    fn regions_of_a_target_that_holds_its_lock_are_not_waited_for() {
        // It requires root and FUSE.
        let Some(stuck) = StuckTarget::start() else {
            return;
        };
        let (process, region) = (stuck.handle.id, stuck.untouched_region());
        // This writer, which resets `VmHWM`, waits for the lock until the target ends. All later
        // callers wait behind it.
        let writer = format!("/proc/{}/clear_refs", process.pid);
        thread::spawn(move || std::fs::write(writer, "5"));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let (mut sampler, mut calls) = (PagemapSampler::default(), CallHelperPool::default());
            let mut patient = CallHelperPool::with_time_limit(Duration::from_secs(60));
            let (member, own) = (managed(process.pid), managed(std::process::id()));
            // Until the writer waits, the region can be read.
            while sampler.read_region(&member, region, &mut calls).is_ok() {}
            // Only the mappings of an earlier sample are returned.
            let listed = sampler.list_mappings(&member, &mut calls).is_ok();
            let own = sampler.read_region(&own, region, &mut patient).is_ok();
            let _ = tell.send((calls.has_unanswered_call(process), listed, own));
        });
        let told = told.recv_timeout(Duration::from_secs(60));
        assert_eq!(told, Ok((true, false, true)), "the lock is not waited for");
    }

    #[test]
    fn a_footprint_repeats_the_last_reading_until_that_has_paid_off() {
        let mut sampler = PagemapSampler::default();
        let (mut member, mut calls) = (managed(std::process::id()), CallHelperPool::default());
        let process = member.handle.id;
        let deadline = Instant::now() + Duration::from_secs(3600);
        let mut slice = ProcessWorkSlice { member: &mut member, calls: &mut calls, deadline };
        finished(|| sampler.count_huge_bytes(&mut slice));
        let last = sampler.last.get_mut(&process).expect("it was just read");
        assert!(!last.mappings.is_empty());
        (last.huge_bytes, last.rest_until) = (Some(7 * HUGE_PAGE_BYTES + 1), deadline);
        assert_eq!(finished(|| sampler.count_huge_bytes(&mut slice)), 7 * HUGE_PAGE_BYTES + 1);
        assert!(sampler.readings.is_empty());
        let last = sampler.last.get_mut(&process).expect("it was just read");
        last.rest_until = Instant::now();
        assert_ne!(finished(|| sampler.count_huge_bytes(&mut slice)), 7 * HUGE_PAGE_BYTES + 1);
    }
}
