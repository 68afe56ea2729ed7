//! The machine that is managed: the running kernel or a simulated one. The loop knows only this.

use hawkeye_policy::{
    MachineShape, MemoryState, MemoryUse, Needs, PageOrder, PageOrders, ProcessId, ProcessSample,
    RegionAddr, RegionSample, Scope,
};
use std::time::Duration;
use thiserror::Error;

/// Why a call into a process did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// The process has ended or replaced its address space; nothing more will come from it.
    #[error("process {0} is gone")]
    Gone(ProcessId),
    /// A call into it is still under way: it gets no other before that has ended.
    #[error("process {0} does not answer")]
    NotAnswering(ProcessId),
    /// The kernel refused.
    #[error("{call} on process {process}: {errno}")]
    Refused {
        /// What was tried, as a person would name it.
        call: &'static str,
        /// On whom.
        process: ProcessId,
        /// The error's symbolic name, such as `EBUSY`.
        errno: &'static str,
    },
    /// It has no pages of this size to give.
    #[error("pages of {0} can't be had here")]
    PageSize(PageOrder),
    /// Something around the call failed (a file of `/proc` that can't be read, say).
    #[error("{0}")]
    Other(String),
}

/// What Linux refuses a promotion with where no huge page can be had (`madvise_collapse_errno`, mm/khugepaged.c).
pub const NO_HUGE_PAGE: &str = "ENOMEM";

impl MachineError {
    /// Whether no huge page could be had, which says nothing about the region it was for.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == NO_HUGE_PAGE)
    }
}

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
    /// The process has not answered yet: what comes of it is told by [`Machine::late_promotions`].
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

/// A machine under management.
pub trait Machine {
    /// Monotonic time since the machine was taken over.
    fn now(&self) -> Duration;

    /// Lets the machine run until `deadline`, or less when management should end.
    fn wait_until(&mut self, deadline: Duration) -> Wake;

    /// The managed processes that are there now, first come first. Many that join at once are not done by
    /// `until`.
    fn processes(&mut self, until: Duration) -> Progress<Vec<ProcessId>>;

    /// How much memory is in use, and by how much pressure it is felt.
    fn memory(&mut self) -> Result<MemoryState, MachineError>;

    /// The same of the machine or one cgroup alone, cheaply: it is asked for up to 20 times a second.
    fn memory_use(&mut self, scope: &Scope) -> Result<MemoryUse, MachineError>;

    /// Starts a sampling window: clears the access bits of the process for its coverage, prepares
    /// to probe it for its overhead, whatever of the two is needed. Goes on until `until`.
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: Needs,
        until: Duration,
    ) -> Result<Progress<()>, MachineError>;

    /// Goes on probing a process in the window that is open, until `until`; says how long to wait
    /// before it is called again, `None` when there is nothing more to see in this window.
    fn probe(
        &mut self,
        _process: ProcessId,
        _until: Duration,
    ) -> Result<Option<Duration>, MachineError> {
        Ok(None)
    }

    /// Reads coverage since a window was last started (population alone where none ever was), until
    /// `until`.
    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<ProcessSample>, MachineError>;

    /// The huge pages of a process, without access figures (`accessed` repeats `present`): far cheaper
    /// than a sample, and no window is disturbed by it. Goes on until `until`.
    fn huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Vec<RegionSample>>, MachineError>;

    /// What is unfinished of a window (opened or read) is not gone on with.
    fn abandon_window(&mut self) {}

    /// Promotions that ended late since this was last asked.
    fn late_promotions(&mut self) -> Vec<LatePromotion> {
        Vec::new()
    }

    /// Processes that have not answered a call for a second or more. All calls into them fail with
    /// [`MachineError::NotAnswering`] until they do.
    fn not_answering(&self) -> Vec<NotAnswering> {
        Vec::new()
    }

    /// What one base page's first access after `start_window` costs the process, so that sampling
    /// can keep to a share of its time. Zero where hardware sets the bits unaided.
    fn first_touch_cost(&self) -> Duration;

    /// What it offers, the sizes of pages above all.
    fn shape(&self) -> MachineShape {
        MachineShape::default()
    }

    /// Maps the region by pages of this size, which is one of [`MachineShape::promotable`], unless fewer than
    /// `expected_present` base pages are left in it. A page of several regions begins at this one.
    /// Regions with many shared pages are left alone, by how things stand at the call.
    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        expected_present: u16,
    ) -> Result<Promoted, MachineError>;

    /// Has memory of the process that is touched for the first time be given pages of these sizes, which are of
    /// [`MachineShape::at_faults`]; none: base pages.
    fn set_fault_sizes(
        &mut self,
        _process: ProcessId,
        _orders: PageOrders,
    ) -> Result<(), MachineError> {
        Ok(())
    }

    /// What suited the same program when it ran before, for as long as the policy has not seen enough of it; `None` where nothing
    /// is known.
    fn learned_sizes(&self, _process: ProcessId) -> Option<LearnedSizes> {
        None
    }

    /// Counts the zero-filled base pages of a huge page, leaving each at its first other byte and
    /// the huge page at the `enough`th.
    fn scan_zeros(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScan, MachineError>;

    /// Splits a huge page and gives its zero-filled base pages back.
    fn recover(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<Recovered, MachineError>;

    /// Bytes that were filled ahead of a process since this was last asked.
    fn take_filled(&mut self, _process: ProcessId) -> u64 {
        0
    }

    /// How much may be filled ahead of a process from now on, in bytes; without effect where nothing is.
    fn allow_fill(&mut self, _process: ProcessId, _room_bytes: u64) {}

    /// Resident and huge memory of a process, looked for until `until`.
    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Footprint>, MachineError>;

    /// Who a managed process is, as far as that can still be found out.
    fn describe(&self, _process: ProcessId) -> Description {
        Description::default()
    }

    /// Why a process is not managed, as a sentence; `None` where there is no such process or
    /// nothing keeps it out.
    fn why_not_managed(&self, _pid: u32) -> Option<String> {
        None
    }

    /// Why the region can't become huge whatever its accesses (what is mapped there), as a clause;
    /// `None` where it can.
    fn why_excluded(&mut self, _process: ProcessId, _region: RegionAddr) -> Option<String> {
        None
    }

    /// CPU time the manager itself has used so far.
    fn manager_cpu(&self) -> Duration;

    /// The longest call into another process so far.
    fn longest_call(&self) -> Duration;
}
