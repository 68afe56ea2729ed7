//! The loop: observe, plan, apply, write down.
//!
//! One file for each thing that a step does: `looking.rs`, `sampling.rs`, `recovering.rs`, `promoting.rs`. What is known:
//! `memory.rs`, `last_seen.rs`, `unanswered.rs`. `Manager::tell` is where events go out.

mod last_seen;
mod looking;
mod memory;
mod promoting;
mod recovering;
mod sampling;
mod sizing;
mod slowdown;
mod unanswered;

pub use last_seen::{LastSeen, SeenSample};
pub use promoting::Promoting;
pub use unanswered::Unanswered;

use crate::journal::Journal;
use crate::machine::{Machine, MachineError, Wake};
use crate::settings::Settings;
use hawkeye_policy::{
    CpuBudget, Event, Hold, MemoryGuard, MemoryState, PageOrders, Policy, ProcessId,
    PromotionBudget, PromotionLimits, RecoverySettings, SettingError, WatermarkTable,
};
use looking::Looking;
use memory::MemoryWatch;
use recovering::Recovering;
use sampling::Sampling;
use std::collections::HashMap;
use std::time::Duration;

/// Manages a machine by a policy, one [`step`](Self::step) after the other.
pub struct Manager<M> {
    machine: M,
    policy: Box<dyn Policy>,
    settings: Settings,
    /// The manager's own CPU time.
    cpu: CpuBudget,
    paused: bool,
    /// Those that are there, in the order in which they came.
    processes: Vec<ProcessId>,
    /// Sizes at first touches that were chosen, by process.
    fault_sizes: HashMap<ProcessId, PageOrders>,
    unanswered: Unanswered,
    looking: Looking,
    // Each of these learns from events what happened (`tell`).
    memory: MemoryWatch,
    limits: PromotionLimits,
    sampling: Sampling,
    promoting: Promoting,
    recovering: Recovering,
    last_seen: LastSeen,
    journal: Journal,
}

/// How long a batch of promotions or recoveries goes on before the loop looks around again.
const BATCH: Duration = Duration::from_millis(50);
impl<M: Machine> Manager<M> {
    /// Takes a machine over.
    ///
    /// # Errors
    /// A setting out of range.
    pub fn new(
        machine: M,
        policy: Box<dyn Policy>,
        settings: Settings,
    ) -> Result<Self, SettingError> {
        let settings = settings.check()?;
        let recovery = RecoverySettings {
            threshold: settings.bloat,
            ..RecoverySettings::default()
        };
        let rate = settings.rate.filter(|_| !policy.sets_own_pace());
        let guard = MemoryGuard::new(settings.watermarks, settings.pressure_limit_percent)?;
        Ok(Self {
            cpu: settings.cpu,
            paused: false,
            processes: Vec::new(),
            fault_sizes: HashMap::new(),
            unanswered: Unanswered::default(),
            looking: Looking::default(),
            memory: MemoryWatch::new(guard),
            limits: PromotionLimits::new(settings.bloat),
            sampling: Sampling::new(&settings),
            promoting: Promoting::new(PromotionBudget::new(settings.max_promotions, rate)),
            recovering: Recovering::new(recovery),
            last_seen: LastSeen::default(),
            journal: Journal::default(),
            machine,
            policy,
            settings,
        })
    }

    /// Changes the watermarks, from the next look on.
    pub fn set_watermarks(&mut self, watermarks: WatermarkTable) {
        self.memory.guard_mut().set_watermarks(watermarks);
    }

