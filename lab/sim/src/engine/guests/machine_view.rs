//! Managers of one machine and of its guests take turns.
//!
//! A manager does what is due at an instant of simulated time, and is busy for its calls' time. It
//! is called again when the machine has reached the time at which it wants to wake.

use crate::engine::{Engine, EngineError, EngineFigures};
use hawkeye_manager::{
    Explain, FaultPageSizes, HugePageReserveControl, LoopWakeReason, Machine, MachineError,
    ManagementCosts, Prefault, ProcessDescription, ProcessFootprint, PromotionResult,
    RecoveryResult, Sampling, SliceProgress, ZeroScanResult,
};
use hawkeye_policy::{
    BloatKind, MachinePageProperties, MemoryScope, MemoryState, MemoryUse, PageOrderSet, ProcessId,
    ProcessSample, Promotion, RegionAddr, RegionSample, SampleKinds,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Result<T, E = MachineError> = std::result::Result<T, E>;

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct ManagerSchedule {
    /// The time at which its current calls end.
    pub(in crate::engine) busy_until: Duration,
    pub(in crate::engine) wakes_at: Duration,
}

/// A machine with virtual machines, shared by their managers.
#[derive(Debug)]
pub struct EngineSharedByManagers {
    host: Rc<RefCell<Engine>>,
}

/// A manager's view of a machine that it shares with others: the host or one of its guests.
#[derive(Debug)]
pub struct MachineView {
    host: Rc<RefCell<Engine>>,
    guest: Option<usize>,
}

impl EngineSharedByManagers {
    /// Wraps a machine for managers that take turns.
    pub fn new(mut host: Engine) -> Self {
        host.turn = Some(ManagerSchedule::default());
        for guest in &mut host.guests {
            guest.machine.turn = Some(ManagerSchedule::default());
        }
        Self { host: Rc::new(RefCell::new(host)) }
    }

    /// The host's, and then those of its guests in order.
    pub fn manager_views(&self) -> impl Iterator<Item = MachineView> {
        let guests = (0..self.host.borrow().guests.len()).map(Some);
        let all = std::iter::once(None).chain(guests);
        all.map(|guest| MachineView { host: self.host.clone(), guest })
    }

    /// Runs the whole machine until `target`; returns whether it can go on.
    pub fn advance_to(&self, target: Duration) -> bool {
        let mut host = self.host.borrow_mut();
        host.advance_to(target);
        !host.is_over() && host.stopping_error().is_none()
    }

    /// The results so far.
    pub fn figures(&self) -> Result<EngineFigures, EngineError> {
        self.host.borrow().figures_or_error()
    }
}

impl MachineView {
    /// When its manager wants to be called.
    pub fn manager_due_time(&self) -> Duration {
        let turn = self.with_engine(|engine| engine.turn).unwrap_or_default();
        turn.wakes_at.max(turn.busy_until)
    }

    fn with_engine<T>(&self, what: impl FnOnce(&mut Engine) -> T) -> T {
        let mut host = self.host.borrow_mut();
        let guest = self.guest;
        match guest.and_then(|guest| host.guests.get_mut(guest)) {
            Some(guest) => what(&mut guest.machine),
            None => what(&mut host),
        }
    }
}

macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $name(&mut self, $($argument: $type),*) -> $result {
            self.with_engine(|engine| engine.$name($($argument),*))
        }
    )*};
    (&self; $(fn $name:ident() -> $result:ty;)*) => {$(
        fn $name(&self) -> $result {
            self.with_engine(|engine| engine.$name())
        }
    )*};
}

impl Machine for MachineView {
    forward! {
        fn wait_until(deadline: Duration) -> LoopWakeReason;
        fn admit_and_list_processes(until: Duration) -> SliceProgress<Vec<ProcessId>>;
        fn read_memory_state() -> Result<MemoryState>;
        fn read_memory_use(scope: &MemoryScope) -> Result<MemoryUse>;
        fn promote(promotion: &Promotion) -> Result<PromotionResult>;
        fn count_zero_pages_in_huge_page(process: ProcessId, region: RegionAddr, enough: u16) -> Result<ZeroScanResult>;
        fn recover_bloat(process: ProcessId, regions: &[RegionAddr], kind: BloatKind) -> Vec<Result<RecoveryResult>>;
        fn footprint(process: ProcessId, until: Duration) -> Result<SliceProgress<ProcessFootprint>>;
    }

    forward! {
        &self;
        fn now() -> Duration;
        fn page_properties() -> MachinePageProperties;
        fn management_costs() -> ManagementCosts;
    }
}

impl Sampling for MachineView {
    forward! {
        fn start_window(process: ProcessId, needs: SampleKinds, until: Duration) -> Result<SliceProgress<()>>;
        fn probe(process: ProcessId, until: Duration) -> Result<Option<Duration>>;
        fn sample(process: ProcessId, until: Duration) -> Result<SliceProgress<ProcessSample>>;
        fn list_huge_pages(process: ProcessId, until: Duration) -> Result<SliceProgress<Vec<RegionSample>>>;
    }

    fn first_touch_cost(&self) -> Duration {
        self.with_engine(|engine| engine.first_touch_cost())
    }
}

impl FaultPageSizes for MachineView {
    forward! {
        fn set_fault_sizes(process: ProcessId, orders: PageOrderSet) -> Result<()>;
    }
}

impl HugePageReserveControl for MachineView {}

impl Prefault for MachineView {
    forward! {
        fn take_prefaulted_bytes(process: ProcessId) -> u64;
        fn set_prefault_limit(process: ProcessId, room_bytes: u64) -> ();
    }
}

impl Explain for MachineView {
    fn describe(&self, process: ProcessId) -> ProcessDescription {
        self.with_engine(|engine| engine.describe(process))
    }
}
