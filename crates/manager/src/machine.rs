//! The machine that is managed: the running kernel or a simulated one. The loop knows only this.
//!
//! [`Machine`] is what every machine does. [`Sampling`] is how it sees accesses. What a machine may
//! lack has a trait of its own, with defaults that do nothing: [`FaultPageSizes`], [`Prefault`] and
//! [`Explain`].

mod error;
mod outcome;

pub use error::MachineError;
pub use outcome::{
    Description, Footprint, LatePromotion, LearnedSizes, NotAnswering, OwnCosts, Progress,
    Promoted, Recovered, Unanswered, Wake, ZeroScan,
};

use hawkeye_policy::{
    MachineShape, MemoryState, MemoryUse, Needs, PageOrder, PageOrders, ProcessId, ProcessSample,
    RegionAddr, RegionSample, Scope,
};
use std::time::Duration;

/// A machine under management.
pub trait Machine: Sampling + FaultPageSizes + Prefault + Explain {
    /// Monotonic time since the machine was taken over.
    fn now(&self) -> Duration;

    /// Lets the machine run until `deadline`, or less when something is to be done before.
    fn wait_until(&mut self, deadline: Duration) -> Wake;

    /// The managed processes that are there now, in the order in which they came. Admits processes
    /// that have joined until `until`.
    fn processes(&mut self, until: Duration) -> Progress<Vec<ProcessId>>;

    /// How much memory is in use, and the pressure that tasks feel.
    fn memory(&mut self) -> Result<MemoryState, MachineError>;

    /// The memory in use of the machine or of one cgroup. Cheap: called up to 20 times a second.
    fn memory_use(&mut self, scope: &Scope) -> Result<MemoryUse, MachineError>;

    /// What the machine offers, above all its page sizes.
    fn shape(&self) -> MachineShape {
        MachineShape::default()
    }

    /// Resident and huge memory of a process. Works until `until`.
    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Footprint>, MachineError>;

    /// Maps the region by pages of this size, which is one of [`MachineShape::promotable`], unless
    /// fewer than `expected_present` base pages are left in it. A page of several regions begins at
    /// this one. A region with many shared pages, by its state at the call, is left alone.
    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        expected_present: u16,
    ) -> Result<Promoted, MachineError>;

    /// Counts the zero-filled base pages of a huge page. Stops at the `enough`th.
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

    /// What became of calls that the loop did not wait for.
    fn unanswered(&mut self) -> Unanswered {
        Unanswered::default()
    }

    /// What management has cost so far.
    fn own_costs(&self) -> OwnCosts;
}

/// How accesses to memory are seen.
pub trait Sampling {
    /// Starts a sampling window of a process: clears its access bits or prepares to probe it, as
    /// `needs` demands. Works until `until`.
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: Needs,
        until: Duration,
    ) -> Result<Progress<()>, MachineError>;

    /// Probes a process in the open window, until `until`. Returns how long to wait before the next
    /// call; `None` when this window shows nothing more.
    fn probe(
        &mut self,
        _process: ProcessId,
        _until: Duration,
    ) -> Result<Option<Duration>, MachineError> {
        Ok(None)
    }

    /// Reads what was accessed since the last window was started, or what is present where none was.
    /// Works until `until`.
    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<ProcessSample>, MachineError>;

    /// The huge pages of a process, without access figures (`accessed` repeats `present`). Far
    /// cheaper than a sample, and no window is disturbed. Works until `until`.
    fn huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Vec<RegionSample>>, MachineError>;

    /// Drops a window that is being opened or read.
    fn abandon_window(&mut self) {}

    /// What one base page's first access after `start_window` costs the process, so that sampling
    /// can keep to a share of its time. Zero where hardware sets the bits unaided.
    fn first_touch_cost(&self) -> Duration;
}

/// Page sizes of memory that is touched for the first time, where the kernel lets them be chosen.
pub trait FaultPageSizes {
    /// Gives a process pages of these sizes, which are of [`MachineShape::at_faults`], at first
    /// touches; none: base pages.
    fn set_fault_sizes(
        &mut self,
        _process: ProcessId,
        _orders: PageOrders,
    ) -> Result<(), MachineError> {
        Ok(())
    }

    /// Which sizes suited the same program when it ran before; `None` where that is unknown.
    fn learned_sizes(&self, _process: ProcessId) -> Option<LearnedSizes> {
        None
    }
}

/// Memory that is filled before a process touches it.
pub trait Prefault {
    /// Bytes that were filled for a process since this was last asked.
    fn take_filled(&mut self, _process: ProcessId) -> u64 {
        0
    }

    /// How many bytes may be filled for a process from now on.
    fn allow_fill(&mut self, _process: ProcessId, _room_bytes: u64) {}
}

/// What a person wants to know about processes, and no policy.
pub trait Explain {
    /// Name, owner and cgroup of a managed process, as far as they can still be found out.
    fn describe(&self, _process: ProcessId) -> Description {
        Description::default()
    }

    /// Why a process is not managed, as a sentence; `None` where there is no such process or
    /// nothing keeps it out.
    fn why_not_managed(&self, _pid: u32) -> Option<String> {
        None
    }

    /// Why the region cannot become huge whatever its accesses, as a clause; `None` where it can.
    fn why_excluded(&mut self, _process: ProcessId, _region: RegionAddr) -> Option<String> {
        None
    }
}
