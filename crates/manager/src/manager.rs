//! The manager's loop: refresh, sample, recover, promote, record.
//!
//! ```text
//!  refresh     once a second: processes, their sizes, memory_watch
//!     v
//!  sampling    --Observation--> policy ----Promotion----> promotion --+
//!     |                                                               |--Event--> dispatch_event
//!     `----------Observation--> recovery, while memory is short ------+             |-- the parts
//!                                                                                   `-- journal
//! ```
//!
//! Read [`Manager::run_due_work_and_wait`] first, then `refresh`, `sampling`, `recovery` and
//! `promotion`: one file for each part of a step. The parts learn in three ways:
//!
//! - `apply_event`: the outcome of a call. `Manager::dispatch_event` sends each event to the parts
//!   and to the journal. The policy learns the results of its proposals by `on_promotion_result`.
//! - `observe`: what a sample found. `Manager::on_samples_read` passes each observation to the
//!   policy, to recovery and to the limits. The policy and recovery forget a process that an
//!   observation lacks, unless it could not be read.
//! - `retain_processes`: which processes still exist. `Manager::forget_ended_processes` calls it at
//!   each refresh, in the other parts that keep state by process.

mod bloat_tracking;
mod early_sample_selection;
mod fault_sizes;
mod freed_parts;
mod idle_processes;
mod known_processes;
mod last_samples;
mod memory_watch;
mod promotion;
mod recovery;
mod refresh;
mod refresh_schedule;
mod reserve;
mod sampling;
mod sampling_schedule;
mod sampling_slowdown_budgets;
mod sliced_process_queue;
mod work_limits;

pub use known_processes::KnownProcesses;
pub use last_samples::{LastSample, LastSamples, SampledFigures};
pub use memory_watch::MemoryWatch;
pub use work_limits::WorkLimits;

use crate::budget_wait::{BudgetWait, WaitingWork};
use crate::journal::Journal;
use crate::machine::{LoopWakeReason, Machine, MachineError};
use crate::settings::Settings;
use hawkeye_policy::{Event, Policy, RecoveryPlanner, SettingError, WatermarkTable};
use promotion::PromotionProgress;
use recovery::RecoveryProgress;
use sampling_schedule::SamplingSchedule;
use std::time::Duration;

/// Manages a machine by a policy, one [`run_due_work_and_wait`](Self::run_due_work_and_wait) after
/// the other.
pub struct Manager<M> {
    machine: M,
    policy: Box<dyn Policy>,
    settings: Settings,
    paused: bool,
    promotion: PromotionProgress,
    // Each of these receives events from `dispatch_event`.
    processes: KnownProcesses,
    memory: MemoryWatch,
    limits: WorkLimits,
    sampling: SamplingSchedule,
    recovery: RecoveryProgress,
    journal: Journal,
}

/// How long a batch of promotions or recoveries lasts before the loop looks at the machine again.
const BATCH: Duration = Duration::from_millis(50);
impl<M: Machine> Manager<M> {
    /// Starts the management of a machine.
    pub fn new(
        machine: M,
        policy: Box<dyn Policy>,
        settings: Settings,
    ) -> Result<Self, SettingError> {
        let settings = settings.check()?;
        let rate = settings.rate.filter(|_| !policy.properties().limits_own_rate);
        Ok(Self {
            paused: false,
            processes: KnownProcesses::default(),
            memory: MemoryWatch::new(&settings)?,
            limits: WorkLimits::new(&settings, rate),
            sampling: SamplingSchedule::new(&settings),
            recovery: RecoveryProgress::new(settings.bloat, &*policy),
            promotion: PromotionProgress::default(),
            journal: Journal::default(),
            machine,
            policy,
            settings,
        })
    }

    /// Changes the watermarks from the next look at memory on.
    pub fn set_watermarks(&mut self, watermarks: WatermarkTable) {
        self.settings.watermarks = watermarks.machine;
        self.memory.guard.set_watermarks(watermarks);
    }

    /// Whether management is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Does what is due, then waits at most until the next look, a second later.
    pub fn run_due_work_and_wait(&mut self) -> LoopWakeReason {
        let now = self.machine.now();
        self.handle_late_call_results(now);
        self.refresh_if_due(now);
        self.limits.record_total_cpu_time(now, self.machine.management_costs().cpu);
        // A window that is open is still read, because its bits are already cleared.
        if self.paused && !self.sampling.in_window() {
            return self.wait_until(self.processes.refresh.due_at());
        }
        self.continue_sampling(now);
        self.list_huge_pages_for_recovery(now);
        let mut wake_at = self.processes.refresh.due_at().min(self.sampling.due_at());
        // Listing would disturb a window, so it waits for its end, unless memory is in danger.
        let listing = self.recovery.listing.as_ref().filter(|_| self.may_recover_now());
        wake_at = listing.map_or(wake_at, |listing| wake_at.min(listing.again_at));
        wake_at = self.memory.guard.next_memory_read_at().map_or(wake_at, |at| wake_at.min(at));
        // In a window the program's accesses count, and our own calls would disturb them. Only
        // memory in danger is worth that.
        let changes_nothing = self.paused || self.settings.measure_only;
        let mut promote_at = None;
        if !changes_nothing && self.may_recover_now() {
            let recover_at = self.recover_bloat_batch();
            if !self.sampling.in_window() {
                promote_at = self.promote_batch();
                self.free_given_back_parts();
                self.track_bloat();
            }
            wake_at = wake_at.min(self.sampling.due_at());
            wake_at = recover_at.map_or(wake_at, |at| at.min(wake_at));
        }
        self.update_waits_from_state();
        let now = self.machine.now();
        if self.is_out_of_cpu_time(now) {
            let refresh = &self.processes.refresh;
            let looks = self.memory.guard.next_memory_read_at().unwrap_or(refresh.next);
            wake_at = refresh.due_at().min(looks).max(now);
        }
        // Savings may pay for promotions although the budget is used up.
        self.wait_until(promote_at.map_or(wake_at, |at| at.min(wake_at)))
    }

