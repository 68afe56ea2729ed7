//! One managed process, with the state that every sampler needs.

use crate::error::Result;
use crate::processes::mappings::Eligible;
use crate::processes::process::{self, ProcessHandle};
use hawkeye_policy::{Identity, ProcessSample, RegionSample, Terms};
use procfs::process::Process;

/// A managed process: its handle and what was last found in it.
pub struct Member {
    /// The process.
    pub handle: ProcessHandle,
    /// Its identity.
    pub identity: Identity,
    /// Terms on which it is managed.
    pub terms: Terms,
    /// Whether it or an ancestor set `PR_SET_THP_DISABLE`: then none of its memory can become huge.
    pub thp_disabled: bool,
    /// Mappings that were eligible at the last sample.
    pub eligible: Eligible,
}

impl Member {
    /// Opens a process for management, under the given identity.
    ///
    /// # Errors
    /// The process is gone.
    pub fn open(pid: u32, identity: Identity, terms: Terms) -> Result<Self> {
        Ok(Self {
            handle: ProcessHandle::open(pid)?,
            identity,
            terms,
            thp_disabled: thp_disabled(pid),
            eligible: Eligible::default(),
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
