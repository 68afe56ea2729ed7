//! What the manager shows of itself, and the pause that a person can ask for.

mod explaining;
mod kept;
mod strip;

pub(super) use kept::Viewing;

use super::Manager;
use crate::journal::{Event, Pace};
use crate::machine::Footprint;
use crate::machine::Machine;
use crate::view::{
    Decision, GroupStatus, MemoryStatus, ProcessStatus, RegionState, Status, StatusTotals, Strip,
};
use hawkeye_policy::{ProcessId, ProcessSample, RegionSample, expected_gain_percent};
use kept::Kept;
use std::cmp::Reverse;
use std::time::Duration;

impl<M: Machine> Manager<M> {
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
        let now = self.machine.now();
        match event {
            Event::Trouble { message } => self.journal.note_trouble(now, &message),
            event => self.journal.note(now, event),
        }
    }

    /// The samples of windows that ended after `then` and are still kept, in order of time, within it by process.
    pub fn samples_after(&self, then: Duration) -> Vec<(Duration, &ProcessSample)> {
        let samples = self.viewing.samples.values();
        let newer = samples.filter(|kept| kept.at > then);
        let mut newer: Vec<_> = newer.map(|kept| (kept.at, &kept.sample)).collect();
        newer.sort_by_key(|(at, sample)| (*at, sample.process));
        newer
    }

    /// Resident and huge memory of each managed process, as last looked at, in order of process.
    pub fn footprints(&self) -> Vec<(ProcessId, Footprint)> {
        let seen = self.viewing.footprints.iter();
        let mut seen: Vec<_> = seen.map(|(process, seen)| (*process, *seen)).collect();
        seen.sort_by_key(|(process, _)| *process);
        seen
    }

    /// How management stands.
    pub fn status(&self) -> Status {
        let now = self.machine.now();
        let mut largest = self.processes.clone();
        let rss = |process: &ProcessId| {
            let footprint = self.viewing.footprints.get(process);
            footprint.map_or(0, |footprint| footprint.rss_bytes)
        };
        largest.sort_by_key(|process| Reverse(rss(process)));
        largest.truncate(Status::MOST_PROCESSES);
        let (pace, each) = self.journal.pace(now);
        let status = |process: &ProcessId| {
            let pace = each.get(process).copied().unwrap_or_default();
            self.process_status(*process, &pace)
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy: self.policy.name().to_owned(),
            uptime_s: now.as_secs_f64(),
            paused: self.paused,
            held: self.held.as_ref().map(ToString::to_string),
            memory: self.memory_status(),
            manager_cpu_percent: self.cpu.used_percent(now),
            longest_call_ms: self.machine.own_costs().longest_call.as_secs_f64() * 1e3,
            totals: self.status_totals(),
            pace,
            managed: self.processes.len(),
            not_answering: self.unanswered.len(),
            processes: largest.iter().map(status).collect(),
            latest: self.decisions(),
        }
    }

    /// What was decided lately, oldest first.
    fn decisions(&self) -> Vec<Decision> {
        let newest_first = self.journal.entries().rev();
        let decided = newest_first.filter(|entry| !matches!(entry.event, Event::Sampled { .. }));
        let mut latest: Vec<Decision> = decided
            .take(Status::MOST_DECISIONS)
            .map(|entry| {
                let process = entry.event.process();
                let name = process.map(|process| self.machine.describe(process).name);
                Decision {
                    at_s: entry.at.as_secs_f64(),
                    pid: process.map(|process| process.pid),
                    name: name.filter(|name| !name.is_empty()),
                    text: entry.event.to_string(),
                }
            })
            .collect();
        latest.reverse();
        latest
    }

    /// What promoting everything that may be promoted would save, as of a few seconds ago.
    fn gain_percent(&self, kept: &Kept) -> Option<f64> {
        let now = self.machine.now();
        let promotable =
            |region: &RegionSample| self.state_of(kept, region, now) == RegionState::Candidate;
        kept.gain_percent(now, || expected_gain_percent(&kept.sample, promotable))
    }

    /// The address space of a process in so many columns at the most; `None` where it is not managed.
    pub fn strip(&self, pid: u32, columns: u16) -> Option<Strip> {
        let process = *self.processes.iter().find(|p| p.pid == pid)?;
        let kept = self.viewing.samples.get(&process);
        let now = self.machine.now();
        let columns = columns.clamp(1, Strip::MOST_COLUMNS);
        Some(Strip {
            pid,
            uid: self.machine.describe(process).uid,
            age_s: kept.map(|kept| now.saturating_sub(kept.at).as_secs_f64()),
            source: kept.map(|kept| kept.sample.source),
            columns: kept.map_or_else(Vec::new, |kept| {
                let state = |region: &RegionSample| self.state_of(kept, region, now);
                strip::columns(&kept.sample.regions, usize::from(columns), state)
            }),
        })
    }

    fn process_status(&self, process: ProcessId, pace: &Pace) -> ProcessStatus {
        let who = self.machine.describe(process);
        let footprint = self.viewing.footprints.get(&process);
        let footprint = footprint.copied().unwrap_or_default();
        let kept = self.viewing.samples.get(&process);
        let done = self.journal.process(process).cloned().unwrap_or_default();
        ProcessStatus {
            pid: process.pid,
            name: who.name,
            user: who.user,
            uid: who.uid,
            cgroup: who.cgroup,
            unit: who.unit,
            rss_bytes: footprint.rss_bytes,
            huge_bytes: footprint.huge_bytes,
            overhead: kept.and_then(|kept| kept.sample.overhead),
            gain_percent: kept.and_then(|kept| self.gain_percent(kept)),
            bloat_bytes: self.viewing.empty_bytes(process),
            cpu_cores: kept.map(|kept| kept.sample.cpu_cores),
            promoted: done.promoted,
            split: done.split,
            recovered_bytes: done.recovered_bytes,
            pace: *pace,
            refused: done.refused,
            last_reason: done.last_reason.map(|reason| reason.to_string()),
            terms: self.viewing.terms(process),
            not_answering_s: self
                .unanswered
                .get(process)
                .map(|found| found.waited.as_secs_f64()),
            thp_disabled: who.thp_disabled,
            refused_bytes: who.refused_bytes,
        }
    }

    fn memory_status(&self) -> Option<MemoryStatus> {
        let memory = self.memory.as_ref()?;
        let groups = memory.groups.iter().map(|group| GroupStatus {
            name: group.name.clone(),
            used_bytes: group.usage.used_bytes,
            total_bytes: group.usage.total_bytes,
            pressure_percent: group.pressure_percent,
            processes: group.members.len(),
        });
        Some(MemoryStatus {
            used_bytes: memory.machine.used_bytes,
            total_bytes: memory.machine.total_bytes,
            high_percent: self.settings.watermarks.high_percent(),
            low_percent: self.settings.watermarks.low_percent(),
            recovering: self.guard.is_recovering(),
            pressure_percent: memory.pressure_percent,
            fmfi: memory.fmfi,
            groups: groups.collect(),
        })
    }

    fn status_totals(&self) -> StatusTotals {
        let totals = self.journal.totals();
        let errors = totals.errors.iter();
        StatusTotals {
            promoted: totals.promoted,
            split: totals.split,
            recovered_bytes: totals.recovered_bytes,
            scanned: totals.scanned,
            freed: totals.freed,
            shared: totals.shared,
            samples: totals.samples,
            errors: errors.map(|(name, n)| (name.to_string(), *n)).collect(),
        }
    }
}
