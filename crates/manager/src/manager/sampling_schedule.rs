//! When to sample: the windows, and how far the current one is.

use super::early_sample_selection::{EarlySampleSelection, GrowthPhase, ResidentGrowth};
use super::idle_processes::IdleProcesses;
use super::sampling_slowdown_budgets::SamplingSlowdownBudgets;
use super::sliced_process_queue::SlicedProcessQueue;
use crate::budget_wait::{BudgetWait, ExhaustedBudget};
use crate::settings::Settings;
use hawkeye_policy::{Event, Observation, ProcessId, SampleKinds, SamplingDelayReason};
use std::collections::HashMap;
use std::time::Duration;

pub(super) struct SamplingSchedule {
    pub(super) state: WindowState,
    /// Cost to the programs of clearing access bits.
    pub(super) slowdown: SamplingSlowdownBudgets,
    /// The earliest next window, because of the manager's own CPU budget.
    not_before: Duration,
    /// Resident memory of all programs together.
    all_memory: ResidentGrowth,
    pub(super) last_window: Option<Duration>,
    pub(super) early: EarlySampleSelection,
    /// The only programs in the next window, if it is early, and when the regular one is due.
    pub(super) early_window: Option<(Vec<ProcessId>, Duration)>,
    /// Processes that regular windows leave out.
    pub(super) idle: IdleProcesses,
    /// When the processes of the last window entered it, and the CPU time that each had used.
    pub(super) entered: HashMap<ProcessId, (Duration, Option<Duration>)>,
    /// CPU time that the last window took, from the manager and from the programs.
    look_cost: Duration,
    saved: SavingsSinceWindow,
    /// The reason in the last [`Event::Stretched`]; `None`: windows have come in time since.
    pub(super) stretched: Option<SamplingDelayReason>,
    /// Why the next window is later than the settings ask for, if it is, and their time.
    pub(super) delayed: Option<(SamplingDelayReason, Duration)>,
    /// What holds back programs that are due for an early window.
    pub(super) early_wait: Option<BudgetWait>,
    /// Windows opened so far.
    pub(super) windows: usize,
    /// Whether the last window was abandoned because memory is in danger. The next one is not: a
    /// cgroup can be in danger all the time, and nothing would be sampled then.
    pub(super) abandoned: bool,
}

#[derive(Clone, Copy, Default)]
struct SavingsSinceWindow {
    sum_us_per_s: f64,
    promotions: u32,
}

pub(super) enum WindowState {
    Idle {
        next: Duration,
    },
    /// Access bits are being cleared, one process after the other.
    Opening(WindowOpenProgress),
    Window(OpenWindow),
    Reading(SampleReadProgress),
}

pub(super) struct WindowOpenProgress {
    pub(super) slices: SlicedProcessQueue,
    pub(super) open: Vec<ProcessId>,
    pub(super) cpu_before: Duration,
}

pub(super) struct OpenWindow {
    pub(super) until: Duration,
    pub(super) cpu_before: Duration,
    pub(super) open: Vec<ProcessId>,
    pub(super) probing: Vec<(ProcessId, Duration)>,
}

pub(super) struct SampleReadProgress {
    pub(super) slices: SlicedProcessQueue,
    pub(super) observation: Observation,
    pub(super) purpose: ReadPurpose,
    /// CPU time of these reads so far. Other work goes on in between.
    pub(super) cpu: Duration,
}

pub(super) enum ReadPurpose {
    /// To count the touches since the last window, before the next one opens.
    CountTouches,
    /// The window is over.
    CloseWindow { at: Duration, cpu_before: Duration },
}

/// What decides when the window after one that is over opens.
pub(super) struct ClosedWindow {
    pub(super) at: Duration,
    /// CPU time that it took from the manager.
    pub(super) manager_cpu: Duration,
    /// Time that it took from the programs.
    pub(super) programs_cost: Duration,
    /// No call was answered in time. A whole period must not be lost because of that.
    pub(super) nothing_seen: bool,
    /// A process is worth another look soon.
    pub(super) more_to_see: bool,
}

/// A program that has grown is left alone for this many windows after the last.
const REST: u32 = 5;
/// The earliest next look, in windows, at parts of a large process that were not seen, or not well.
const MORE_AFTER: u32 = 3;

