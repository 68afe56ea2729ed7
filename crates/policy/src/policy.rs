//! The contract of every policy.

use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::plan::{FaultSizes, Promotion, Reason};
use std::time::Duration;

/// What a policy must be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Nothing: it never promotes.
    Nothing,
    /// Which base pages are present; no access bits are cleared for it.
    Population,
    /// Access coverage.
    Coverage,
    /// Access coverage, and the overhead of each process.
    CoverageAndOverhead,
    /// The overhead of each process, and how fast each region is walked for.
    Walks,
}

impl Needs {
    /// Whether access bits are cleared and read for it.
    pub fn accesses(self) -> bool {
        self >= Self::Coverage
    }

    /// Whether the whole of a process is to be cleared, for its coverage.
    pub fn coverage(self) -> bool {
        matches!(self, Self::Coverage | Self::CoverageAndOverhead)
    }

    /// Whether overhead is to be found out.
    pub fn overhead(self) -> bool {
        self >= Self::CoverageAndOverhead
    }
}

/// A region that waits for its promotion.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Why it would be proposed if its turn came now.
    pub reason: Reason,
    /// So many regions of its process come before it.
    pub ahead: u64,
    /// Why it would not be proposed even then, as a clause.
    pub passed_over: Option<String>,
}

/// Decides which region becomes huge next. Pure: it learns only through `observe` and `settle`, and
/// its clock is the `now` it is given (any monotonic origin, the same in every call).
///
/// Limits that hold for every policy (budgets, watermarks, cool-downs) are not its business: the
/// manager applies them and drops a proposal that they forbid. A dropped or refused region comes
/// back through a later observation.
pub trait Policy: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it must be shown.
    fn needs(&self) -> Needs;

    /// Takes in one round of samples. A process that is missing from it, and not among the unread, is
    /// gone.
    fn observe(&mut self, observation: &Observation);

    /// The next promotion, removed from what is waiting; `None` when nothing should be promoted now.
    fn next_promotion(&mut self, now: Duration) -> Option<Promotion>;

    /// Page sizes that the process's memory should be given at first touches, where the machine lets that be chosen
    /// ([`MachineShape::at_faults`](crate::MachineShape::at_faults)); `None`: as the machine does by itself.
    fn fault_sizes(&self, _process: ProcessId) -> Option<FaultSizes> {
        None
    }

    /// Told that a proposal of its own was carried out, and how long that took; or that it was not
    /// (`None`). Policies that pace themselves count only the first.
    fn settle(&mut self, process: ProcessId, region: RegionAddr, took: Option<Duration>);

    /// For whoever asks about this region: how it waits for its turn; `None` where it does not, or the policy keeps
    /// no such list.
    fn waiting(&self, _process: ProcessId, _region: RegionAddr) -> Option<Waiting> {
        None
    }

    /// For whoever asks about this process: why the policy proposes nothing of it at present,
    /// whatever its regions are like, as a clause.
    fn passes_over(&self, _process: ProcessId) -> Option<String> {
        None
    }
}
