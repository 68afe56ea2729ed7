//! The managed machine: the running kernel or a simulated one. The manager's loop knows only this.
//!
//! [`Machine`] has the calls that every machine implements. [`Sampling`] reads accesses. Features
//! that a machine may lack have traits of their own, with defaults that do nothing:
//! [`FaultPageSizes`], [`Prefault`], [`HugePageReserveControl`] and [`Explain`].

mod call_results;

pub use call_results::{
    LearnedFaultSizes, LoopWakeReason, MachineError, ManagementCosts, ProcessDescription,
    ProcessFootprint, PromotionResult, RecoveryResult, SliceProgress, TimedOutCallResults,
    TimedOutPromotionResult, UnresponsiveProcess, ZeroScanResult,
};

use crate::budget_wait::BudgetWait;
use hawkeye_policy::{
    BloatKind, MachinePageProperties, MemoryScope, MemoryState, MemoryUse, PageOrderSet, ProcessId,
    ProcessSample, ProcessSettings, Promotion, RegionAddr, RegionSample, ReserveState,
    ReserveTarget, SampleKinds,
};
use std::time::Duration;

/// The result of a call on a machine.
pub type CallResult<T> = Result<T, MachineError>;
/// The result of a call that may have to be continued later.
pub type ResumableCallResult<T> = CallResult<SliceProgress<T>>;

/// A machine under management.
pub trait Machine: Sampling + FaultPageSizes + Prefault + HugePageReserveControl + Explain {
    /// Monotonic time since management of the machine began.
    fn now(&self) -> Duration;

    /// Lets the machine run until `deadline`, or less when something needs attention before.
    fn wait_until(&mut self, deadline: Duration) -> LoopWakeReason;

    /// The current managed processes, in order of arrival. Admits processes that have joined until
    /// `until`.
    fn admit_and_list_processes(&mut self, until: Duration) -> SliceProgress<Vec<ProcessId>>;

    /// Memory in use, and the memory pressure on tasks.
    fn read_memory_state(&mut self) -> CallResult<MemoryState>;

    /// Memory in use, of the machine or of one cgroup. Cheap: called up to 20 times a second.
    fn read_memory_use(&mut self, scope: &MemoryScope) -> CallResult<MemoryUse>;

    /// Properties of the machine, above all its page sizes.
    fn page_properties(&self) -> MachinePageProperties {
        MachinePageProperties::default()
    }

    /// Resident and huge memory of a process. Works until `until`.
    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessFootprint>;

    /// Maps the region by pages of the promotion's size, which is one of
    /// [`MachinePageProperties::promotable`]. Refuses if the region is no longer as the promotion
    /// expects it. A page of several regions begins at this one. A region with many shared pages,
    /// by its state at the call, is left alone.
    fn promote(&mut self, promotion: &Promotion) -> CallResult<PromotionResult>;

    /// Counts the zero-filled base pages of a huge page. Stops at `enough`.
    fn count_zero_pages_in_huge_page(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> CallResult<ZeroScanResult>;

    /// Splits huge pages, which gives memory of this kind back. Refused where there is none.
    /// Returns a result for each region, in order.
    fn recover_bloat(
        &mut self,
        process: ProcessId,
        regions: &[RegionAddr],
        kind: BloatKind,
    ) -> Vec<CallResult<RecoveryResult>>;

    /// Results of calls for which the loop did not wait.
    fn take_timed_out_call_results(&mut self) -> TimedOutCallResults {
        TimedOutCallResults::default()
    }

    /// Cost of management so far.
    fn management_costs(&self) -> ManagementCosts;
}

/// How a machine observes accesses to memory.
pub trait Sampling {
    /// Starts a sampling window of a process. Clears its access bits or prepares to probe it, as
    /// `needs` requires. Works until `until`.
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: SampleKinds,
        until: Duration,
    ) -> ResumableCallResult<()>;

    /// Probes a process in the open window, until `until`. Returns the wait until the next call;
    /// `None` when this window will show nothing more.
    fn probe(&mut self, _process: ProcessId, _until: Duration) -> CallResult<Option<Duration>> {
        Ok(None)
    }

    /// Reads what was accessed since the start of the last window, or what is present if there was
    /// no window. Works until `until`.
    fn sample(&mut self, process: ProcessId, until: Duration)
    -> ResumableCallResult<ProcessSample>;

    /// The huge pages of a process, without access figures (`accessed` repeats `present`). Far
    /// cheaper than a sample, and disturbs no window. Works until `until`.
    fn list_huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<Vec<RegionSample>>;

    /// CPU time that a process has used so far. Cheap: called once a second for each process.
    /// `None`: not known, or all of the process's samples are wanted, even while it does nothing.
    fn cpu_time(&self, _process: ProcessId) -> Option<Duration> {
        None
    }

    /// Drops a window that is being opened or read.
    fn abandon_all_windows(&mut self) {}

    /// Cost to the process of the first access to a base page after `start_window`, with which
    /// sampling can keep to a share of its time. Zero where hardware sets the bits by itself.
    fn first_touch_cost(&self) -> Duration;
}

/// Page sizes of memory at its first touch, where the kernel allows a choice.
pub trait FaultPageSizes {
    /// Gives a process pages of these sizes at first touches; empty: base pages. The sizes are of
    /// [`MachinePageProperties::at_faults`].
    fn set_fault_sizes(&mut self, _process: ProcessId, _orders: PageOrderSet) -> CallResult<()> {
        Ok(())
    }

    /// The sizes that suited the same program in earlier runs; `None` where unknown.
    fn learned_fault_sizes(&self, _process: ProcessId) -> Option<LearnedFaultSizes> {
        None
    }
}

/// Filling memory before a process touches it.
pub trait Prefault {
    /// Bytes that were filled for a process since the last call.
    fn take_prefaulted_bytes(&mut self, _process: ProcessId) -> u64 {
        0
    }

    /// What the rules set for a process, which may be filled before its first sample. `None` where
    /// only samples show it.
    fn process_settings(&self, _process: ProcessId) -> Option<ProcessSettings> {
        None
    }

    /// Sets how many more bytes may be filled for a process. Processes may share that.
    fn set_prefault_limit(&mut self, _process: ProcessId, _room_bytes: u64) {}

    /// The budget that holds it back at the moment.
    fn prefault_wait(&self) -> Option<BudgetWait> {
        None
    }
}

/// Huge pages that are held ready for promotions and prefault.
pub trait HugePageReserveControl {
    /// What the reserve holds and has done.
    fn reserve_state(&self) -> ReserveState {
        ReserveState::default()
    }

    /// Sets how many huge pages it holds, without waiting for that. `most` is the limit of all
    /// targets.
    fn set_reserve_target(&mut self, _target: ReserveTarget, _most: u32) -> CallResult<()> {
        Ok(())
    }
}

/// Facts about processes that users ask for and policies do not use.
pub trait Explain {
    /// Name, user and cgroup of a managed process, as far as they can still be determined.
    fn describe(&self, _process: ProcessId) -> ProcessDescription {
        ProcessDescription::default()
    }

    /// Why a process is not managed, as a sentence. `None` where there is no such process or
    /// nothing excludes it.
    fn why_not_managed(&self, _pid: u32) -> Option<String> {
        None
    }

    /// Why the region cannot become huge whatever its accesses, as a clause of a sentence; `None`
    /// where it can.
    fn why_region_excluded(&mut self, _process: ProcessId, _region: RegionAddr) -> Option<String> {
        None
    }
}
