//! The look around once a second: which processes there are, how large they are, what memory is left.

use super::{LOOK_EVERY, Manager, SLICE};
use crate::journal::FootprintPoint;
use crate::machine::{Machine, Progress};
use hawkeye_policy::ProcessId;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// No slice is shorter, or nothing would get done where memory is looked at all the time.
const SHORTEST_SLICE: Duration = Duration::from_millis(1);

/// A look at the sizes of all processes, under way.
#[derive(Debug)]
pub(super) struct Look {
    rest: VecDeque<ProcessId>,
    sum: FootprintPoint,
    /// When to go on.
    again_at: Duration,
}

impl<M: Machine> Manager<M> {
    /// When something is to be looked at next.
    pub(super) fn look_due(&self) -> Duration {
        let under_way = self.look.as_ref().map(|look| look.again_at);
        let due = [under_way, self.joining].into_iter().flatten();
        due.fold(self.next_look, Duration::min)
    }

    /// Goes on admitting processes, if many are to join. The next look sees them all.
    pub(super) fn go_on_joining(&mut self, now: Duration) {
        if self.joining.is_none_or(|again_at| again_at > now) {
            return;
        }
        self.list_processes();
        if self.joining.is_none() {
            self.next_look = now;
        }
    }

    /// Those who are there are looked after while others still join.
    fn list_processes(&mut self) {
        match self.machine.processes(self.slice_end()) {
            Progress::Done(processes) => (self.processes, self.joining) = (processes, None),
            Progress::Unfinished { again_at } => self.joining = Some(again_at),
        }
    }

    /// When a slice that begins now ends: at the next look at memory, if that is due before.
    pub(super) fn slice_end(&self) -> Duration {
        let now = self.machine.now();
        let due = self.guard.next_look().unwrap_or(Duration::MAX);
        let due = due.min(self.next_look).max(now + SHORTEST_SLICE);
        due.min(now + SLICE)
    }

    /// Begins a look: memory comes first, the sizes of processes follow in slices.
    pub(super) fn look(&mut self, now: Duration) {
        self.next_look = now + LOOK_EVERY;
        self.list_processes();
        let there: HashSet<ProcessId> = self.processes.iter().copied().collect();
        let is_there = |process| there.contains(&process);
        self.cooldown.retain_processes(is_there);
        self.cooldown.expire(now);
        self.shared.retain_processes(is_there);
        self.shared.expire(now);
        self.huge_limits.retain_processes(is_there);
        self.journal.retain_processes(is_there);
        self.viewing.retain_processes(is_there);
        self.fault_sizes.retain(|process, _| is_there(*process));
        // One that takes longer than the time between two is not begun anew.
        self.look.get_or_insert_with(|| Look {
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

    /// Goes on with the look that is under way.
    pub(super) fn go_on_looking(&mut self, now: Duration) {
        let Some(mut look) = self.look.take() else {
            return;
        };
        let until = self.slice_end();
        while let Some(&process) = look.rest.front() {
            if self.machine.now() >= until {
                look.again_at = now;
                self.look = Some(look);
                return;
            }
            match self.machine.footprint(process, until) {
                Ok(Progress::Unfinished { again_at }) => {
                    look.again_at = again_at;
                    self.look = Some(look);
                    return;
                }
                Ok(Progress::Done(footprint)) => {
                    look.sum.rss_bytes += footprint.rss_bytes;
                    look.sum.huge_bytes += footprint.huge_bytes;
                    self.huge_limits
                        .note_huge_bytes(process, footprint.huge_bytes);
                    self.viewing.note_footprint(process, footprint);
                }
                // One that just ended weighs nothing any more.
                Err(_) => {}
            }
            look.rest.pop_front();
        }
        // The last look before the end finds no process: it is no footprint of theirs.
        if look.sum.rss_bytes > 0 {
            self.journal.note_footprint(look.sum);
            let again = self
                .sampling
                .note_growth(now, look.sum.rss_bytes, &self.settings);
            self.next_look = again.unwrap_or(self.next_look);
        }
    }
}
