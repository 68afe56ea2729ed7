//! Managers of one machine and of its guests take turns.
//!
//! A manager does what is due and then waits. Here it does so at an instant of simulated time, is busy for as long as its
//! calls take, and is not called again before the machine has come to where it wants to be woken.

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

/// A manager's place in time.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Turn {
    /// What it has called for takes until then.
    pub(in crate::engine) busy_until: Duration,
    /// When it wants to go on.
    pub(in crate::engine) wakes_at: Duration,
}

/// A machine with virtual machines, shared by their managers.
#[derive(Debug)]
pub struct Seats {
    host: Rc<RefCell<Engine>>,
    guests: usize,
}

/// A manager's view of a machine that it shares with others: the host or one of its guests.
#[derive(Debug)]
pub struct Seat {
    host: Rc<RefCell<Engine>>,
    guest: Option<usize>,
}

impl Seats {
    /// For a machine whose managers take turns.
    pub fn new(mut host: Engine) -> Self {
        host.turn = Some(Turn::default());
        for guest in &mut host.guests {
            guest.machine.turn = Some(Turn::default());
        }
        Self {
            guests: host.guests.len(),
            host: Rc::new(RefCell::new(host)),
        }
    }

    /// The host's, and then those of its guests in order.
    pub fn seats(&self) -> impl Iterator<Item = Seat> {
        let guests = (0..self.guests).map(Some);
        let all = std::iter::once(None).chain(guests);
        all.map(|guest| Seat {
            host: self.host.clone(),
            guest,
        })
    }

    /// Lets the whole machine run until then; whether it can go on.
    pub fn advance_to(&self, target: Duration) -> bool {
        let mut host = self.host.borrow_mut();
        host.advance_to(target);
        !host.is_over() && host.broken().is_none()
    }

    /// What came of it so far.
    ///
    /// # Errors
    /// What stopped it, if it could not go on.
    pub fn figures(&self) -> Result<EngineFigures, EngineError> {
        let host = self.host.borrow();
        host.broken()
            .cloned()
            .map_or_else(|| Ok(host.figures()), Err)
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

impl Machine for Seat {
    fn now(&self) -> Duration {
        self.with(|engine| engine.now())
    }

    fn wait_until(&mut self, deadline: Duration) -> Wake {
        self.with(|engine| engine.wait_until(deadline))
    }

    fn processes(&mut self, until: Duration) -> Progress<Vec<ProcessId>> {
        self.with(|engine| engine.processes(until))
    }

    fn memory(&mut self) -> Result<MemoryState, MachineError> {
        self.with(Machine::memory)
    }

    fn memory_use(&mut self, scope: &Scope) -> Result<MemoryUse, MachineError> {
        self.with(|engine| engine.memory_use(scope))
    }

    fn shape(&self) -> MachineShape {
        self.with(|engine| engine.shape())
    }

    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        expected_present: u16,
    ) -> Result<Promoted, MachineError> {
        self.with(|engine| engine.promote(process, region, order, expected_present))
    }

    fn scan_zeros(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScan, MachineError> {
        self.with(|engine| engine.scan_zeros(process, region, enough))
    }

    fn recover(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<Recovered, MachineError> {
        self.with(|engine| engine.recover(process, region))
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Footprint>, MachineError> {
        self.with(|engine| engine.footprint(process, until))
    }

    fn own_costs(&self) -> OwnCosts {
        self.with(|engine| engine.own_costs())
    }
}

impl Sampling for Seat {
    fn start_window(
        &mut self,
        process: ProcessId,
        needs: Needs,
        until: Duration,
    ) -> Result<Progress<()>, MachineError> {
        self.with(|engine| engine.start_window(process, needs, until))
    }

    fn probe(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Option<Duration>, MachineError> {
        self.with(|engine| engine.probe(process, until))
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<ProcessSample>, MachineError> {
        self.with(|engine| engine.sample(process, until))
    }

    fn huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> Result<Progress<Vec<RegionSample>>, MachineError> {
        self.with(|engine| engine.huge_pages(process, until))
    }

    fn first_touch_cost(&self) -> Duration {
        self.with(|engine| engine.first_touch_cost())
    }
}

impl FaultPageSizes for Seat {
    fn set_fault_sizes(
        &mut self,
        process: ProcessId,
        orders: PageOrders,
    ) -> Result<(), MachineError> {
        self.with(|engine| engine.set_fault_sizes(process, orders))
    }
}

impl Prefault for Seat {
    fn take_filled(&mut self, process: ProcessId) -> u64 {
        self.with(|engine| engine.take_filled(process))
    }

    fn allow_fill(&mut self, process: ProcessId, room_bytes: u64) {
        self.with(|engine| engine.allow_fill(process, room_bytes));
    }
}

impl Explain for Seat {
    fn describe(&self, process: ProcessId) -> Description {
        self.with(|engine| engine.describe(process))
    }
}
