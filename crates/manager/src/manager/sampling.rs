//! When to sample, and what to do with a sample.

use super::Manager;
use super::slowdown::Slowdowns;
use crate::machine::{Machine, MachineError, Progress};
use crate::settings::Settings;
use hawkeye_policy::{Event, Needs, Observation, ProcessId, ProcessSample, StretchedBy};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// The sampling clock.
pub(super) struct Sampling {
    state: State,
    /// What clearing access bits costs the programs.
    slowdown: Slowdowns,
    /// Not before this, for the sake of the manager's own CPU.
    not_before: Duration,
    /// Resident memory at the last window, in bytes.
    rss_then: u64,
    /// At the last look, and when that was.
    rss_now: u64,
    rss_at: Duration,
    /// When a window was last closed.
    last_window: Option<Duration>,
    /// CPU time that the last window took, of the manager and of the programs.
    look_cost: Duration,
    /// What promotions since the last window save.
    saved: MeanSaving,
    stretched: Option<StretchedBy>,
    /// Windows opened so far.
    windows: usize,
}

/// Promotions, and what they save.
#[derive(Clone, Copy, Default)]
struct MeanSaving {
    sum_us_per_s: f64,
    promotions: u32,
}

enum State {
    Idle {
        next: Duration,
    },
    /// Access bits are being cleared, of one process after the other.
    Opening(Opening),
    Window {
        until: Duration,
        cpu_before: Duration,
        open: Vec<ProcessId>,
        /// Which of these are to be probed further, and when.
        probing: Vec<(ProcessId, Duration)>,
    },
    /// Regions are being read, of one process after the other.
    Reading(Reading),
}

struct Opening {
    rest: VecDeque<ProcessId>,
    open: Vec<ProcessId>,
    cpu_before: Duration,
    again_at: Duration,
}

struct Reading {
    rest: VecDeque<ProcessId>,
    observation: Observation,
    purpose: Purpose,
    again_at: Duration,
}

/// What regions are read for.
enum Purpose {
    /// How much was touched since the last window, before the next one opens.
    CountTouches,
    /// The window is over.
    CloseWindow { at: Duration, cpu_before: Duration },
}

/// Probing one process takes about a second; several are probed in turns.
const PROBING_LIMIT: Duration = Duration::from_millis(1500);

/// A program that has grown is left alone for so many windows after the last.
const REST: u32 = 5;
/// What was not seen of a large process, or not well, is looked at so many windows after, at the soonest.
const MORE_AFTER: u32 = 3;

/// What saves less than this share of what others saved on average is much poorer.
const POORER: f64 = 0.5;

/// Growth that is worth a sample ahead of time: half as much again, and this much.
const GROWTH_BYTES: u64 = 32 << 20;
/// What grows by no more than this share of itself a second has stopped growing.
const GROWS_PER_S: f64 = 1.0 / 64.0;
/// So soon it is seen whether a program that was there before still grows.
const SOON: Duration = Duration::from_millis(100);
/// Population is read this often where nothing has to be cleared for it: khugepaged's own rhythm.
const POPULATION_PERIOD: Duration = Duration::from_secs(10);

