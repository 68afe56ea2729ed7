//! The populated regions of all processes, managed or not. Nothing changes, except that
//! pages of which the contents are read count as referenced for reclaim.
//!
//! BPF reads page tables where that works, else `/proc/PID/pagemap`. A process that ends meanwhile
//! is no error. One that does not answer is left out.

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::CgroupLimits;
use crate::processes::background_task::BackgroundTask;
use crate::processes::mappings::{Mapping, collect_eligible_ranges, vm};
use crate::processes::memory_maps;
use crate::processes::proc_scanner::{ProcScanner, ScannedProcess};
use crate::processes::process::{self, ProcessHandle};
use crate::promote::target_call::CallHelperPool;
use crate::sample::page_table_reader::WalkDetail;
use crate::sample::pagemap;
use crate::sample::sampler::SamplerBackend;
use crate::sample::zero_filled_pages::sample_zero_filled_pages;
use hawkeye_policy::{BASE_PAGE_BYTES, ProcessId, RegionSample, ZeroFilledSample};
use serde::Serialize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// After each read, which takes about 0.5 ms, the survey rests for this many times as long.
pub(in crate::sample) const REST_PER_READ: u32 = 4;
/// A process that does not answer within this time is left out.
pub(in crate::sample) const PATIENCE: Duration = Duration::from_secs(1);

/// One process and what it populates.
#[derive(Clone, Debug, PartialEq)]
pub struct SurveyedProcess {
    /// The process.
    pub scanned: ScannedProcess,
    /// Its cgroup; `/` where that is unknown.
    pub cgroup: PathBuf,
    /// Its populated regions that the kernel may make huge by itself.
    pub regions: Vec<RegionSample>,
    /// How much more resident memory it had at its peak than it has now, without what was swapped
    /// out; in bytes. It may have given that back, or lost it to recovery. 0 where the kernel does
    /// not count it.
    pub below_peak_bytes: u64,
}

/// Reads contents of the process that is surveyed, where that is wanted.
pub struct ContentsReader<'a> {
    calls: &'a mut CallHelperPool,
    handle: ProcessHandle,
    deadline: Instant,
}

impl ContentsReader<'_> {
    /// What the process has filled with zeros itself in these regions; `None`: it can't be read.
    pub fn sample_zero_filled(&mut self, regions: &[RegionSample]) -> Option<ZeroFilledSample> {
        let deadline = self.deadline.min(Instant::now() + PATIENCE);
        let rest = |took: Duration| thread::sleep(took * REST_PER_READ);
        let sampled = sample_zero_filled_pages(self.calls, &self.handle, regions, deadline, rest);
        sampled
            .inspect_err(|error| {
                let pid = self.handle.id.pid;
                tracing::debug!("zero-filled pages are not known pid={pid} error={error}");
            })
            .ok()
    }
}

/// How much of the machine a survey covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SurveyCoverage {
    /// Processes that were read.
    #[serde(rename = "processes_read")]
    pub read: usize,
    /// Processes that could not be read, did not answer, or were not reached in time.
    #[serde(rename = "processes_left_out")]
    pub left_out: usize,
}

