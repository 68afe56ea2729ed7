//! The loop: observe, plan, apply, write down.

mod looking;
mod promoting;
mod recovering;
mod sampling;
mod sizing;
mod slowdown;
mod unanswered;
mod viewing;

use crate::journal::{Event, Journal};
use crate::machine::{Machine, MachineError, Wake};
use crate::settings::Settings;
use hawkeye_policy::{
    Backoff, BackoffSettings, Cooldown, CpuBudget, Hold, HugeLimits, MemoryGuard, MemoryState,
    Needs, PageOrders, Policy, ProcessId, PromotionBudget, RecoveredRegions, RecoveryPlanner,
    RecoverySettings, SettingError, SharedRegions, WatermarkTable,
};
use looking::Look;
use promoting::Next;
use sampling::{Listing, Sampling};
use std::collections::HashMap;
use std::time::Duration;
use unanswered::Unanswered;
use viewing::Viewing;

/// Manages a machine by a policy, one [`step`](Self::step) after the other.
pub struct Manager<M> {
    machine: M,
    policy: Box<dyn Policy>,
    settings: Settings,
    journal: Journal,
    processes: Vec<ProcessId>,
    sampling: Sampling,
    guard: MemoryGuard,
    planner: RecoveryPlanner,
    recovered: RecoveredRegions,
    cooldown: Cooldown,
    shared: SharedRegions,
    huge_limits: HugeLimits,
    promotion_backoff: Backoff,
    /// A promotion that is to be tried again.
    postponed: Option<Next>,
    recovery_backoff: Backoff,
    budget: PromotionBudget,
    cpu: CpuBudget,
    next_look: Duration,
    /// A look that is under way.
    look: Option<Look>,
    /// When to go on admitting processes, while many join.
    joining: Option<Duration>,
    /// A listing of huge pages that is under way.
    listing: Option<Listing>,
    unanswered: Unanswered,
    /// As last read, and reckoned on since.
    memory: Option<MemoryState>,
    held: Option<Hold>,
    paused: bool,
    viewing: Viewing,
    /// Sizes at first touches that were chosen, by process.
    fault_sizes: HashMap<ProcessId, PageOrders>,
}