impl Sampling {
    /// The first window opens a period from now, or when the programs have settled.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            state: State::Idle {
                next: settings.period,
            },
            slowdown: Slowdowns::new(settings.pace),
            not_before: Duration::ZERO,
            rss_then: 0,
            rss_now: 0,
            rss_at: Duration::ZERO,
            last_window: None,
            look_cost: Duration::ZERO,
            saved: MeanSaving::default(),
            stretched: None,
            windows: 0,
        }
    }

    /// When something is to be done next.
    pub(super) fn due(&self) -> Duration {
        match &self.state {
            State::Idle { next } => *next,
            State::Opening(Opening { again_at, .. }) | State::Reading(Reading { again_at, .. }) => {
                *again_at
            }
            State::Window { until, probing, .. } => probing
                .iter()
                .map(|(_, due)| *due)
                .fold(*until, Duration::min),
        }
    }

    /// Whether accesses count: what our own calls do must not disturb them.
    pub(super) fn in_window(&self) -> bool {
        match &self.state {
            State::Idle { .. } => false,
            State::Opening(_) | State::Window { .. } => true,
            State::Reading(reading) => matches!(reading.purpose, Purpose::CloseWindow { .. }),
        }
    }

    /// Has the next window open soon: what the last one showed could not be used.
    pub(super) fn hasten(&mut self, now: Duration, settings: &Settings) {
        let soonest = now.max(self.not_before) + settings.window * MORE_AFTER;
        if let State::Idle { next } = &mut self.state {
            *next = (*next).min(soonest);
        }
    }

    /// A program that has grown a good deal since its last sample, and has stopped growing, is sampled
    /// ahead of its time: one that has just started would wait a whole period otherwise. While it
    /// still grows, what is accessed is just what is being filled. Returns when to look again, where that should be soon.
    pub(super) fn note_growth(
        &mut self,
        now: Duration,
        rss_bytes: u64,
        settings: &Settings,
    ) -> Option<Duration> {
        let first = self.rss_now == 0;
        let since_s = now.saturating_sub(self.rss_at).as_secs_f64();
        let more_bytes = rss_bytes.saturating_sub(self.rss_now) as f64;
        let settled = !first && more_bytes <= rss_bytes as f64 * GROWS_PER_S * since_s;
        (self.rss_now, self.rss_at) = (rss_bytes, now);
        let grown = rss_bytes > self.rss_then + self.rss_then / 2 + GROWTH_BYTES;
        let rested = self
            .last_window
            .is_none_or(|last| now >= last + settings.window * REST);
        if let State::Idle { next } = &mut self.state {
            if grown && settled && rested {
                *next = (*next).min(now.max(self.not_before));
            }
        }
        // It was there before we were.
        (first && grown).then(|| now + SOON)
    }

    /// Takes in what happened.
    pub(super) fn apply(&mut self, event: &Event) {
        if let Event::Promoted { effect, .. } = event {
            if let Some(saved_us_per_s) = effect.saved_us_per_s {
                self.saved.sum_us_per_s += saved_us_per_s;
                self.saved.promotions += 1;
            }
        }
    }

    /// The best promotion that is left saves so much, 0 where there is none. One look does not show all that is hot: where what is
    /// left is much poorer than what the last one found, the next is not put off, if as much again would pay for it before it is due.
    pub(super) fn note_best_left(
        &mut self,
        now: Duration,
        saved_us_per_s: f64,
        settings: &Settings,
    ) {
        let (State::Idle { next }, Some(last)) = (&mut self.state, self.last_window) else {
            return;
        };
        let soonest = now
            .max(self.not_before)
            .max(last + settings.window * MORE_AFTER);
        let found = self.saved;
        let poorer = saved_us_per_s * f64::from(found.promotions) < found.sum_us_per_s * POORER;
        let earlier_us = next.saturating_sub(soonest).as_secs_f64() * found.sum_us_per_s;
        if poorer && earlier_us > self.look_cost.as_secs_f64() * 1e6 {
            *next = soonest;
        }
    }

    /// Drops a window that is open, or about to be; the next one opens at `next`. Whether there was one.
    fn abandon_window(&mut self, next: Duration) -> bool {
        let abandoned = !matches!(self.state, State::Idle { .. });
        if abandoned {
            self.state = State::Idle { next };
        }
        abandoned
    }

    fn wait(&mut self, until: Duration) {
        if let State::Idle { next } = &mut self.state {
            *next = (*next).max(until);
        }
    }
}