/// Reads all processes with anonymous memory for which `wanted` is true, by pid and cgroup, until
/// `deadline`. This process is left out silently. Contents are read where `visit` asks for them.
pub fn survey_population(
    sampler: &mut SamplerBackend,
    cgroups: &CgroupLimits,
    wanted: impl Fn(u32, &Path) -> bool,
    deadline: Instant,
    mut visit: impl FnMut(SurveyedProcess, ContentsReader<'_>),
) -> Result<SurveyCoverage> {
    let mut calls = CallHelperPool::with_time_limit(PATIENCE);
    let scan = ProcScanner::open()?.scan_large_processes(BASE_PAGE_BYTES, deadline)?;
    let scan = scan.ok_or(LinuxError::NotMeasured("the processes can't be listed in time"))?;
    let mut coverage = SurveyCoverage::default();
    for scanned in scan.large {
        let pid = scanned.process.pid;
        let cgroup = cgroups.cgroup_of_pid(pid).unwrap_or_else(|| PathBuf::from("/"));
        if pid == std::process::id() || !wanted(pid, &cgroup) {
            continue;
        }
        if Instant::now() >= deadline {
            coverage.left_out += 1;
            continue;
        }
        match read_process(sampler, &mut calls, scanned.process) {
            Ok((handle, regions, below_peak_bytes)) => {
                coverage.read += 1;
                let contents = ContentsReader { calls: &mut calls, handle, deadline };
                visit(SurveyedProcess { scanned, cgroup, regions, below_peak_bytes }, contents);
            }
            Err(error) if error.is_process_gone() => {}
            Err(error) => {
                tracing::info!("left out of the survey pid={pid} error={error}");
                coverage.left_out += 1;
            }
        }
    }
    Ok(coverage)
}

/// The process, its populated regions, and how far it is below its peak.
fn read_process(
    sampler: &mut SamplerBackend,
    calls: &mut CallHelperPool,
    process: ProcessId,
) -> Result<(ProcessHandle, Vec<RegionSample>, u64)> {
    let pid = process.pid;
    let handle = ProcessHandle::open(pid)?;
    if handle.id != process {
        return Err(LinuxError::NoSuchProcess(pid));
    }
    let status = process::read_proc_entry(pid, process::read_status)?;
    // `PR_SET_THP_DISABLE`: nothing of it becomes huge.
    if status.thp_enabled == Some(false) {
        return Ok((handle, Vec::new(), 0));
    }
    let below_peak = below_peak_bytes([status.vmhwm, status.vmrss, status.vmswap]);
    Ok((handle, read_regions(sampler, calls, process)?, below_peak))
}

/// What a process is below its peak, from figures in KiB: the peak of resident memory, resident
/// memory now, and swapped out.
fn below_peak_bytes([peak, resident, swapped]: [Option<u64>; 3]) -> u64 {
    let now_kib = resident.unwrap_or(0) + swapped.unwrap_or(0);
    peak.unwrap_or(0).saturating_sub(now_kib) << 10
}

fn read_regions(
    sampler: &mut SamplerBackend,
    calls: &mut CallHelperPool,
    process: ProcessId,
) -> Result<Vec<RegionSample>> {
    let pid = process.pid;
    match sampler {
        SamplerBackend::AccessBits(bits) => {
            let target = bits.tables.bind_to_process(pid)?;
            let ranges = ranges_for_huge_pages(calls.list_mappings(process, &target)?);
            let rest = |took: Duration| thread::sleep(took * REST_PER_READ);
            let mut regions = Vec::new();
            bits.tables.walk_ranges(&target, &ranges, WalkDetail::Regions, &mut regions, rest)?;
            Ok(regions)
        }
        SamplerBackend::Damon | SamplerBackend::Population => {
            let reading = BackgroundTask::spawn(move || read_regions_from_proc(pid));
            reading.wait_until(pid, Instant::now() + PATIENCE)?
        }
    }
}

/// `pagemap` has an entry for each page of a mapping, so mappings without memory are not read.
fn read_regions_from_proc(pid: u32) -> Result<Vec<RegionSample>> {
    let with_memory = |map| memory_maps::has_memory(&map).then(|| Mapping::from_smaps(&map));
    let mappings = memory_maps::read_smaps(pid, with_memory)?;
    pagemap::read_population(pid, &ranges_for_huge_pages(mappings))
}

/// Where the kernel may make huge pages by itself. Unlike a manager, it does not leave out what is
/// offered to KSM.
fn ranges_for_huge_pages(mut mappings: Vec<Mapping>) -> Vec<Range<u64>> {
    for mapping in &mut mappings {
        mapping.flags &= !vm::MERGEABLE;
    }
    collect_eligible_ranges(&mappings).ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES;
    use std::process::{Child, Command};

    #[test]
    fn memory_offered_to_ksm_counts_and_memory_excluded_from_huge_pages_does_not() {
        let with = |flags, region: u64| Mapping {
            range: region * HUGE_PAGE_BYTES..(region + 1) * HUGE_PAGE_BYTES,
            flags: vm::WRITE | flags,
            file_backed: false,
            shared_file: None,
        };
        let found = ranges_for_huge_pages(vec![with(vm::MERGEABLE, 1), with(vm::NOHUGEPAGE, 2)]);
        assert_eq!(found, vec![HUGE_PAGE_BYTES..2 * HUGE_PAGE_BYTES]);
    }

    #[test]
    fn what_was_swapped_out_was_not_given_back() {
        assert_eq!(below_peak_bytes([Some(900), Some(500), Some(300)]), 100 << 10);
        assert_eq!(below_peak_bytes([Some(900), Some(901), None]), 0);
        assert_eq!(below_peak_bytes([None, Some(500), Some(0)]), 0);
    }

    fn survey(pid: u32, wait: Duration) -> (SurveyCoverage, Vec<SurveyedProcess>) {
        let mut found = Vec::new();
        let coverage = survey_population(
            &mut SamplerBackend::Population,
            &CgroupLimits::of_this_machine(),
            |other, _| other == pid,
            Instant::now() + wait,
            |process, _| found.push(process),
        );
        (coverage.expect("the processes can be listed"), found)
    }

    fn end(mut child: Child) {
        child.kill().expect("the process can be killed");
        child.wait().expect("the process ends");
    }

    #[test]
    fn a_process_is_read_and_one_that_has_ended_is_not_counted() {
        let child = Command::new("sleep").arg("600").spawn().expect("the program starts");
        let pid = child.id();
        let (coverage, found) = survey(pid, Duration::from_secs(60));
        assert_eq!(coverage, SurveyCoverage { read: 1, left_out: 0 });
        assert_eq!(found[0].scanned.process.pid, pid);
        assert!(found[0].cgroup.is_absolute() && found[0].scanned.anonymous_bytes > 0);
        end(child);
        let (coverage, found) = survey(pid, Duration::from_secs(60));
        assert_eq!((coverage, found.len()), (SurveyCoverage::default(), 0));
    }
}
