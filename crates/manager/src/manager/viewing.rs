//! What the manager shows of itself, and the pause that a person can ask for.

use super::Manager;
use crate::journal::{Entry, Event};
use crate::machine::{Footprint, Machine};
use crate::view::{
    EntryView, Explanation, GroupStatus, MemoryStatus, ProcessExplanation, ProcessStatus,
    RegionExplanation, RegionState, SampleStatus, Status, StatusTotals,
};
use hawkeye_policy::{
    Observation, ProcessId, ProcessSample, RegionAddr, RegionSample, Spent, Terms,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

/// Entries of the journal that an explanation shows.
const LATEST: usize = 10;

/// What is kept to be looked at, by process.
pub(super) struct Viewing {
    footprints: HashMap<ProcessId, Footprint>,
    samples: HashMap<ProcessId, Kept>,
    /// Regions in all samples together are kept up to this many.
    most_regions: usize,
}

/// The last sample of a process.
struct Kept {
    at: Duration,
    sample: ProcessSample,
}

impl Default for Viewing {
    fn default() -> Self {
        Self::holding(Self::MOST_REGIONS)
    }
}

impl Viewing {
    /// 512 GiB of memory, for 10 MiB of our own.
    const MOST_REGIONS: usize = 256 << 10;

    fn holding(most_regions: usize) -> Self {
        Self {
            footprints: HashMap::new(),
            samples: HashMap::new(),
            most_regions,
        }
    }

    pub(super) fn note_footprint(&mut self, process: ProcessId, footprint: Footprint) {
        self.footprints.insert(process, footprint);
    }

    pub(super) fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.footprints.retain(|process, _| there(*process));
        self.samples.retain(|process, _| there(*process));
    }

    /// Keeps what was sampled, in place of the samples before it. Where that is too much, the
    /// oldest samples go, then the largest.
    pub(super) fn keep(&mut self, observation: Observation) {
        let at = observation.at;
        for sample in observation.processes {
            self.samples.insert(sample.process, Kept { at, sample });
        }
        let regions = |kept: &Kept| kept.sample.regions.len();
        let mut kept: usize = self.samples.values().map(regions).sum();
        while kept > self.most_regions {
            let first_to_go = self
                .samples
                .iter()
                .min_by_key(|(_, kept)| (kept.at, Reverse(regions(kept))))
                .map(|(process, _)| *process);
            let Some(gone) = first_to_go.and_then(|process| self.samples.remove(&process)) else {
                break;
            };
            kept -= regions(&gone);
        }
    }

    fn terms(&self, process: ProcessId) -> Terms {
        self.samples
            .get(&process)
            .map_or_else(Terms::default, |kept| kept.sample.terms)
    }
}

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
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy: self.policy.name().to_owned(),
            uptime_s: now.as_secs_f64(),
            paused: self.paused,
            held: self.held.as_ref().map(ToString::to_string),
            memory: self.memory_status(),
            manager_cpu_percent: self.cpu.used_percent(now),
            longest_call_ms: self.machine.longest_call().as_secs_f64() * 1e3,
            totals: self.status_totals(),
            managed: self.processes.len(),
            processes: largest.iter().map(|p| self.process_status(*p)).collect(),
        }
    }

    /// Why a process, or the region at an address of it, is treated as it is.
    pub fn explain(&mut self, pid: u32, address: Option<u64>) -> Explanation {
        let Some(process) = self.processes.iter().copied().find(|p| p.pid == pid) else {
            let why = self.machine.why_not_managed(pid);
            return Explanation::NotManaged {
                pid,
                why: why.unwrap_or_else(|| format!("process {pid} is not under management")),
            };
        };
        match address {
            None => Explanation::Process(Box::new(self.explain_process(process))),
            Some(address) => {
                let region = RegionAddr::containing(address);
                Explanation::Region(Box::new(self.explain_region(process, region)))
            }
        }
    }

    fn explain_process(&self, process: ProcessId) -> ProcessExplanation {
        let status = self.process_status(process);
        let sample = self.sample_status(process);
        let mut kept_by = self.kept_by(process, &status);
        match sample {
            None => kept_by.push("it was not sampled yet".to_owned()),
            Some(sample) if sample.regions == 0 => {
                kept_by.push("it has no memory that can become huge".to_owned());
            }
            Some(sample) if sample.regions == sample.huge => {
                kept_by.push("all of it is huge already".to_owned());
            }
            Some(sample) if sample.candidates == 0 => kept_by.push(
                "no region of it was accessed, is under base pages and free to be promoted"
                    .to_owned(),
            ),
            Some(_) => {}
        }
        ProcessExplanation {
            process: status,
            sample,
            kept_by,
            // Its samples are shown above.
            latest: self.latest(|entry| {
                entry.event.process() == Some(process)
                    && !matches!(entry.event, Event::Sampled { .. })
            }),
        }
    }

    fn explain_region(&mut self, process: ProcessId, region: RegionAddr) -> RegionExplanation {
        let excluded = self.machine.why_excluded(process, region);
        let now = self.machine.now();
        let kept = self.viewing.samples.get(&process);
        let sample = kept.and_then(|kept| {
            let regions = &kept.sample.regions;
            let index = regions.binary_search_by_key(&region, |sample| sample.region);
            Some(regions[index.ok()?])
        });
        let state = match (excluded, sample) {
            (Some(why), _) => RegionState::Excluded { why },
            (None, Some(sample)) => self.state_of(process, &sample, now),
            (None, None) => RegionState::NotSampled,
        };
        let status = self.process_status(process);
        RegionExplanation {
            start: region.start(),
            end: region.end(),
            age_s: kept.map(|kept| now.saturating_sub(kept.at).as_secs_f64()),
            sample,
            state,
            waiting: self
                .policy
                .waiting(process, region)
                .map(|reason| reason.to_string()),
            kept_by: self.kept_by(process, &status),
            process: status,
            latest: self.latest(|entry| {
                entry.event.process() == Some(process) && entry.event.region() == Some(region)
            }),
        }
    }

    /// What keeps every region of the process from being promoted now.
    fn kept_by(&self, process: ProcessId, status: &ProcessStatus) -> Vec<String> {
        let now = self.machine.now();
        let mut kept_by = Vec::new();
        if self.paused {
            kept_by.push("management is paused (`hawkeye resume` ends that)".to_owned());
        }
        if status.thp_disabled {
            kept_by.push("it was told PR_SET_THP_DISABLE and can't have huge pages".to_owned());
        }
        if let Err(hold) = self.guard.may_promote(process, 0) {
            kept_by.push(hold.to_string());
        }
        kept_by.extend(self.policy.passes_over(process));
        if let (Some(rule), Some(most)) = (status.terms.rule, status.terms.max_huge_bytes) {
            if !self.huge_limits.allows(process) {
                kept_by.push(format!(
                    "its rule allows {} MiB of huge pages, and {} MiB are in use",
                    most >> 20,
                    self.huge_limits.rule_bytes(rule) >> 20
                ));
            }
        }
        if let Some(max) = self.settings.max_promotions {
            if self.budget.spent() >= max {
                kept_by.push(Spent::Total { max }.to_string());
            }
        }
        if self.cpu.exhausted(now) {
            let percent = self.cpu.percent();
            kept_by.push(format!(
                "the manager has used up its CPU budget ({percent} % of one core) for now"
            ));
        }
        if !self.promotion_backoff.ready(now) {
            let left = self.promotion_backoff.ready_at().saturating_sub(now);
            kept_by.push(format!(
                "calls into processes took long: promotion pauses {:.1} s more",
                left.as_secs_f64()
            ));
        }
        kept_by
    }

    fn state_of(&self, process: ProcessId, sample: &RegionSample, now: Duration) -> RegionState {
        let region = sample.region;
        if sample.is_huge() {
            RegionState::Huge
        } else if !self.recovered.may_promote(process, region) {
            RegionState::Recovered
        } else if let Some(until) = self.cooldown.until(process, region, now) {
            RegionState::CoolingDown {
                remaining_s: (until - now).as_secs_f64(),
            }
        } else if sample.accessed > 0 {
            RegionState::Candidate
        } else {
            RegionState::NotAccessed
        }
    }

    fn sample_status(&self, process: ProcessId) -> Option<SampleStatus> {
        let now = self.machine.now();
        let Kept { at, sample } = self.viewing.samples.get(&process)?;
        let mut status = SampleStatus {
            age_s: now.saturating_sub(*at).as_secs_f64(),
            source: sample.source,
            accessed_pages: sample.regions.iter().map(|r| u64::from(r.accessed)).sum(),
            regions: sample.regions.len() as u64,
            huge: 0,
            candidates: 0,
            cooling_down: 0,
            recovered: 0,
            not_accessed: 0,
        };
        for region in &sample.regions {
            let count = match self.state_of(process, region, now) {
                RegionState::Huge => &mut status.huge,
                RegionState::Candidate => &mut status.candidates,
                RegionState::CoolingDown { .. } => &mut status.cooling_down,
                RegionState::Recovered => &mut status.recovered,
                _ => &mut status.not_accessed,
            };
            *count += 1;
        }
        Some(status)
    }

    fn process_status(&self, process: ProcessId) -> ProcessStatus {
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
            cpu_cores: kept.map(|kept| kept.sample.cpu_cores),
            promoted: done.promoted,
            split: done.split,
            recovered_bytes: done.recovered_bytes,
            refused: done.refused,
            last_reason: done.last_reason.map(|reason| reason.to_string()),
            terms: self.viewing.terms(process),
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
            samples: totals.samples,
            errors: errors.map(|(name, n)| ((*name).to_owned(), *n)).collect(),
        }
    }

    /// The last entries of this kind, oldest first.
    fn latest(&self, kind: impl Fn(&Entry) -> bool) -> Vec<EntryView> {
        let newest_first = self.journal.entries().rev().filter(|entry| kind(entry));
        let mut latest: Vec<EntryView> = newest_first
            .take(LATEST)
            .map(|entry| EntryView {
                at_s: entry.at.as_secs_f64(),
                region: entry.event.region().map(RegionAddr::start),
                text: entry.event.to_string(),
            })
            .collect();
        latest.reverse();
        latest
    }
}

#[cfg(test)]
mod tests;