/// A saving is poor if it is below this share of the average saving of the others.
const POORER: f64 = 0.5;

/// Delay after which growth is checked again, for a program that was there before.
const SOON: Duration = Duration::from_millis(100);
/// Interval of reading population where nothing has to be cleared: khugepaged's own rhythm.
const POPULATION_PERIOD: Duration = Duration::from_secs(10);

impl SamplingSchedule {
    /// The first window opens a period from now, or when the programs have settled.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            state: WindowState::Idle { next: settings.period },
            slowdown: SamplingSlowdownBudgets::new(settings.pace),
            not_before: Duration::ZERO,
            all_memory: ResidentGrowth::default(),
            last_window: None,
            early: EarlySampleSelection::new(settings.growth_until_first_sample),
            early_window: None,
            idle: IdleProcesses::default(),
            entered: HashMap::new(),
            look_cost: Duration::ZERO,
            saved: SavingsSinceWindow::default(),
            stretched: None,
            delayed: None,
            early_wait: None,
            windows: 0,
            abandoned: false,
        }
    }

    pub(super) fn due_at(&self) -> Duration {
        match &self.state {
            WindowState::Idle { next } => *next,
            WindowState::Opening(WindowOpenProgress { slices, .. })
            | WindowState::Reading(SampleReadProgress { slices, .. }) => slices.again_at,
            WindowState::Window(window) => {
                window.probing.iter().map(|(_, due)| *due).fold(window.until, Duration::min)
            }
        }
    }

    /// The wait for the next window, if a budget delays it, and when it begins.
    pub(super) fn budget_wait(&self, now: Duration) -> Option<(Duration, BudgetWait)> {
        let WindowState::Idle { next } = self.state else { return None };
        let (because, due) = self.delayed?;
        let budget = ExhaustedBudget::Sampling(because);
        (next > now).then_some((due, BudgetWait { budget, until: Some(next) }))
    }

    /// Whether a window is open, which our own calls must not disturb.
    pub(super) fn in_window(&self) -> bool {
        match &self.state {
            WindowState::Idle { .. } => false,
            WindowState::Opening(_) | WindowState::Window(_) => true,
            WindowState::Reading(reading) => {
                matches!(reading.purpose, ReadPurpose::CloseWindow { .. })
            }
        }
    }

    /// Opens the next window soon, because the result of the last one could not be used.
    pub(super) fn schedule_window_soon(&mut self, now: Duration, settings: &Settings) {
        let soonest = now.max(self.not_before) + settings.window * MORE_AFTER;
        if let WindowState::Idle { next } = &mut self.state {
            *next = (*next).min(soonest);
        }
    }

    /// Samples early a program that has grown much since its last sample and has stopped growing:
    /// otherwise a new program would wait a whole period. While it still grows, its accesses only
    /// show what is being filled. Returns when to look again, if that should be soon.
    pub(super) fn schedule_window_after_growth(
        &mut self,
        now: Duration,
        rss_bytes: u64,
        settings: &Settings,
    ) -> Option<Duration> {
        self.all_memory.record_resident_bytes(now, rss_bytes);
        let (phase, grown) = (self.all_memory.phase, self.all_memory.has_grown_since_sample());
        let rest = settings.window * REST;
        let rested = self.last_window.is_none_or(|last| now >= last + rest);
        if let WindowState::Idle { next } = &mut self.state {
            if grown && phase == GrowthPhase::Settled && rested {
                *next = (*next).min(now.max(self.not_before));
            }
        }
        // The program was there before the manager.
        (phase == GrowthPhase::SeenOnce && grown).then(|| now + SOON)
    }

    /// Opens a window soon for programs that have grown, or that were seen only in part.
    /// Where CPU time was saved up (`rested`), it may come before windows are due again.
    pub(super) fn plan_early_window(&mut self, now: Duration, rested: bool) {
        self.early_wait = None;
        let WindowState::Idle { next } = &mut self.state else { return };
        let at = if rested { now } else { now.max(self.not_before) };
        let due = self.early.programs_due_for_sample(now);
        // Touches that are not counted yet can only prolong the wait of a program, so it is not
        // read before.
        let ready_at = |process: &ProcessId| self.slowdown.may_clear_again_at(at, *process);
        let (programs, held): (Vec<_>, Vec<_>) = due.into_iter().partition(|it| ready_at(it) <= at);
        let slowdown = held.iter().map(ready_at).min();
        let cpu = (!programs.is_empty() && at > now).then_some(at.min(*next));
        let wait = slowdown.map(|until| (SamplingDelayReason::ProgramSlowdown, until));
        let wait = wait.or(cpu.map(|until| (SamplingDelayReason::ManagerCpu, until)));
        self.early_wait = wait.map(|(because, until)| BudgetWait {
            budget: ExhaustedBudget::EarlySampling(because),
            until: Some(until),
        });
        if !programs.is_empty() && at < *next {
            let regular = self.early_window.take().map_or(*next, |(_, regular)| regular);
            self.early_window = Some((programs, regular));
            *next = at;
        }
    }

    /// Schedules the window after one that is over. Returns the reason if it comes later than the
    /// settings ask for.
    pub(super) fn schedule_next_window(
        &mut self,
        closed: &ClosedWindow,
        kinds: SampleKinds,
        cpu_percent: f64,
        settings: &Settings,
    ) -> Option<SamplingDelayReason> {
        let base = if !kinds.reads_access_bits() {
            settings.period.min(POPULATION_PERIOD)
        } else if closed.nothing_seen || closed.more_to_see && !kinds.includes_coverage() {
            settings.period.min(settings.window * MORE_AFTER)
        } else {
            settings.period
        };
        let affordable =
            settings.pace.min_period_within_cpu_budget(closed.manager_cpu, cpu_percent);
        let opened = closed.at.saturating_sub(settings.window);
        self.not_before = opened + affordable;
        let next = opened + base.max(affordable);
        let regular = self.early_window.take().map_or(next, |(_, at)| at.max(self.not_before));
        self.state = WindowState::Idle { next: next.min(regular) };
        self.all_memory.restart_growth_wait_from_sample(closed.at, false);
        self.last_window = Some(closed.at);
        self.look_cost = closed.manager_cpu + closed.programs_cost;
        self.saved = SavingsSinceWindow::default();
        self.abandoned = false;
        let because = SamplingDelayReason::ManagerCpu;
        let delayed = (affordable > base).then_some((because, opened + base));
        let came_late = std::mem::replace(&mut self.delayed, delayed).is_some();
        if delayed.is_none() && !came_late {
            // The next delay is a new one, and written down again.
            self.stretched = None;
        }
        delayed.map(|(because, _)| because)
    }

    pub(super) fn apply_event(&mut self, now: Duration, event: &Event) {
        self.early.apply_event(now, event);
        match *event {
            Event::Promoted { process, effect, .. } => {
                self.idle.forget(process);
                if let Some(saved_us_per_s) = effect.saved_us_per_s {
                    self.saved.sum_us_per_s += saved_us_per_s;
                    self.saved.promotions += 1;
                }
            }
            Event::Recovered { process, .. } => self.idle.forget(process),
            Event::Sampled { process, .. } => {
                if let Some((at, cpu)) = self.entered.remove(&process) {
                    self.idle.record_read(at, process, cpu, false);
                }
            }
            _ => {}
        }
    }

    /// The best remaining promotion saves this much (0: none is left). One look does not show all
    /// hot memory. So the next one is not delayed where what is left is much poorer than what the
    /// last look found, and another such saving would pay for it before it is due.
    pub(super) fn bring_window_forward_if_poor(
        &mut self,
        now: Duration,
        saved_us_per_s: f64,
        settings: &Settings,
    ) {
        let (WindowState::Idle { next }, Some(last)) = (&mut self.state, self.last_window) else {
            return;
        };
        let soonest = now.max(self.not_before).max(last + settings.window * MORE_AFTER);
        let found = self.saved;
        let poorer = saved_us_per_s * f64::from(found.promotions) < found.sum_us_per_s * POORER;
        let earlier_us = next.saturating_sub(soonest).as_secs_f64() * found.sum_us_per_s;
        if poorer && earlier_us > self.look_cost.as_secs_f64() * 1e6 {
            *next = soonest;
        }
    }
}