impl<M: Machine> Manager<M> {
    /// Opens, goes on with or closes a window if that is due.
    pub(super) fn sample(&mut self, now: Duration) {
        if self.memory.guard().in_danger() && !self.settings.measure_only {
            // The program may not live to the end of the window.
            let next = now + self.settings.window;
            if self.sampling.abandon_window(next) {
                self.machine.abandon_window();
            }
        }
        match &self.sampling.state {
            State::Idle { next } if now >= *next => self.begin_opening(now),
            State::Opening(Opening { again_at, .. }) if now >= *again_at => self.go_on_opening(now),
            State::Window { .. } => self.go_on_probing(now),
            State::Reading(Reading { again_at, .. }) if now >= *again_at => self.go_on_reading(now),
            _ => {}
        }
    }

    /// Opens a window, unless something is against it.
    fn begin_opening(&mut self, now: Duration) {
        if self.cpu.exhausted(now) {
            let until = self.cpu.ready_at(now).max(now + self.settings.window);
            return self.put_off(now, until, StretchedBy::ManagerCpu);
        }
        let each = self.machine.first_touch_cost();
        if !self.policy.needs().accesses() || each.is_zero() {
            return self.open_window(now);
        }
        if self.sampling.last_window.is_none() {
            return self.open_when_ready(now);
        }
        let all = self.processes.clone();
        let observation = self.begin_observation(now, &all);
        self.sampling.state = State::Reading(Reading {
            rest: all.into(),
            observation,
            purpose: Purpose::CountTouches,
            again_at: now,
        });
        self.go_on_reading(now);
    }

    fn put_off(&mut self, now: Duration, until: Duration, because: StretchedBy) {
        if self.sampling.stretched != Some(because) {
            self.sampling.stretched = Some(because);
            self.tell(now, Event::Stretched { because });
        }
        self.sampling.wait(until);
    }

    /// Opens a window as soon as clearing has not cost some program too much.
    fn open_when_ready(&mut self, now: Duration) {
        let ready = |process: &ProcessId| self.sampling.slowdown.ready_at(now, *process);
        match self.processes.iter().map(ready).min() {
            Some(ready) if ready > now => {
                // Look again a period later: by then more pages may have been touched.
                let until = ready.min(now + self.settings.period);
                let until = until.max(now + self.settings.window);
                self.put_off(now, until, StretchedBy::ProgramSlowdown);
            }
            _ => self.open_window(now),
        }
    }

    fn open_window(&mut self, now: Duration) {
        // Clearing takes longer than reading: the process cleared first is exposed longest, each in turn.
        self.sampling.slowdown.keep(&self.processes);
        let mut processes = self.processes.clone();
        processes.retain(|process| self.sampling.slowdown.ready_at(now, *process) <= now);
        let first = self.sampling.windows % processes.len().max(1);
        processes.rotate_left(first);
        self.sampling.windows = self.sampling.windows.wrapping_add(1);
        self.sampling.state = State::Opening(Opening {
            rest: processes.into(),
            open: Vec::new(),
            cpu_before: self.machine.own_costs().cpu,
            again_at: now,
        });
        self.go_on_opening(now);
    }

    fn go_on_opening(&mut self, now: Duration) {
        let idle = State::Idle { next: now };
        let State::Opening(mut opening) = std::mem::replace(&mut self.sampling.state, idle) else {
            return;
        };
        let until = self.slice_end();
        let needs = self.policy.needs();
        while let Some(&process) = opening.rest.front() {
            if self.machine.now() >= until {
                opening.again_at = now;
                self.sampling.state = State::Opening(opening);
                return;
            }
            let started = if needs.accesses() {
                self.machine.start_window(process, needs, until)
            } else {
                Ok(Progress::Done(()))
            };
            match started {
                Ok(Progress::Unfinished { again_at }) => {
                    opening.again_at = again_at;
                    self.sampling.state = State::Opening(opening);
                    return;
                }
                Ok(Progress::Done(())) => {
                    self.sampling.slowdown.note_clear(process);
                    opening.open.push(process);
                }
                Err(error) => self.trouble(now, &error),
            }
            opening.rest.pop_front();
        }
        self.opened(now, opening);
    }

