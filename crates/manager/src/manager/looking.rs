//! The look around once a second: which processes there are, how large they are, what memory is left.

use super::Manager;
use crate::journal::FootprintPoint;
use crate::machine::{Machine, Progress, Wake};
use hawkeye_policy::{Event, ProcessId};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// How often footprints and memory are looked at; memory that could be full by then, more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// And so often at the most because of who has just joined.
const JOIN_EVERY: Duration = Duration::from_millis(50);
/// How long looking, opening a window, probing, reading and listing each go on before memory is looked
/// at again.
const SLICE: Duration = Duration::from_millis(8);
/// No slice is shorter, or nothing would get done where memory is looked at all the time.
const SHORTEST_SLICE: Duration = Duration::from_millis(1);

/// When to look around, and how far the look has come.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// When the next look begins.
    next: Duration,
    /// When to go on admitting processes, while many join.
    joining: Option<Duration>,
    under_way: Option<Look>,
}

/// A look at the sizes of all processes, under way.
#[derive(Debug)]
struct Look {
    rest: VecDeque<ProcessId>,
    sum: FootprintPoint,
    /// When to go on.
    again_at: Duration,
}

impl Looking {
    /// When something is to be looked at next.
    pub(super) fn due(&self) -> Duration {
        let under_way = self.under_way.as_ref().map(|look| look.again_at);
        let due = [under_way, self.joining].into_iter().flatten();
        due.fold(self.next, Duration::min)
    }

    /// When the next look begins.
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// Has the next look begin now.
    pub(super) fn hasten(&mut self, now: Duration) {
        self.next = now;
    }

    /// A process has joined: it is looked at soon. Programs may be started by the thousand.
    fn joined(&mut self, now: Duration) {
        let soonest = self.next.saturating_sub(LOOK_EVERY) + JOIN_EVERY;
        self.next = self.next.min(soonest.max(now));
    }
}

impl<M: Machine> Manager<M> {
    /// Begins a look if it is due, or goes on with what is under way.
    pub(super) fn look_around(&mut self, now: Duration) {
        if now >= self.looking.next {
            self.look(now);
        } else {
            self.go_on_joining(now);
            self.look_closely(now);
        }
        self.go_on_looking(now);
    }

    pub(super) fn wait_until(&mut self, deadline: Duration) -> Wake {
        let wake = self.machine.wait_until(deadline);
        if wake == Wake::Joined {
            self.looking.joined(self.machine.now());
        }
        wake
    }

    /// Goes on admitting processes, if many are to join. The next look sees them all.
    fn go_on_joining(&mut self, now: Duration) {
        if self.looking.joining.is_none_or(|again_at| again_at > now) {
            return;
        }
        self.list_processes();
        if self.looking.joining.is_none() {
            self.looking.hasten(now);
        }
    }

    /// Those who are there are looked after while others still join.
    fn list_processes(&mut self) {
        self.looking.joining = match self.machine.processes(self.slice_end()) {
            Progress::Done(processes) => {
                self.processes = processes;
                None
            }
            Progress::Unfinished { again_at } => Some(again_at),
        };
    }

    /// When a slice that begins now ends: at the next look at memory, if that is due before.
    pub(super) fn slice_end(&self) -> Duration {
        let now = self.machine.now();
        let due = self.memory.guard().next_look().unwrap_or(Duration::MAX);
        let due = due.min(self.looking.next).max(now + SHORTEST_SLICE);
        due.min(now + SLICE)
    }

    /// Begins a look: memory comes first, the sizes of processes follow in slices.
    fn look(&mut self, now: Duration) {
        self.looking.next = now + LOOK_EVERY;
        self.list_processes();
        self.forget_the_gone(now);
        // One that takes longer than the time between two is not begun anew.
        self.looking.under_way.get_or_insert_with(|| Look {
            rest: self.processes.iter().copied().collect(),
            sum: FootprintPoint {
                at_s: now.as_secs_f64(),
                ..Default::default()
            },
            again_at: now,
        });
        self.assess_memory(now);
        // What was filled until now is in what was just read.
        for &process in &self.processes {
            self.machine.take_filled(process);
        }
        self.allow_fill();
    }

    /// Nothing is kept of processes that have ended.
    fn forget_the_gone(&mut self, now: Duration) {
        let there: HashSet<ProcessId> = self.processes.iter().copied().collect();
        let is_there = |process| there.contains(&process);
        self.limits.retain_processes(now, is_there);
        self.journal.retain_processes(is_there);
        self.last_seen.retain_processes(is_there);
        self.fault_sizes.retain(|process, _| is_there(*process));
    }

    /// Goes on with the look that is under way.
    fn go_on_looking(&mut self, now: Duration) {
        let Some(mut look) = self.looking.under_way.take() else {
            return;
        };
        let until = self.slice_end();
        while let Some(&process) = look.rest.front() {
            if self.machine.now() >= until {
                look.again_at = now;
                self.looking.under_way = Some(look);
                return;
            }
            match self.machine.footprint(process, until) {
                Ok(Progress::Unfinished { again_at }) => {
                    look.again_at = again_at;
                    self.looking.under_way = Some(look);
                    return;
                }
                Ok(Progress::Done(footprint)) => {
                    look.sum.rss_bytes += footprint.rss_bytes;
                    look.sum.huge_bytes += footprint.huge_bytes;
                    let event = Event::Measured {
                        process,
                        rss_bytes: footprint.rss_bytes,
                        huge_bytes: footprint.huge_bytes,
                    };
                    self.tell(now, event);
                }
                // One that just ended weighs nothing any more.
                Err(_) => {}
            }
            look.rest.pop_front();
        }
        // The last look before the end finds no process: it is no footprint of theirs.
        if look.sum.rss_bytes > 0 {
            self.journal.add_footprint(look.sum);
            let again = self
                .sampling
                .note_growth(now, look.sum.rss_bytes, &self.settings);
            self.looking.next = again.unwrap_or(self.looking.next);
        }
    }
}
