//! Managers of one machine and of its guests take turns.
//!
//! A manager does what is due and then waits. Here it does so at an instant of simulated time and
//! is busy for as long as its calls take. It is not called again before the machine has reached the
//! time at which it wants to wake.

use crate::engine::{Engine, EngineError, EngineFigures};
use hawkeye_manager::{
    Description, Explain, FaultPageSizes, Footprint, Machine, MachineError, OwnCosts, Prefault,
    Progress, Promoted, Recovered, Sampling, Wake, ZeroScan,
};
use hawkeye_policy::{
    MachineShape, MemoryState, MemoryUse, Needs, PageOrder, PageOrders, ProcessId, ProcessSample,
    RegionAddr, RegionSample, Scope,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Result<T, E = MachineError> = std::result::Result<T, E>;

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Turn {
    /// The time at which its current calls end.
    pub(in crate::engine) busy_until: Duration,
    /// The time at which it wants to wake.
    pub(in crate::engine) wakes_at: Duration,
}

/// A machine with virtual machines, shared by their managers.
#[derive(Debug)]
pub struct Seats {
    host: Rc<RefCell<Engine>>,
}

/// A manager's view of a machine that it shares with others: the host or one of its guests.
#[derive(Debug)]
pub struct Seat {
    host: Rc<RefCell<Engine>>,
    guest: Option<usize>,
}

impl Seats {
    /// Wraps a machine for managers that take turns.
    pub fn new(mut host: Engine) -> Self {
        host.turn = Some(Turn::default());
        for guest in &mut host.guests {
            guest.machine.turn = Some(Turn::default());
        }
        Self {
            host: Rc::new(RefCell::new(host)),
        }
    }

    /// The host's, and then those of its guests in order.
    pub fn seats(&self) -> impl Iterator<Item = Seat> {
        let guests = (0..self.host.borrow().guests.len()).map(Some);
        let all = std::iter::once(None).chain(guests);
        all.map(|guest| Seat {
            host: self.host.clone(),
            guest,
        })
    }

    /// Runs the whole machine until `target`; returns whether it can go on.
    pub fn advance_to(&self, target: Duration) -> bool {
        let mut host = self.host.borrow_mut();
        host.advance_to(target);
        !host.is_over() && host.broken().is_none()
    }

    /// The results so far.
    ///
    /// # Errors
    /// The error that stopped it, if it could not go on.
    pub fn figures(&self) -> Result<EngineFigures, EngineError> {
        self.host.borrow().outcome()
    }
}

impl Seat {
    /// When its manager wants to be called.
    pub fn due(&self) -> Duration {
        let turn = self.with(|engine| engine.turn).unwrap_or_default();
        turn.wakes_at.max(turn.busy_until)
    }

    fn with<T>(&self, what: impl FnOnce(&mut Engine) -> T) -> T {
        let mut host = self.host.borrow_mut();
        let guest = self.guest;
        match guest.and_then(|guest| host.guests.get_mut(guest)) {
            Some(guest) => what(&mut guest.machine),
            None => what(&mut host),
        }
    }
}

/// Forwards the engine's own methods.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $name(&mut self, $($argument: $type),*) -> $result {
            self.with(|engine| engine.$name($($argument),*))
        }
    )*};
    (&self; $(fn $name:ident() -> $result:ty;)*) => {$(
        fn $name(&self) -> $result {
            self.with(|engine| engine.$name())
        }
    )*};
}

impl Machine for Seat {
    forward! {
        fn wait_until(deadline: Duration) -> Wake;
        fn processes(until: Duration) -> Progress<Vec<ProcessId>>;
        fn memory() -> Result<MemoryState>;
        fn memory_use(scope: &Scope) -> Result<MemoryUse>;
        fn promote(process: ProcessId, region: RegionAddr, order: PageOrder, present: u16)
            -> Result<Promoted>;
        fn scan_zeros(process: ProcessId, region: RegionAddr, enough: u16) -> Result<ZeroScan>;
        fn recover(process: ProcessId, region: RegionAddr) -> Result<Recovered>;
        fn footprint(process: ProcessId, until: Duration) -> Result<Progress<Footprint>>;
    }

    forward! {
        &self;
        fn now() -> Duration;
        fn shape() -> MachineShape;
        fn own_costs() -> OwnCosts;
    }
}

impl Sampling for Seat {
    forward! {
        fn start_window(process: ProcessId, needs: Needs, until: Duration) -> Result<Progress<()>>;
        fn probe(process: ProcessId, until: Duration) -> Result<Option<Duration>>;
        fn sample(process: ProcessId, until: Duration) -> Result<Progress<ProcessSample>>;
        fn huge_pages(process: ProcessId, until: Duration) -> Result<Progress<Vec<RegionSample>>>;
    }

    fn first_touch_cost(&self) -> Duration {
        self.with(|engine| engine.first_touch_cost())
    }
}

impl FaultPageSizes for Seat {
    forward! {
        fn set_fault_sizes(process: ProcessId, orders: PageOrders) -> Result<()>;
    }
}

impl Prefault for Seat {
    forward! {
        fn take_filled(process: ProcessId) -> u64;
        fn allow_fill(process: ProcessId, room_bytes: u64) -> ();
    }
}

impl Explain for Seat {
    fn describe(&self, process: ProcessId) -> Description {
        self.with(|engine| engine.describe(process))
    }
}