    /// All that could be cleared is: the window begins.
    fn opened(&mut self, now: Duration, opening: Opening) {
        let Opening {
            open, cpu_before, ..
        } = opening;
        let needs = self.policy.needs();
        if needs == Needs::NOTHING || open.is_empty() {
            self.sampling.state = State::Idle {
                next: now + self.settings.period,
            };
            return;
        }
        let window = if needs.accesses() {
            self.settings.window
        } else {
            Duration::ZERO
        };
        let probed_alone = needs.overhead() && !needs.coverage();
        let lasts = if probed_alone {
            // It ends when everybody was probed, whatever it is set to.
            let most = PROBING_LIMIT * u32::try_from(open.len()).unwrap_or(u32::MAX);
            window.max(most.min(self.settings.period))
        } else {
            window
        };
        // Clearing takes a while itself: each page is exposed from its clear to its read, and both
        // sweeps go the same way.
        let until = self.machine.now() + lasts;
        let probing = if needs.overhead() {
            open.iter().map(|process| (*process, now)).collect()
        } else {
            Vec::new()
        };
        self.sampling.state = State::Window {
            until,
            cpu_before,
            open,
            probing,
        };
        if window.is_zero() {
            self.close_window(now);
        }
    }

    /// Probes those whose time has come. Ends the window when it is over, or early where nothing but
    /// probing was wanted.
    fn go_on_probing(&mut self, now: Duration) {
        let State::Window { until, probing, .. } = &mut self.sampling.state else {
            return;
        };
        let until = *until;
        let (mut due, mut later): (Vec<_>, Vec<_>) = std::mem::take(probing)
            .into_iter()
            .partition(|(_, at)| *at <= now);
        // Who has waited longest comes first, or the last of many would never be looked at.
        due.sort_by_key(|(_, at)| *at);
        let probed = !due.is_empty();
        let slice_ends = self.slice_end();
        for (process, at) in due {
            // Others wait for us too: the next step goes on.
            if self.machine.now() >= slice_ends {
                later.push((process, at));
                continue;
            }
            match self.machine.probe(process, slice_ends) {
                Ok(Some(wait)) => later.push((process, self.machine.now() + wait)),
                Ok(None) => {}
                Err(error) => self.trouble(now, &error),
            }
        }
        let through = later.is_empty() && probed && !self.policy.needs().coverage();
        if let State::Window { probing, .. } = &mut self.sampling.state {
            *probing = later;
        }
        if now >= until || through {
            self.close_window(self.machine.now());
        }
    }

    /// The window is over: what was accessed in it is read.
    fn close_window(&mut self, now: Duration) {
        let idle = State::Idle { next: now };
        let State::Window {
            cpu_before, open, ..
        } = std::mem::replace(&mut self.sampling.state, idle)
        else {
            return;
        };
        let observation = self.begin_observation(now, &open);
        self.sampling.state = State::Reading(Reading {
            rest: open.into(),
            observation,
            purpose: Purpose::CloseWindow {
                at: now,
                cpu_before,
            },
            again_at: now,
        });
        self.go_on_reading(now);
    }

    /// An observation of `processes`, before any was read.
    fn begin_observation(&self, now: Duration, processes: &[ProcessId]) -> Observation {
        let asked: HashSet<&ProcessId> = processes.iter().collect();
        let unread = self.processes.iter().filter(|p| !asked.contains(p));
        Observation {
            at: now,
            fmfi: self.memory.state().and_then(|memory| memory.fmfi),
            machine: self.machine.shape(),
            unread: unread.copied().collect(),
            ..Observation::default()
        }
    }

