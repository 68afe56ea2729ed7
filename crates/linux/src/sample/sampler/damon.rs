//! Access sampling through DAMON, for kernels where the BPF sampler cannot run.
//!
//! DAMON ("data access monitoring", `mm/damon/` in the kernel) checks one random base page of each
//! monitored region per *sampling interval*: it clears the page's access bit and looks, one
//! interval later, whether the bit is set again. Here it monitors each 2 MiB region of a process on
//! its own; the counts come back through sysfs (the kernel's
//! `Documentation/admin-guide/mm/damon/usage.rst`). Runs of neighbouring pages cannot be seen, and
//! neither can which pages are present. TLBs are not flushed, as with any use of access bits.
//!
//! It needs `CONFIG_DAMON_VADDR`, `CONFIG_DAMON_SYSFS` and Linux 6.2 (results in sysfs), and that
//! nobody else uses DAMON: a session takes the whole interface, starts only where no kdamond is
//! configured, and puts `nr_kdamonds` back to 0 at its end. Between that check and the first write
//! another program could configure one, whose configuration would be lost: the kernel has no lock to
//! take.
//!
//! It costs two page-table walks per region and sampling interval in the kernel thread, and in the
//! manager two file writes per region before the window and three file reads after it.

pub mod error;
mod estimate;
mod kdamond;
mod pager;
mod session;
mod sysfs;
#[cfg(test)]
mod tests;
mod turns;
mod window;

pub use error::DamonError;
pub use session::DamonSession;
pub use window::{MAX_REGIONS, Window};

use super::population::PopulationSampler;
use super::{Member, Sampler, Slice, Sliced, Turn};
use crate::error::Result;
use crate::processes::mappings::Mapping;
use crate::promote::target_call::TargetCalls;
use error::Result as DamonResult;
use hawkeye_policy::{CoverageSource, Needs, ProcessId, ProcessSample, RegionAddr, RegionSample};
use kdamond::Kdamond;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;
use sysfs::Dir;
use turns::{Estimates, Sessions};

/// The kernel's DAMON.
#[derive(Clone, Debug)]
pub struct Damon {
    admin: PathBuf,
}

impl Default for Damon {
    fn default() -> Self {
        Self {
            admin: "/sys/kernel/mm/damon/admin".into(),
        }
    }
}

impl Damon {
    /// Starts to monitor `regions` of process `pid` (ascending, at least one, at most
    /// [`MAX_REGIONS`]) for one window.
    pub fn start(
        &self,
        pid: u32,
        regions: &[RegionAddr],
        window: Window,
    ) -> DamonResult<DamonSession> {
        DamonSession::start(Kdamond::claim(&self.kdamonds()?)?, pid, regions, window)
    }

    /// Stops what a killed manager left behind, and says whether there was anything. A session
    /// whose manager is alive, and everybody else's kdamonds, stay.
    pub fn stop_leftover(&self) -> DamonResult<bool> {
        match Kdamond::abandoned(&self.kdamonds()?)? {
            Some(kdamond) => kdamond.release().map(|()| true),
            None => Ok(false),
        }
    }

    fn kdamonds(&self) -> DamonResult<Dir> {
        let path = self.admin.join("kdamonds");
        if path.is_dir() {
            Ok(Dir(path))
        } else {
            Err(DamonError::Absent(path))
        }
    }
}

/// Samples processes by DAMON, in turn; what is present is read from pagemap.
#[derive(Default)]
pub(super) struct DamonSampler {
    sessions: Sessions,
    population: PopulationSampler,
    /// What DAMON has shown of each process, from its first window on.
    estimates: HashMap<ProcessId, Estimates>,
}

impl Sampler for DamonSampler {
    fn retain(&mut self, there: &dyn Fn(ProcessId) -> bool) {
        self.estimates.retain(|process, _| there(*process));
        self.population.retain(there);
    }

    fn mappings(&mut self, member: &Member, calls: &mut TargetCalls) -> Result<Vec<Mapping>> {
        self.population.mappings(member, calls)
    }

    fn start_window(&mut self, member: &mut Member, _needs: Needs, _turn: &mut Turn) -> Sliced<()> {
        if member.thp_disabled {
            return Ok(Slice::Done(()));
        }
        let process = member.handle.id;
        let estimates = self.estimates.entry(process).or_default();
        self.sessions.start_window(process, estimates)
    }

    fn sample(&mut self, member: &mut Member, turn: &mut Turn) -> Sliced<ProcessSample> {
        let process = member.handle.id;
        if let Some(estimates) = self.estimates.get_mut(&process) {
            if let Slice::Unfinished(wait) = self.sessions.end_window(process, estimates)? {
                return Ok(Slice::Unfinished(wait));
            }
        }
        let sample = self.population.sample(member, turn)?;
        Ok(sample.map(|mut sample| {
            if let Some(estimates) = self.estimates.get_mut(&process) {
                estimates.apply(&mut sample.regions);
                sample.source = CoverageSource::Estimated;
            }
            sample
        }))
    }

    fn look(&mut self, member: &Member, region: RegionAddr) -> Result<Option<RegionSample>> {
        self.population.look(member, region)
    }

    fn huge_bytes(&mut self, member: &mut Member, deadline: Instant) -> Sliced<u64> {
        self.population.huge_bytes(member, deadline)
    }

    fn huge_pages(&mut self, member: &mut Member, turn: &mut Turn) -> Sliced<Vec<RegionSample>> {
        self.population.huge_pages(member, turn)
    }

    fn zero_pages(
        &mut self,
        member: &Member,
        region: RegionAddr,
        enough: u16,
        calls: &mut TargetCalls,
    ) -> Result<Option<u16>> {
        self.population.zero_pages(member, region, enough, calls)
    }
}
