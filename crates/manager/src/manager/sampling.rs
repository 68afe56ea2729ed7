//! When to sample, and what happens with a sample.

use super::Manager;
use super::early_sample_selection::{EarlySampleSelection, GrowthPhase, ResidentGrowth};
use super::idle_processes::IdleProcesses;
use super::sampling_slowdown_budgets::SamplingSlowdownBudgets;
use super::sliced_process_queue::SlicedProcessQueue;
use crate::budget_wait::{BudgetWait, ExhaustedBudget, WaitingWork};
use crate::machine::{Machine, MachineError, SliceProgress};
use crate::settings::Settings;
use hawkeye_policy::{
    Event, Observation, ProcessId, ProcessSample, SampleKinds, SamplingDelayReason,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

pub(super) struct SamplingSchedule {
    state: WindowState,
    /// Cost to the programs of clearing access bits.
    slowdown: SamplingSlowdownBudgets,
    /// The earliest next window, because of the manager's own CPU budget.
    not_before: Duration,
    /// Resident memory of all programs together.
    all_memory: ResidentGrowth,
    last_window: Option<Duration>,
    pub(super) early: EarlySampleSelection,
    /// The only programs in the next window, if it is early, and when the regular one is due.
    early_window: Option<(Vec<ProcessId>, Duration)>,
    /// Processes that regular windows leave out.
    pub(super) idle: IdleProcesses,
    /// When the processes of the last window entered it, and the CPU time that each had used.
    entered: HashMap<ProcessId, (Duration, Option<Duration>)>,
    /// CPU time that the last window took, from the manager and from the programs.
    look_cost: Duration,
    saved: SavingsSinceWindow,
    /// The reason in the last [`Event::Stretched`]; `None`: windows have come in time since.
    stretched: Option<SamplingDelayReason>,
    /// Why the next window is later than the settings ask for, if it is, and their time.
    delayed: Option<(SamplingDelayReason, Duration)>,
    /// What holds back programs that are due for an early window.
    pub(super) early_wait: Option<BudgetWait>,
    /// Windows opened so far.
    windows: usize,
    /// Whether the last window was abandoned because memory is in danger. The next one is not: a
    /// cgroup can be in danger all the time, and nothing would be sampled then.
    abandoned: bool,
}

#[derive(Clone, Copy, Default)]
struct SavingsSinceWindow {
    sum_us_per_s: f64,
    promotions: u32,
}

enum WindowState {
    Idle {
        next: Duration,
    },
    /// Access bits are being cleared, one process after the other.
    Opening(WindowOpenProgress),
    Window(OpenWindow),
    Reading(SampleReadProgress),
}

struct WindowOpenProgress {
    slices: SlicedProcessQueue,
    open: Vec<ProcessId>,
    cpu_before: Duration,
}

struct OpenWindow {
    until: Duration,
    cpu_before: Duration,
    open: Vec<ProcessId>,
    probing: Vec<(ProcessId, Duration)>,
}

struct SampleReadProgress {
    slices: SlicedProcessQueue,
    observation: Observation,
    purpose: ReadPurpose,
    /// CPU time of these reads so far. Other work goes on in between.
    cpu: Duration,
}

enum ReadPurpose {
    /// To count the touches since the last window, before the next one opens.
    CountTouches,
    /// The window is over.
    CloseWindow { at: Duration, cpu_before: Duration },
}

/// What decides when the window after one that is over opens.
struct ClosedWindow {
    at: Duration,
    /// CPU time that it took from the manager.
    manager_cpu: Duration,
    /// Time that it took from the programs.
    programs_cost: Duration,
    /// No call was answered in time. A whole period must not be lost because of that.
    nothing_seen: bool,
    /// A process is worth another look soon.
    more_to_see: bool,
}

/// Probing one process takes about a second; several are probed in turns.
const PROBING_LIMIT: Duration = Duration::from_millis(1500);
/// An early window is shorter, so that promotion begins soon. It shows enough to begin with.
const EARLY_PROBING_LIMIT: Duration = Duration::from_millis(250);

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
    fn schedule_next_window(
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

impl<M: Machine> Manager<M> {
    pub(super) fn continue_sampling(&mut self, now: Duration) {
        let idle = matches!(self.sampling.state, WindowState::Idle { .. });
        // The program may end before the window does.
        if !idle
            && !self.settings.measure_only
            && self.memory.guard.will_be_full_within_seconds()
            && !std::mem::replace(&mut self.sampling.abandoned, true)
        {
            self.sampling.state = WindowState::Idle { next: now + self.settings.window };
            self.sampling.delayed = None;
            self.machine.abandon_all_windows();
        }
        match std::mem::replace(&mut self.sampling.state, WindowState::Idle { next: now }) {
            WindowState::Idle { next } if now >= next => self.prepare_next_window(now),
            WindowState::Opening(it) if now >= it.slices.again_at => self.continue_opening(now, it),
            WindowState::Window(window) => self.continue_window(now, window),
            WindowState::Reading(it) if now >= it.slices.again_at => {
                self.continue_reading_samples(now, it);
            }
            not_due => self.sampling.state = not_due,
        }
    }

    fn prepare_next_window(&mut self, now: Duration) {
        if self.limits.cpu.is_exhausted(now) {
            let until = self.limits.cpu.ready_at(now).max(now + self.settings.window);
            return self.postpone_window(now, until, SamplingDelayReason::ManagerCpu);
        }
        let each = self.machine.first_touch_cost();
        if !self.policy.sample_kinds().reads_access_bits() || each.is_zero() {
            return self.open_window(now, Duration::ZERO);
        }
        if self.sampling.last_window.is_none() {
            return self.open_or_postpone_window(now, Duration::ZERO);
        }
        let all = self.processes_of_next_window(now);
        self.begin_reading_samples(now, all, ReadPurpose::CountTouches);
    }

    /// The processes of the next window.
    fn processes_of_next_window(&self, now: Duration) -> Vec<ProcessId> {
        let mut processes = self.processes.current.clone();
        if let Some((grown, _)) = &self.sampling.early_window {
            processes.retain(|process| grown.contains(process));
            return processes;
        }
        // Policies that average coverage count windows without accesses.
        let kinds = self.policy.sample_kinds();
        if kinds.includes_overhead() && !kinds.includes_coverage() {
            let (idle, machine) = (&self.sampling.idle, &self.machine);
            processes.retain(|process| !idle.is_idle(now, *process, machine.cpu_time(*process)));
        }
        processes
    }

    fn postpone_window(&mut self, now: Duration, until: Duration, because: SamplingDelayReason) {
        self.record_sampling_delay(now, because);
        self.sampling.delayed = Some((because, now));
        if let WindowState::Idle { next } = &mut self.sampling.state {
            *next = (*next).max(until);
        }
    }

    fn record_sampling_delay(&mut self, now: Duration, because: SamplingDelayReason) {
        if self.sampling.stretched.replace(because) != Some(because) {
            self.dispatch_event(now, Event::Stretched { because });
        }
    }

    /// `counting_cpu`: CPU time of counting touches, which is a cost of this window.
    fn open_or_postpone_window(&mut self, now: Duration, counting_cpu: Duration) {
        let ready = |process: &ProcessId| self.sampling.slowdown.may_clear_again_at(now, *process);
        match self.processes_of_next_window(now).iter().map(ready).min() {
            Some(ready) if ready > now => {
                // Other programs do not wait for those of an early window.
                if let Some((_, regular)) = self.sampling.early_window.take() {
                    self.sampling.state = WindowState::Idle { next: regular };
                    return;
                }
                // Check again a period later: by then more pages may have been touched.
                let until = ready.min(now + self.settings.period).max(now + self.settings.window);
                self.postpone_window(now, until, SamplingDelayReason::ProgramSlowdown);
            }
            _ => self.open_window(now, counting_cpu),
        }
    }

    fn open_window(&mut self, now: Duration, counting_cpu: Duration) {
        // Clearing takes longer than reading, so the process cleared first is exposed longest.
        // Processes take turns at being first.
        self.sampling.slowdown.retain_processes(&self.processes.current);
        let mut processes = self.processes_of_next_window(now);
        processes.retain(|process| self.sampling.slowdown.may_clear_again_at(now, *process) <= now);
        let entered = processes.iter().map(|it| (*it, (now, self.machine.cpu_time(*it))));
        self.sampling.entered = entered.collect();
        let first = self.sampling.windows % processes.len().max(1);
        processes.rotate_left(first);
        self.sampling.windows = self.sampling.windows.wrapping_add(1);
        let slices = SlicedProcessQueue::new(processes, now);
        let cpu_before = self.machine.management_costs().cpu.saturating_sub(counting_cpu);
        self.continue_opening(now, WindowOpenProgress { slices, open: Vec::new(), cpu_before });
    }

    fn continue_opening(&mut self, now: Duration, mut opening: WindowOpenProgress) {
        let until = self.slice_end();
        let needs = self.policy.sample_kinds();
        let start = |machine: &mut M, process| match needs.reads_access_bits() {
            true => machine.start_window(process, needs, until),
            false => Ok(SliceProgress::Done(())),
        };
        while let Some((process, started)) =
            (opening.slices).run_next(&mut self.machine, now, until, start)
        {
            match started {
                Ok(()) => {
                    self.sampling.slowdown.record_clear(process);
                    opening.open.push(process);
                }
                Err(error) => self.record_error(now, &error),
            }
        }
        if opening.slices.is_done() {
            self.on_window_opened(now, opening);
        } else {
            self.sampling.state = WindowState::Opening(opening);
        }
    }

    fn on_window_opened(&mut self, now: Duration, opening: WindowOpenProgress) {
        let WindowOpenProgress { open, cpu_before, .. } = opening;
        let needs = self.policy.sample_kinds();
        if needs == SampleKinds::NOTHING || open.is_empty() {
            // Where all programs of an early window have ended, the others keep their time.
            let next = match self.sampling.early_window.take() {
                Some((_, regular)) => regular,
                None => {
                    self.sampling.delayed = None;
                    now + self.settings.period
                }
            };
            self.sampling.state = WindowState::Idle { next };
            return;
        }
        let window = if needs.reads_access_bits() { self.settings.window } else { Duration::ZERO };
        let probed_alone = needs.includes_overhead() && !needs.includes_coverage();
        let lasts = if probed_alone {
            // The window ends when all processes were probed, whatever its set length.
            let (least, each) = match self.sampling.early_window {
                None => (window, PROBING_LIMIT),
                Some(_) => (Duration::ZERO, EARLY_PROBING_LIMIT),
            };
            let most = each * u32::try_from(open.len()).unwrap_or(u32::MAX);
            least.max(most.min(self.settings.period))
        } else {
            window
        };
        // Clearing itself takes a while. Each page is exposed from its clear to its read, and both
        // sweeps go in the same order.
        let until = self.machine.now() + lasts;
        let probed = if needs.includes_overhead() { open.as_slice() } else { &[] };
        let probing = probed.iter().map(|process| (*process, now)).collect();
        let opened = OpenWindow { until, cpu_before, open, probing };
        if window.is_zero() {
            self.close_window(now, opened);
        } else {
            self.sampling.state = WindowState::Window(opened);
        }
    }

    /// Ends the window when it is over, or early where only probing was wanted.
    fn continue_window(&mut self, now: Duration, mut window: OpenWindow) {
        let probing = window.probing.into_iter();
        let (mut due, mut later): (Vec<_>, Vec<_>) = probing.partition(|(_, at)| *at <= now);
        // The longest wait comes first, otherwise the last of many processes would never be probed.
        due.sort_by_key(|(_, at)| *at);
        let probed = !due.is_empty();
        let slice_ends = self.slice_end();
        for (process, at) in due {
            // Other work waits too; the next step continues here.
            if self.machine.now() >= slice_ends {
                later.push((process, at));
                continue;
            }
            match self.machine.probe(process, slice_ends) {
                Ok(Some(wait)) => later.push((process, self.machine.now() + wait)),
                Ok(None) => {}
                Err(error) => self.record_error(now, &error),
            }
        }
        let through = later.is_empty() && probed && !self.policy.sample_kinds().includes_coverage();
        window.probing = later;
        if now >= window.until || through {
            self.close_window(self.machine.now(), window);
        } else {
            self.sampling.state = WindowState::Window(window);
        }
    }

    fn close_window(&mut self, now: Duration, window: OpenWindow) {
        let purpose = ReadPurpose::CloseWindow { at: now, cpu_before: window.cpu_before };
        self.begin_reading_samples(now, window.open, purpose);
    }

    fn begin_reading_samples(
        &mut self,
        now: Duration,
        processes: Vec<ProcessId>,
        purpose: ReadPurpose,
    ) {
        let asked: HashSet<&ProcessId> = processes.iter().collect();
        let unread = self.processes.current.iter().filter(|p| !asked.contains(p));
        let observation = Observation {
            at: now,
            fmfi: self.memory.state.as_ref().and_then(|memory| memory.fmfi),
            machine: self.machine.page_properties(),
            unread: unread.copied().collect(),
            ..Observation::default()
        };
        let slices = SlicedProcessQueue::new(processes, now);
        let cpu = Duration::ZERO;
        let reading = SampleReadProgress { slices, observation, purpose, cpu };
        self.continue_reading_samples(now, reading);
    }

    fn continue_reading_samples(&mut self, now: Duration, mut reading: SampleReadProgress) {
        let until = self.slice_end();
        let cpu_before = self.machine.management_costs().cpu;
        let there: HashSet<ProcessId> = self.processes.current.iter().copied().collect();
        let read = |machine: &mut M, process| match there.contains(&process) {
            true => machine.sample(process, until),
            false => Err(MachineError::Gone(process)),
        };
        while let Some((process, sample)) =
            (reading.slices).run_next(&mut self.machine, now, until, read)
        {
            match sample {
                Ok(sample) => reading.observation.processes.push(sample),
                Err(error) => {
                    if !matches!(error, MachineError::Gone(_)) {
                        reading.observation.unread.push(process);
                    }
                    self.record_error(now, &error);
                }
            }
        }
        reading.cpu += self.machine.management_costs().cpu.saturating_sub(cpu_before);
        if !reading.slices.is_done() {
            self.sampling.state = WindowState::Reading(reading);
            return;
        }
        let SampleReadProgress { observation, purpose, cpu, .. } = reading;
        match purpose {
            ReadPurpose::CountTouches => {
                let each = self.machine.first_touch_cost();
                self.sampling.slowdown.record_touches(now, &observation.processes, each);
                self.open_or_postpone_window(now, cpu);
            }
            ReadPurpose::CloseWindow { at, cpu_before } => {
                self.on_samples_read(at, cpu_before, observation);
            }
        }
    }

    /// Passes what a window showed to the policy and to all limits, and schedules the next window.
    fn on_samples_read(&mut self, now: Duration, cpu_before: Duration, observation: Observation) {
        for sample in &observation.processes {
            let event = Event::Sampled {
                process: sample.process,
                source: sample.source,
                regions: sample.regions.len(),
                huge: sample.regions.iter().filter(|r| r.is_huge()).count(),
                accessed_pages: sample.regions.iter().map(|r| u64::from(r.accessed)).sum(),
                worth_sampling_again: sample.is_worth_sampling_again(),
            };
            self.dispatch_event(now, event);
        }
        let each = self.machine.first_touch_cost();
        let touches: u64 = observation.processes.iter().map(|s| s.first_touches).sum();
        self.sampling.slowdown.record_touches(now, &observation.processes, each);
        self.drop_postponed_promotion();
        self.policy.observe(&observation);
        self.recovery.observe(&observation);
        self.set_missing_groups();
        self.memory.guard.record_huge_pages_listed(now, &observation.unread);
        self.limits.observe(&observation);
        let more_to_see = observation.processes.iter().any(ProcessSample::is_worth_sampling_again);
        let nothing_seen = observation.processes.is_empty() && !self.processes.current.is_empty();
        self.processes.last_samples.store_observation(observation);
        self.update_fault_sizes(now);
        let closed = ClosedWindow {
            at: now,
            manager_cpu: self.machine.management_costs().cpu.saturating_sub(cpu_before),
            programs_cost: each.mul_f64(touches as f64),
            nothing_seen,
            more_to_see,
        };
        let kinds = self.policy.sample_kinds();
        let cpu_percent = self.limits.cpu.limit_percent_of_core();
        let delayed =
            self.sampling.schedule_next_window(&closed, kinds, cpu_percent, &self.settings);
        // The wait for this window is over; the next one is another.
        self.limits.waits.end_current_wait(now, WaitingWork::Sampling);
        if let Some(because) = delayed {
            self.record_sampling_delay(now, because);
        }
    }
}
