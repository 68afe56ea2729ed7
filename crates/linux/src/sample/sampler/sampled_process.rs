//! One managed process, with the state that every sampler needs.

use crate::error::Result;
use crate::processes::mappings::EligibleRanges;
use crate::processes::process::{self, ProcessHandle};
use hawkeye_policy::{ProcessIdentity, ProcessRules, ProcessSample, RegionSample};
use procfs::process::Process;

/// A managed process: its handle and what was last found in it.
pub struct SampledProcess {
    /// The process.
    pub handle: ProcessHandle,
    /// Its identity.
    pub identity: ProcessIdentity,
    /// Terms on which it is managed.
    pub terms: ProcessRules,
    /// Whether it or an ancestor set `PR_SET_THP_DISABLE`: then none of its memory can become huge.
    pub thp_disabled: bool,
    /// Mappings that were eligible at the last sample.
    pub eligible: EligibleRanges,
}

impl SampledProcess {
    /// Opens a process for management, under the given identity.
    ///
    /// # Errors
    /// The process is gone.
    pub fn open(pid: u32, identity: ProcessIdentity, terms: ProcessRules) -> Result<Self> {
        Ok(Self {
            handle: ProcessHandle::open(pid)?,
            identity,
            terms,
            thp_disabled: thp_disabled(pid),
            eligible: EligibleRanges::default(),
        })
    }

    /// A sample of the process with these regions, of which only the population is known.
    pub(super) fn population(&self, regions: Vec<RegionSample>) -> ProcessSample {
        let process = self.handle.id;
        ProcessSample {
            age: process::age(process),
            ..ProcessSample::population(process, regions)
        }
    }
}

/// `THP_enabled` in `/proc/PID/status` (since 5.0).
fn thp_disabled(pid: u32) -> bool {
    process::read(pid, Process::status).is_ok_and(|status| status.thp_enabled == Some(false))
}
