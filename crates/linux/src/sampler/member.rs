//! One managed process, as the sampler keeps it.

use super::bits::WindowStart;
use super::damon::Estimates;
use super::population::PopulationReading;
use super::run_rate::Walks;
use crate::counters::CounterSet;
use crate::error::LinuxError;
use crate::mappings::Eligible;
use crate::page_tables::{RegionWalk, Target};
use crate::process::ProcessHandle;
use hawkeye_policy::{Identity, Terms};
use procfs::process::Process;

/// A managed process: its handle and what was last found in it.
pub struct Member {
    /// The process.
    pub handle: ProcessHandle,
    /// Who it is.
    pub identity: Identity,
    /// On which terms it is managed.
    pub terms: Terms,
    /// Whether it or an ancestor said `PR_SET_THP_DISABLE`: nothing of it can become huge.
    pub thp_disabled: bool,
    /// Mappings that were eligible at the last sample.
    pub eligible: Eligible,
    pub(super) target: Option<Target>,
    /// Whether its access bits were ever cleared: before that, they tell nothing.
    pub(super) cleared: bool,
    /// Whether all of them were, and not only those of a sample of its regions.
    pub(super) all_cleared: bool,
    /// What DAMON has shown of it, from the first window on.
    pub(super) estimates: Option<Estimates>,
    /// Its hardware counters, where there are any.
    pub(super) counters: Option<CounterSet>,
    /// What probing has shown of it.
    pub(super) walks: Walks,
    /// The start of a window, under way.
    pub(super) starting: Option<WindowStart>,
    /// The reading of a sample, under way.
    pub(super) reading: Option<RegionWalk>,
    /// The listing of its huge pages, under way.
    pub(super) listing: Option<RegionWalk>,
    /// The counting of its huge pages, under way.
    pub(super) measuring: Option<RegionWalk>,
    /// The reading of its population without BPF, under way.
    pub(super) population: Option<PopulationReading>,
}

impl Member {
    /// Opens a process for management, as who it is known.
    pub fn open(pid: u32, identity: Identity, terms: Terms) -> Result<Self, LinuxError> {
        let handle = ProcessHandle::open(pid)?;
        Ok(Self {
            identity,
            terms,
            thp_disabled: thp_disabled(pid),
            handle,
            eligible: Eligible::default(),
            target: None,
            cleared: false,
            all_cleared: false,
            estimates: None,
            counters: None,
            walks: Walks::default(),
            starting: None,
            reading: None,
            listing: None,
            measuring: None,
            population: None,
        })
    }
}

impl Member {
    /// What is unfinished of a window is not gone on with.
    pub(crate) fn abandon_window(&mut self) {
        self.starting = None;
        self.reading = None;
    }
}

/// `THP_enabled` in `/proc/PID/status` (since 5.0).
fn thp_disabled(pid: u32) -> bool {
    Process::new(pid as i32)
        .and_then(|process| process.status())
        .is_ok_and(|status| status.thp_enabled == Some(false))
}
