//! What the calls of a machine return.

use super::error::MachineError;
use hawkeye_policy::{PageOrders, ProcessId, RegionAddr};
use std::time::Duration;

/// How far something has come that is done in slices, so that memory is looked at in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// All of it is done.
    Done(T),
    /// The same call goes on with it, at this time or later.
    Unfinished {
        /// When to call again.
        again_at: Duration,
    },
}

impl<T> Progress<T> {
    /// What was done; `None` if it is unfinished.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(done) => Some(done),
            Self::Unfinished { .. } => None,
        }
    }
}

/// What became of calls that the loop does not wait for any more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unanswered {
    /// Promotions that ended since this was last asked.
    pub ended: Vec<LatePromotion>,
    /// Processes that have not answered a call for a second or more. Every call into them fails with
    /// [`MachineError::NotAnswering`] until they do.
    pub waiting: Vec<NotAnswering>,
}

/// A promotion that ended after the loop had stopped waiting for it.
#[derive(Clone, Debug, PartialEq)]
pub struct LatePromotion {
    /// Of which process.
    pub process: ProcessId,
    /// Which region.
    pub region: RegionAddr,
    /// What came of it.
    pub outcome: Result<Promoted, MachineError>,
    /// How long it took, the wait for the process included.
    pub took: Duration,
}

/// A process that has not answered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnswering {
    /// Which.
    pub process: ProcessId,
    /// What was tried, as a person would name it.
    pub call: &'static str,
    /// For how long the call has waited.
    pub waited: Duration,
}

/// Why the loop was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time asked for has come.
    Deadline,
    /// Management should end: interrupted, or nothing is left to manage.
    Stop,
    /// Somebody else in this program wants something.
    Called,
    /// A process has just joined: what is to be done for it should be done now.
    Joined,
    /// The configuration should be read again.
    Reload,
}

/// What a promotion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promoted {
    /// The region is huge now; it took this long.
    Done(Duration),
    /// The process has not answered yet: see [`Unanswered::ended`].
    Pending,
    /// Its owner has freed some of it since it was sampled: left alone.
    Freed,
    /// It is huge already, or no longer a region of an eligible mapping.
    NotCandidate,
    /// More of its base pages than [`MAX_SHARED_PAGES`](hawkeye_policy::MAX_SHARED_PAGES) are mapped
    /// by other processes too, copy-on-write or merged: left alone, because a promotion copies them.
    Shared {
        /// Base pages that are.
        pages: u16,
    },
}

/// Result of looking for zero-filled base pages in a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroScan {
    /// Base pages that hold only zeros (0 to what was enough).
    pub zero_pages: u16,
    /// How long it took.
    pub took: Duration,
}

/// What a recovery did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Memory that the process holds less of, in bytes, counted from its page table.
    pub bytes: u64,
    /// Base pages of the region that still have memory of their own.
    pub left_present: u16,
    /// How long the calls took together.
    pub took: Duration,
    /// The longest single call.
    pub longest_call: Duration,
}

/// Where a process stands, cheaply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Memory mapped by huge pages, in bytes.
    pub huge_bytes: u64,
}

/// Who a process is, and what about it is not the policy's business.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Command name (15 characters at most).
    pub name: String,
    /// Name of its user, where there are users.
    pub user: Option<String>,
    /// Whose memory it is: that user may know where it lies. `None`: nobody's.
    pub uid: Option<u32>,
    /// Path of its cgroup, where there are cgroups.
    pub cgroup: Option<String>,
    /// What it runs as, in words: a pod, a container, a unit of systemd.
    pub unit: Option<String>,
    /// Whether it was told `PR_SET_THP_DISABLE`: nothing of it can become huge.
    pub thp_disabled: bool,
    /// Memory that it keeps out by `MADV_NOHUGEPAGE`, in bytes, at the last sample.
    pub refused_bytes: u64,
}

/// Page sizes at first touches that were best for a program before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedSizes {
    /// Which; none: base pages.
    pub orders: PageOrders,
    /// In how many of its starts, one after the other.
    pub starts: u32,
}

/// What management has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCosts {
    /// CPU time of the manager and its helpers.
    pub cpu: Duration,
    /// The longest single call into another process.
    pub longest_call: Duration,
}