    /// Whether somebody asked that nothing be done.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Does what is due, then waits: at most until the next look, a second later.
    pub fn step(&mut self) -> Wake {
        let now = self.machine.now();
        self.settle_late(now);
        self.look_around(now);
        self.cpu.update(now, self.machine.own_costs().cpu);
        // A window that is open is still read: its bits are cleared already.
        if self.paused && !self.sampling.in_window() {
            return self.wait_until(self.looking.due());
        }
        self.sample(now);
        self.list_for_recovery(now);
        let mut wake_at = self.looking.due().min(self.sampling.due());
        // A window is not disturbed by it: it goes on afterwards.
        if self.recovering.is_listing() && !self.sampling.in_window() {
            wake_at = now;
        }
        let next_look = self.memory.guard().next_look();
        wake_at = next_look.map_or(wake_at, |at| wake_at.min(at));
        // In a window the program's accesses count, not what our own calls do to them.
        let hands_off = self.paused || self.settings.measure_only;
        if !hands_off && !self.sampling.in_window() {
            let again = [self.recover_batch(), self.promote_batch()];
            wake_at = again.into_iter().flatten().fold(wake_at, Duration::min);
        }
        let now = self.machine.now();
        if self.cpu.exhausted(now) && !self.memory.guard().in_danger() {
            let looks = self.memory.guard().next_look();
            let looks = looks.unwrap_or(self.looking.next());
            wake_at = self.looking.due().min(looks).max(now);
        }
        self.wait_until(wake_at)
    }

    /// Hands an event to every part that keeps state.
    fn tell(&mut self, now: Duration, event: Event) {
        self.memory.apply(&event);
        self.limits.apply(now, &event);
        self.sampling.apply(&event);
        self.recovering.planner.apply(&event);
        self.last_seen.apply(&event);
        self.journal.note(now, event);
    }

    fn trouble(&mut self, now: Duration, error: &MachineError) {
        let message = match error {
            // Ending is what programs do; one that does not answer is reported after a second.
            MachineError::Gone(_) | MachineError::NotAnswering(_) => return,
            MachineError::Refused { errno, .. } => {
                return self.tell(now, Event::CallRefused { errno: *errno });
            }
            MachineError::PageSize(_) => error.to_string(),
            MachineError::Other(message) => message.clone(),
        };
        self.tell(now, Event::Trouble { message });
    }

    /// Leaves every process alone until [`resume`](Self::resume): nothing is sampled, promoted or
    /// recovered, but for a window that is open, which is read. Whether that is a change.
    pub fn pause(&mut self) -> bool {
        let change = !std::mem::replace(&mut self.paused, true);
        if change {
            self.note(Event::Paused);
        }
        change
    }

    /// Goes on after a pause. Whether that is a change.
    pub fn resume(&mut self) -> bool {
        let change = std::mem::replace(&mut self.paused, false);
        if change {
            self.note(Event::Resumed);
        }
        change
    }

    /// Writes something down that happened around the manager, now.
    pub fn note(&mut self, event: Event) {
        self.tell(self.machine.now(), event);
    }

    /// What was done so far.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to be told what only it knows.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What it was set to.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Memory, as last read and reckoned on since; `None` where it couldn't be read.
    pub fn memory(&self) -> Option<&MemoryState> {
        self.memory.state()
    }

    /// Why nothing is promoted at the moment, if so.
    pub fn held(&self) -> Option<&Hold> {
        self.memory.held()
    }

    /// What decides by memory on promotion and recovery.
    pub fn guard(&self) -> &MemoryGuard {
        self.memory.guard()
    }

    /// The processes under management, in the order in which they came.
    pub fn processes(&self) -> &[ProcessId] {
        &self.processes
    }

    /// What keeps single regions from being promoted.
    pub fn limits(&self) -> &PromotionLimits {
        &self.limits
    }

    /// How fast promotion goes.
    pub fn promoting(&self) -> &Promoting {
        &self.promoting
    }

    /// What was last seen of each process.
    pub fn last_seen(&self) -> &LastSeen {
        &self.last_seen
    }

    /// Who does not answer.
    pub fn unanswered(&self) -> &Unanswered {
        &self.unanswered
    }

    /// The manager's own CPU time.
    pub fn cpu(&self) -> &CpuBudget {
        &self.cpu
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Ends management and hands the machine and the journal over.
    pub fn finish(self) -> (M, Journal) {
        (self.machine, self.journal)
    }
}