/// How often footprints and memory are looked at; memory that could be full by then, more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// And so often at the most because of who has just joined.
const JOIN_EVERY: Duration = Duration::from_millis(50);
/// How long a batch of promotions or recoveries goes on before the loop looks around again.
const BATCH: Duration = Duration::from_millis(50);
/// How long looking, opening a window, probing, reading and listing each go on before memory is looked
/// at again.
const SLICE: Duration = Duration::from_millis(8);

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
        Ok(Self {
            sampling: Sampling::new(&settings),
            guard: MemoryGuard::new(settings.watermarks, settings.pressure_limit_percent)?,
            planner: RecoveryPlanner::new(recovery),
            recovered: RecoveredRegions::new(settings.bloat),
            cooldown: Cooldown::default(),
            shared: SharedRegions::default(),
            huge_limits: HugeLimits::default(),
            promotion_backoff: Backoff::new(BackoffSettings::default()),
            postponed: None,
            recovery_backoff: Backoff::new(BackoffSettings::default()),
            budget: PromotionBudget::new(settings.max_promotions, rate),
            cpu: settings.cpu,
            processes: Vec::new(),
            journal: Journal::default(),
            next_look: Duration::ZERO,
            look: None,
            joining: None,
            listing: None,
            unanswered: Unanswered::default(),
            memory: None,
            held: None,
            paused: false,
            viewing: Viewing::default(),
            fault_sizes: HashMap::new(),
            machine,
            policy,
            settings,
        })
    }

    /// Changes the watermarks, from the next look on.
    pub fn set_watermarks(&mut self, watermarks: WatermarkTable) {
        self.guard.set_watermarks(watermarks);
    }

    /// Whether somebody asked that nothing be done.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Does what is due, then waits: at most until the next look, a second later.
    pub fn step(&mut self) -> Wake {
        let now = self.machine.now();
        self.settle_late(now);
        if now >= self.next_look {
            self.look(now);
        } else {
            self.go_on_joining(now);
            self.look_closely(now);
        }
        self.go_on_looking(now);
        self.cpu.update(now, self.machine.own_costs().cpu);
        // A window that is open is still read: its bits are cleared already.
        if self.paused && !self.sampling.in_window() {
            return self.wait_until(self.look_due());
        }
        self.sample(now);
        let mut wake_at = self.look_due().min(self.sampling.due());
        // A window is not disturbed by it: it goes on afterwards.
        if self.listing.is_some() && !self.sampling.in_window() {
            wake_at = now;
        }
        wake_at = self.guard.next_look().map_or(wake_at, |at| wake_at.min(at));
        // In a window the program's accesses count, not what our own calls do to them.
        let hands_off = self.paused || self.settings.measure_only;
        if !hands_off && !self.sampling.in_window() {
            let again = [self.recover_batch(), self.promote_batch()];
            wake_at = again.into_iter().flatten().fold(wake_at, Duration::min);
        }
        let now = self.machine.now();
        if self.cpu.exhausted(now) && !self.guard.in_danger() {
            let looks = self.guard.next_look().unwrap_or(self.next_look);
            wake_at = self.look_due().min(looks).max(now);
        }
        self.wait_until(wake_at)
    }

    fn wait_until(&mut self, deadline: Duration) -> Wake {
        let wake = self.machine.wait_until(deadline);
        if wake == Wake::Joined {
            // Programs may be started by the thousand.
            let soonest = self.next_look.saturating_sub(LOOK_EVERY) + JOIN_EVERY;
            self.next_look = self.next_look.min(soonest.max(self.machine.now()));
        }
        wake
    }

    /// Says how much memory may be filled ahead from now on: up to the nearest high watermark.
    fn allow_fill(&mut self) {
        for &process in &self.processes {
            let room = if self.paused {
                0
            } else {
                self.guard.room_bytes(process)
            };
            self.machine.allow_fill(process, room);
        }
    }

    /// Reads how much memory is left.
    fn assess_memory(&mut self, now: Duration) {
        let held = match self.machine.memory() {
            Ok(state) => {
                let held = self.guard.assess(now, &state).promotion.err();
                self.memory = Some(state);
                held
            }
            Err(error) => {
                self.memory = None;
                self.guard.lose_sight();
                self.trouble(now, &error);
                Some(Hold::Unknown)
            }
        };
        // The figures in it change all the time; that it holds, and why, does not.
        let kind = |hold: &Option<Hold>| hold.as_ref().map(std::mem::discriminant);
        if kind(&held) != kind(&self.held) {
            self.journal.note(now, Event::Held { hold: held.clone() });
        }
        self.held = held;
        self.choose_fault_sizes(now);
    }

    /// Looks in between at what could be full before the next look. A group that has vanished is
    /// left to that.
    fn look_closely(&mut self, now: Duration) {
        let due = self.guard.due(now);
        if due.is_empty() {
            return;
        }
        let before = self.machine.own_costs().cpu;
        for scope in due {
            match self.machine.memory_use(&scope) {
                Ok(usage) => self.guard.note_use(now, &scope, usage),
                Err(_) => {
                    self.next_look = now;
                    break;
                }
            }
        }
        let cost = self.machine.own_costs().cpu.saturating_sub(before);
        self.guard.note_look_cost(cost);
        self.held = self.guard.held();
        self.choose_fault_sizes(now);
        // Not everything was looked at: for the rest, what was filled since counts.
        for process in self.processes.clone() {
            let filled_bytes = self.machine.take_filled(process);
            self.account(process, filled_bytes as i64);
        }
        self.allow_fill();
    }

    /// Reckons with what a promotion took or a recovery gave back, until memory is next looked at:
    /// hundreds of regions fit into the second in between.
    fn account(&mut self, process: ProcessId, taken_bytes: i64) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let change = |used: &mut u64| *used = used.saturating_add_signed(taken_bytes);
        change(&mut memory.machine.used_bytes);
        for group in &mut memory.groups {
            if group.members.contains(&process) {
                change(&mut group.usage.used_bytes);
            }
        }
        self.guard.account(process, taken_bytes);
        self.held = self.guard.held();
    }

    fn trouble(&mut self, now: Duration, error: &MachineError) {
        match error {
            // Ending is what programs do; one that does not answer is reported after a second.
            MachineError::Gone(_) | MachineError::NotAnswering(_) => {}
            MachineError::Refused { errno, .. } => self.journal.note_error(*errno),
            MachineError::PageSize(_) => self.journal.note_trouble(now, &error.to_string()),
            MachineError::Other(message) => self.journal.note_trouble(now, message),
        }
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

    /// What the policy is shown.
    pub fn needs(&self) -> Needs {
        self.policy.needs()
    }

    /// Memory as last read, and reckoned on since; `None` where it couldn't be read.
    pub fn memory(&self) -> Option<&MemoryState> {
        self.memory.as_ref()
    }

    /// CPU time of its own over the last minute, in per cent of one core.
    pub fn own_cpu_percent(&self) -> f64 {
        self.cpu.used_percent(self.machine.now())
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// Why nothing is promoted at the moment, if so.
    pub fn held(&self) -> Option<&Hold> {
        self.held.as_ref()
    }

    /// Ends management and hands the machine and the journal over.
    pub fn finish(self) -> (M, Journal) {
        (self.machine, self.journal)
    }
}