    fn go_on_reading(&mut self, now: Duration) {
        let idle = State::Idle { next: now };
        let State::Reading(mut reading) = std::mem::replace(&mut self.sampling.state, idle) else {
            return;
        };
        let until = self.slice_end();
        let there: HashSet<ProcessId> = self.processes.iter().copied().collect();
        while let Some(&process) = reading.rest.front() {
            if self.machine.now() >= until {
                reading.again_at = now;
                self.sampling.state = State::Reading(reading);
                return;
            }
            let read = if there.contains(&process) {
                self.machine.sample(process, until)
            } else {
                Err(MachineError::Gone(process))
            };
            match read {
                Ok(Progress::Unfinished { again_at }) => {
                    reading.again_at = again_at;
                    self.sampling.state = State::Reading(reading);
                    return;
                }
                Ok(Progress::Done(sample)) => reading.observation.processes.push(sample),
                Err(error) => {
                    if !matches!(error, MachineError::Gone(_)) {
                        reading.observation.unread.push(process);
                    }
                    self.trouble(now, &error);
                }
            }
            reading.rest.pop_front();
        }
        let Reading {
            observation,
            purpose,
            ..
        } = reading;
        match purpose {
            Purpose::CountTouches => {
                let each = self.machine.first_touch_cost();
                self.sampling
                    .slowdown
                    .note_touches(now, &observation.processes, each);
                self.open_when_ready(now);
            }
            Purpose::CloseWindow { at, cpu_before } => {
                self.closed(at, cpu_before, observation);
            }
        }
    }

    /// Everything that was open has been read: all who decide are shown it, and the next window is set.
    fn closed(&mut self, now: Duration, cpu_before: Duration, observation: Observation) {
        // Not a period is lost because no call was answered in time.
        let nothing_seen = observation.processes.is_empty() && !self.processes.is_empty();
        let (more_to_see, programs_cost) = self.observe(now, observation);
        let cost = self.machine.own_costs().cpu.saturating_sub(cpu_before);
        let needs = self.policy.needs();
        let base = if !needs.accesses() {
            self.settings.period.min(POPULATION_PERIOD)
        } else if nothing_seen || more_to_see && !needs.coverage() {
            self.settings.period.min(self.settings.window * MORE_AFTER)
        } else {
            self.settings.period
        };
        let own = self
            .settings
            .pace
            .period_for_manager(cost, self.cpu.percent());
        if own > base && self.sampling.stretched != Some(StretchedBy::ManagerCpu) {
            self.sampling.stretched = Some(StretchedBy::ManagerCpu);
            let because = StretchedBy::ManagerCpu;
            self.tell(now, Event::Stretched { because });
        }
        let opened = now.saturating_sub(self.settings.window);
        self.sampling.not_before = opened + own;
        self.sampling.state = State::Idle {
            next: opened + base.max(own),
        };
        self.sampling.rss_then = self.sampling.rss_now;
        self.sampling.last_window = Some(now);
        self.sampling.look_cost = cost + programs_cost;
        self.sampling.saved = MeanSaving::default();
    }

    /// Shows what was read to all who decide. Returns whether one of the processes is worth another
    /// look soon, and what the window cost them.
    fn observe(&mut self, now: Duration, observation: Observation) -> (bool, Duration) {
        for sample in &observation.processes {
            let event = Event::Sampled {
                process: sample.process,
                source: sample.source,
                regions: sample.regions.len(),
                huge: sample.regions.iter().filter(|r| r.is_huge()).count(),
                accessed_pages: sample.regions.iter().map(|r| u64::from(r.accessed)).sum(),
            };
            self.tell(now, event);
        }
        let each = self.machine.first_touch_cost();
        let touches: u64 = observation.processes.iter().map(|s| s.first_touches).sum();
        self.sampling
            .slowdown
            .note_touches(now, &observation.processes, each);
        self.drop_postponed();
        self.policy.observe(&observation);
        self.recovering.observe(&observation);
        self.memory.guard_mut().note_listed(now);
        self.limits.observe(&observation);
        let worth = ProcessSample::is_worth_another_look;
        let more_to_see = observation.processes.iter().any(worth);
        self.last_seen.keep(observation);
        self.choose_fault_sizes(now);
        (more_to_see, each.mul_f64(touches as f64))
    }
}
