//! Results of a machine's calls.

use hawkeye_policy::{Errno, PageOrder, PageOrderSet, ProcessId, ProcessSettings, RegionAddr};
use std::time::Duration;
use thiserror::Error;

/// Why a call into a process failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum MachineError {
    /// The process has ended or replaced its address space. It will give no further results.
    #[error("process {0} has ended, or runs another program now")]
    Gone(ProcessId),
    /// A call into the process is still under way. No other call is made before that one ends.
    #[error("process {0} does not answer: an earlier call into it has not returned yet")]
    NotAnswering(ProcessId),
    #[error("{call} in process {process} failed: {errno}")]
    Refused { call: &'static str, process: ProcessId, errno: Errno },
    #[error("this machine has no pages of {0}")]
    PageSize(PageOrder),
    /// Zero pages of the process can only be swapped out, and its cgroup has no swap for them.
    #[error(
        "zero pages of process {0} cannot be freed: this kernel can only swap them out, and its cgroup has no swap left"
    )]
    NoSwap(ProcessId),
    /// The call was not made, because no helper process for it could be started. This says nothing
    /// about the process.
    #[error("{0}")]
    NoHelper(String),
    /// An operation around the call failed (for example the read of a file in `/proc`).
    #[error("{0}")]
    Other(String),
}

impl MachineError {
    /// Whether no huge page was available (`madvise_collapse_errno`, mm/khugepaged.c). Such an
    /// error says nothing about the region itself.
    pub fn is_huge_page_shortage(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == Errno::ENOMEM)
    }
}

/// Progress of work that is done in slices, so that memory use is read in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceProgress<T> {
    /// All work is done.
    Done(T),
    /// The same call continues the work, after this time.
    Unfinished(Duration),
}

impl<T> SliceProgress<T> {
    /// The result; `None` if unfinished.
    pub fn into_done(self) -> Option<T> {
        match self {
            Self::Done(done) => Some(done),
            Self::Unfinished(_) => None,
        }
    }

    /// Applies `change` to the result of finished work.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> SliceProgress<U> {
        match self {
            Self::Done(done) => SliceProgress::Done(change(done)),
            Self::Unfinished(wait) => SliceProgress::Unfinished(wait),
        }
    }
}

/// Results of calls for which the loop has stopped waiting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedOutCallResults {
    /// Promotions that ended since the last call.
    pub ended: Vec<TimedOutPromotionResult>,
    /// Processes that have not answered a call for a second or more. Every call into such a process
    /// fails with [`MachineError::NotAnswering`] until it answers.
    pub waiting: Vec<UnresponsiveProcess>,
}

/// A promotion that ended after the loop had stopped waiting for it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedOutPromotionResult {
    /// The process.
    pub process: ProcessId,
    /// The region.
    pub region: RegionAddr,
    /// The result.
    pub outcome: Result<PromotionResult, MachineError>,
    /// Its duration, including the wait for the process.
    pub took: Duration,
}

/// A process that has not answered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresponsiveProcess {
    /// The process.
    pub process: ProcessId,
    /// Name of the call for users.
    pub call: &'static str,
    /// How long the call has waited.
    pub waited: Duration,
}

/// Why the loop woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopWakeReason {
    /// The deadline has come.
    Deadline,
    /// Management should end: it was interrupted, or nothing is left to manage.
    Stop,
    /// Another part of this program needs the loop.
    Called,
    /// A process has just joined and should be handled now.
    Joined,
    /// The configuration should be read again.
    Reload,
}

/// Result of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionResult {
    /// The region is huge now.
    Done {
        /// How long it took.
        took: Duration,
        /// CPU time of its call.
        cpu: Duration,
        /// Whether the reserve gave a huge page for it.
        from_reserve: bool,
    },
    /// The process has not answered yet: see [`TimedOutCallResults::ended`].
    Pending,
    /// The process has freed some of the region since the sample: left alone.
    Freed,
    /// The region is already huge, or no longer in an eligible mapping.
    NotCandidate,
    /// Other processes also map more of its base pages than
    /// [`MAX_SHARED_PAGES`](hawkeye_policy::MAX_SHARED_PAGES), copy-on-write or merged. The region
    /// is left alone, because a promotion copies them.
    Shared {
        /// Number of such base pages.
        pages: u16,
    },
    /// No managed process maps more than [`MAX_FILE_HOLES`](hawkeye_policy::MAX_FILE_HOLES) of the
    /// base pages of shared memory. The region is left alone, because its file may lack them, and
    /// no split gives back what a promotion adds to the file.
    FileHoles {
        /// Number of such base pages.
        pages: u16,
    },
}

/// Result of the search for zero-filled base pages in a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroScanResult {
    /// Base pages that hold only zeros (0 to `enough`).
    pub zero_pages: u16,
    /// Duration of the search.
    pub took: Duration,
}

/// Result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryResult {
    /// Decrease of the process's memory, in bytes, counted from its page table.
    pub bytes: u64,
    /// Base pages of the region that still have memory of their own.
    pub left_present: u16,
    /// Total duration of the calls.
    pub took: Duration,
    /// The longest single call.
    pub longest_call: Duration,
}

/// Memory of a process, from a cheap reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessFootprint {
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Memory mapped by huge pages, in bytes.
    pub huge_bytes: u64,
    /// Whether regions that lost their huge page, perhaps in part, wait for a listing's search.
    /// False where a machine cannot tell.
    pub has_lost_huge_pages: bool,
}

/// Identity of a process, and properties that policies do not use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessDescription {
    /// Command name (at most 15 characters).
    pub name: String,
    /// Name of its user, where there are users.
    pub user: Option<String>,
    /// The user that owns the memory and may see its addresses. `None`: no user.
    pub uid: Option<u32>,
    /// Path of its cgroup, where there are cgroups.
    pub cgroup: Option<String>,
    /// Its pod, container or systemd unit, in words.
    pub unit: Option<String>,
    /// Whether `PR_SET_THP_DISABLE` is set for it: none of its memory can become huge.
    pub thp_disabled: bool,
    /// Memory that it excludes with `MADV_NOHUGEPAGE`, in bytes, at the last sample.
    pub refused_bytes: u64,
    /// Its terms at the moment; `None`: unknown.
    pub terms: Option<ProcessSettings>,
    /// Name of the rule that includes it; `None`: no rule matches it.
    pub rule_name: Option<String>,
    /// The profile that its workload asks for and what comes of that, as a clause; `None`: it asks
    /// for none.
    pub profile_request: Option<String>,
}

/// Page sizes at first touches that were best in a program's earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedFaultSizes {
    /// The sizes; empty: base pages.
    pub orders: PageOrderSet,
    /// Number of consecutive starts in which they were best.
    pub starts: u32,
}

/// Cost of management so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagementCosts {
    /// CPU time of the manager and its helpers.
    pub cpu: Duration,
    /// The longest single call into another process.
    pub longest_call: Duration,
}
