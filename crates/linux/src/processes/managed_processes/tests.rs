//! Named processes that cannot join, or do not fit.

use super::*;
use crate::processes::mappings::Mapping;
use crate::promote::target_call::CallHelperPool;
use crate::sample::sampler::{ProcessWorkSlice, SliceResult};
use hawkeye_policy::{ProcessSample, RegionAddr, RegionSample};
use std::process::Command;

/// Admits processes or refuses them. Nothing is sampled.
#[derive(Default)]
struct AdmittingSampler {
    refuses: bool,
    tried: usize,
}

impl Sampler for AdmittingSampler {
    fn bind(&mut self, _process: ProcessId) -> Result<()> {
        self.tried += 1;
        match self.refuses {
            true => Err(LinuxError::NotMeasured("refused by this test")),
            false => Ok(()),
        }
    }

    fn retain_processes(&mut self, _there: &dyn Fn(ProcessId) -> bool) {}

    fn list_mappings(
        &mut self,
        _member: &SampledProcess,
        _calls: &mut CallHelperPool,
    ) -> Result<Vec<Mapping>> {
        unreachable!("nothing is sampled")
    }

    fn read_sample(&mut self, _slice: &mut ProcessWorkSlice) -> SliceResult<ProcessSample> {
        unreachable!("nothing is sampled")
    }

    fn read_region(
        &mut self,
        _member: &SampledProcess,
        _region: RegionAddr,
        _calls: &mut CallHelperPool,
    ) -> Result<Option<RegionSample>> {
        unreachable!("nothing is sampled")
    }

    fn count_huge_bytes(&mut self, _slice: &mut ProcessWorkSlice) -> SliceResult<u64> {
        unreachable!("nothing is sampled")
    }

    fn list_huge_pages(&mut self, _slice: &mut ProcessWorkSlice) -> SliceResult<Vec<RegionSample>> {
        unreachable!("nothing is sampled")
    }

    fn count_zero_pages(
        &mut self,
        _member: &SampledProcess,
        _region: RegionAddr,
        _enough: u16,
        _calls: &mut CallHelperPool,
    ) -> Result<Option<u16>> {
        unreachable!("nothing is sampled")
    }
}

/// The pids that are managed after an update at this time.
fn managed_at(
    seconds: u64,
    members: &mut ManagedProcesses,
    target: &mut ManagedTarget,
    sampler: &mut AdmittingSampler,
) -> Vec<u32> {
    let (now, deadline) = (Duration::from_secs(seconds), Instant::now() + Duration::from_secs(600));
    let updated = members.update(target, sampler, 1, now, deadline);
    assert!(matches!(updated, SliceProgress::Done(())));
    members.processes_in_join_order().iter().map(|process| process.pid).collect()
}

fn handle(pid: u32) -> ProcessHandle {
    ProcessHandle::open(pid).expect("the process can be opened")
}

#[test]
fn a_named_process_that_is_refused_is_tried_again_ever_less_often() {
    let own = std::process::id();
    let mut target = ManagedTarget::Processes(vec![handle(own)]);
    let mut members = ManagedProcesses::new(1024);
    let mut sampler = AdmittingSampler { refuses: true, tried: 0 };
    for (seconds, tried) in [(0, 1), (1, 1), (29, 1), (30, 2), (89, 2), (90, 3)] {
        let managed = managed_at(seconds, &mut members, &mut target, &mut sampler);
        assert!(managed.is_empty());
        assert_eq!(sampler.tried, tried, "after {seconds} s");
    }
    sampler.refuses = false;
    assert_eq!(managed_at(1000, &mut members, &mut target, &mut sampler), [own]);
}

#[test]
fn named_processes_beyond_the_limit_of_open_files_wait_until_others_have_ended() {
    let own = std::process::id();
    let mut first = Command::new("sleep").arg("600").spawn().expect("the program starts");
    let mut target = ManagedTarget::Processes(vec![handle(first.id()), handle(own)]);
    // The least capacity is one process.
    let mut members = ManagedProcesses::new(0);
    let mut sampler = AdmittingSampler::default();
    for seconds in [0, 1] {
        let managed = managed_at(seconds, &mut members, &mut target, &mut sampler);
        assert_eq!(managed, [first.id()]);
    }
    assert_eq!(sampler.tried, 1);
    first.kill().expect("the program can be killed");
    first.wait().expect("the program ends");
    assert_eq!(managed_at(2, &mut members, &mut target, &mut sampler), [own]);
}
