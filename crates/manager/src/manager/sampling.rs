//! When to sample, and what to do with a sample.

use super::Manager;
use crate::journal::Event;
use crate::machine::{Machine, MachineError};
use crate::settings::Settings;
use hawkeye_policy::{CoverageSource, Needs, Observation, ProcessId};
use std::time::Duration;

/// The sampling clock.
pub(super) struct Sampling {
    state: State,
    /// Not before this, for the sake of what sampling costs.
    not_before: Duration,
    /// Resident memory at the last sample, in bytes.
    rss_then: u64,
    rss_now: u64,
    last: Option<Duration>,
}

enum State {
    Idle {
        next: Duration,
    },
    Window {
        opened: Duration,
        until: Duration,
        cpu_before: Duration,
        open: Vec<ProcessId>,
    },
}

/// Growth that is worth a sample ahead of time: half as much again, and this much.
const GROWTH_BYTES: u64 = 32 << 20;
/// Huge pages to recover from are listed anew when the list is older than this.
const LIST_AGE: Duration = Duration::from_secs(10);

impl Sampling {
    pub(super) fn new() -> Self {
        Self {
            state: State::Idle {
                next: Duration::ZERO,
            },
            not_before: Duration::ZERO,
            rss_then: 0,
            rss_now: 0,
            last: None,
        }
    }

    /// When something is to be done next; `None` while nothing was planned.
    pub(super) fn due(&self) -> Option<Duration> {
        match &self.state {
            State::Idle { next } => Some(*next),
            State::Window { until, .. } => Some(*until),
        }
    }

    pub(super) fn in_window(&self) -> bool {
        matches!(self.state, State::Window { .. })
    }

    /// A program that has grown a good deal since its last sample is sampled ahead of its time: one
    /// that has just started would wait a whole period otherwise.
    pub(super) fn note_growth(&mut self, now: Duration, rss_bytes: u64, settings: &Settings) {
        self.rss_now = rss_bytes;
        let grown = rss_bytes > self.rss_then + self.rss_then / 2 + GROWTH_BYTES;
        let rested = self
            .last
            .is_none_or(|last| now >= last + settings.window * 5);
        if let State::Idle { next } = &mut self.state
            && grown
            && rested
        {
            *next = (*next).min(now.max(self.not_before));
        }
    }

    fn postpone(&mut self, until: Duration) {
        if let State::Idle { next } = &mut self.state {
            *next = (*next).max(until);
        }
    }
}

impl<M: Machine> Manager<M> {
    /// Opens or closes a window if one is due.
    pub(super) fn sample(&mut self, now: Duration) {
        if self.cpu.exhausted(now) {
            let ready = self.cpu.ready_at(now);
            self.sampling.postpone(ready);
        }
        match &self.sampling.state {
            State::Idle { next } if now >= *next => self.open_window(now),
            State::Window { until, .. } if now >= *until => self.close_window(now),
            _ => self.list_for_recovery(now),
        }
    }

    fn open_window(&mut self, now: Duration) {
        let cpu_before = self.machine.manager_cpu();
        let mut open = Vec::new();
        for process in self.processes.clone() {
            let started = match self.policy.needs() {
                Needs::Coverage => self.machine.start_window(process),
                Needs::Population | Needs::Nothing => Ok(()),
            };
            match started {
                Ok(()) => open.push(process),
                Err(error) => self.trouble(now, &error),
            }
        }
        if self.policy.needs() == Needs::Nothing || open.is_empty() {
            self.sampling.state = State::Idle {
                next: now + self.settings.period,
            };
            return;
        }
        let window = match self.policy.needs() {
            Needs::Coverage => self.settings.window,
            _ => Duration::ZERO,
        };
        // Clearing takes a while itself: each page is exposed from its clear to its read, and both
        // sweeps go the same way.
        let until = self.machine.now() + window;
        self.sampling.state = State::Window {
            opened: now,
            until,
            cpu_before,
            open,
        };
        if window.is_zero() {
            self.close_window(now);
        }
    }

    fn close_window(&mut self, now: Duration) {
        let idle = State::Idle { next: now };
        let State::Window {
            opened,
            cpu_before,
            open,
            ..
        } = std::mem::replace(&mut self.sampling.state, idle)
        else {
            return;
        };
        let touched = self.observe(now, &open);
        let cost = self.machine.manager_cpu().saturating_sub(cpu_before);
        let base = if self.policy.needs() == Needs::Coverage {
            self.settings.period
        } else {
            // Nothing is cleared, so nothing but the manager's own CPU limits a population scan.
            self.settings.period.min(Duration::from_secs(10))
        };
        let stretched = self.settings.pace.next_period(
            base,
            touched,
            self.machine.first_touch_cost(),
            cost,
            self.cpu.percent(),
        );
        if let Some(because) = stretched.because {
            self.journal.note(
                now,
                Event::Stretched {
                    period: stretched.period,
                    because,
                },
            );
        }
        self.sampling.state = State::Idle {
            next: opened + stretched.period,
        };
        self.sampling.rss_then = self.sampling.rss_now;
        self.sampling.not_before = match stretched.because {
            Some(_) => opened + stretched.period,
            None => now,
        };
    }

    /// Reads the processes, shows them to all who decide, and returns how many base pages were
    /// accessed for the first time since their bits were cleared.
    fn observe(&mut self, now: Duration, processes: &[ProcessId]) -> u64 {
        let mut observation = Observation {
            at: now,
            processes: Vec::new(),
        };
        let mut touched = 0;
        for &process in processes {
            match self.machine.sample(process) {
                Ok(sample) => {
                    let accessed_pages: u64 =
                        sample.regions.iter().map(|r| u64::from(r.accessed)).sum();
                    if sample.source == CoverageSource::AccessBits {
                        touched += touched_pages(&sample);
                    }
                    let event = Event::Sampled {
                        process,
                        source: sample.source,
                        regions: sample.regions.len(),
                        huge: sample.regions.iter().filter(|r| r.huge).count(),
                        accessed_pages,
                    };
                    self.journal.note(now, event);
                    observation.processes.push(sample);
                }
                Err(error @ MachineError::Gone(_)) => self.trouble(now, &error),
                Err(error) => self.trouble(now, &error),
            }
        }
        self.policy.observe(&observation);
        self.planner.observe(&observation);
        self.recovered.observe(&observation);
        self.sampling.last = Some(now);
        touched
    }

    /// Recovery needs to know where the huge pages are, also where the policy wants to know nothing
    /// or its next window is far away.
    fn list_for_recovery(&mut self, now: Duration) {
        let stale = self.sampling.last.is_none_or(|last| now >= last + LIST_AGE);
        if self.guard.recovering().is_some() && stale && !self.sampling.in_window() {
            let mut observation = Observation {
                at: now,
                processes: Vec::new(),
            };
            for process in self.processes.clone() {
                match self.machine.sample(process) {
                    Ok(sample) => observation.processes.push(sample),
                    Err(error) => self.trouble(now, &error),
                }
            }
            self.planner.observe(&observation);
            self.recovered.observe(&observation);
            self.sampling.last = Some(now);
        }
    }
}

/// First touches that a window cost: a huge page has one bit, a region's table one each.
fn touched_pages(sample: &hawkeye_policy::ProcessSample) -> u64 {
    sample
        .regions
        .iter()
        .map(|r| {
            if r.huge {
                u64::from(r.accessed > 0)
            } else {
                u64::from(r.present)
            }
        })
        .sum()
}