    /// Waits that the state of the parts shows. Promotion and recovery begin theirs themselves.
    fn update_waits_from_state(&mut self) {
        let now = self.machine.now();
        let (begin, sampling) = self.sampling.budget_wait(now).unzip();
        let waits = &mut self.limits.waits;
        waits.set_wait(begin.unwrap_or(now), WaitingWork::Sampling, sampling);
        waits.set_wait(now, WaitingWork::EarlySampling, self.sampling.early_wait);
        waits.set_wait(now, WaitingWork::Prefault, self.machine.prefault_wait());
    }

    /// Whether recovery need not wait for the end of a window: a program may be killed before.
    fn may_recover_now(&self) -> bool {
        !self.sampling.in_window() || self.memory.guard.will_be_full_within_seconds()
    }

    /// Whether the CPU budget is used up and counts: memory that is about to be full overrides it.
    fn is_out_of_cpu_time(&self, now: Duration) -> bool {
        self.limits.cpu.is_exhausted(now) && !self.memory.guard.will_be_full_within_seconds()
    }

    /// Takes in late results. Reports processes that do not answer, and those that answer again.
    fn handle_late_call_results(&mut self, now: Duration) {
        let late = self.machine.take_timed_out_call_results();
        for result in late.ended {
            self.finish_late_promotion(now, result);
        }
        for change in self.processes.update_unresponsive(late.waiting) {
            self.dispatch_event(now, change);
        }
    }

    fn dispatch_event(&mut self, now: Duration, event: Event) {
        self.memory.apply_event(now, &event);
        self.limits.apply_event(now, &event);
        self.sampling.apply_event(now, &event);
        self.recovery.planner.apply_event(now, &event);
        self.processes.apply_event(&event);
        self.journal.apply_event(now, event);
    }

    fn record_error(&mut self, now: Duration, error: &MachineError) {
        let message = match error {
            // Processes normally end. One that does not answer is reported after a second.
            MachineError::Gone(_) | MachineError::NotAnswering(_) => return,
            MachineError::Refused { errno, .. } => {
                return self.dispatch_event(now, Event::CallRefused { errno: *errno });
            }
            MachineError::PageSize(_) | MachineError::NoSwap(_) => error.to_string(),
            MachineError::NoHelper(message) | MachineError::Other(message) => message.clone(),
        };
        self.dispatch_event(now, Event::Trouble { message });
    }

    /// Leaves every process alone until [`resume`](Self::resume): nothing is sampled, promoted or
    /// recovered, except that a window that is open is read. Returns whether this is a change.
    pub fn pause(&mut self) -> bool {
        let change = !std::mem::replace(&mut self.paused, true);
        if change {
            self.processes.refresh.request_look_at(self.machine.now());
            self.update_reserve_target(self.machine.now());
            self.update_prefault_limits();
            self.record_event(Event::Paused);
        }
        change
    }

    /// Goes on after a pause. Returns whether this is a change.
    pub fn resume(&mut self) -> bool {
        let change = std::mem::replace(&mut self.paused, false);
        if change {
            self.processes.refresh.request_look_at(self.machine.now());
            self.record_event(Event::Resumed);
        }
        change
    }

    /// Writes down an event around the manager, at the current time.
    pub fn record_event(&mut self, event: Event) {
        self.dispatch_event(self.machine.now(), event);
    }

    /// The journal of all events so far.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, for calls that only this kind of machine has.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Memory use, as last read plus the changes since.
    pub fn memory(&self) -> &MemoryWatch {
        &self.memory
    }

    /// What is known of the managed processes.
    pub fn processes(&self) -> &KnownProcesses {
        &self.processes
    }

    /// The limits of the loop's work, except those by memory use.
    pub fn limits(&self) -> &WorkLimits {
        &self.limits
    }

    /// Work that waits for a budget at the moment: of each kind at most one wait.
    pub fn budget_waits(&self) -> impl Iterator<Item = BudgetWait> {
        self.limits.waits.current_waits(self.machine.now())
    }

    /// What is known of bloat in huge pages.
    pub fn bloat(&self) -> &RecoveryPlanner {
        &self.recovery.planner
    }

    /// The last sample of each process.
    pub fn last_samples(&self) -> &LastSamples {
        &self.processes.last_samples
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Ends management and returns the machine and the journal.
    pub fn into_machine_and_journal(self) -> (M, Journal) {
        (self.machine, self.journal)
    }
}
