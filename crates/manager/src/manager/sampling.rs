//! Opens and reads sampling windows, and passes samples on.

use super::Manager;
use super::sampling_schedule::{
    ClosedWindow, OpenWindow, ReadPurpose, SampleReadProgress, WindowOpenProgress, WindowState,
};
use super::sliced_process_queue::SlicedProcessQueue;
use crate::budget_wait::WaitingWork;
use crate::machine::{Machine, MachineError, SliceProgress};
use hawkeye_policy::{
    Event, Observation, ProcessId, ProcessSample, SampleKinds, SamplingDelayReason,
};
use std::collections::HashSet;
use std::time::Duration;

/// Probing one process takes about a second; several are probed in turns.
const PROBING_LIMIT: Duration = Duration::from_millis(1500);
/// An early window is shorter, so that promotion begins soon. It shows enough to begin with.
const EARLY_PROBING_LIMIT: Duration = Duration::from_millis(250);

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
    fn on_samples_read(
        &mut self,
        now: Duration,
        cpu_before: Duration,
        mut observation: Observation,
    ) {
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
        self.recovery.observe(&observation);
        observation.processes.iter_mut().for_each(ProcessSample::drop_what_recovery_alone_needs);
        self.policy.observe(&observation);
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
