//! Why a process, or a region of it, is treated as it is.

use super::kept::Kept;
use crate::journal::{Entry, Event, Pace};
use crate::machine::Machine;
use crate::manager::Manager;
use crate::view::{
    EntryView, Explanation, ProcessExplanation, ProcessStatus, RegionExplanation, RegionState,
    SampleStatus,
};
use hawkeye_policy::access_map::bucket_of;
use hawkeye_policy::{CoverageSource, ProcessId, RegionAddr, RegionSample, Spent};
use std::time::Duration;

/// Entries of the journal that an explanation shows.
const LATEST: usize = 10;

impl<M: Machine> Manager<M> {
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
        let status = self.process_status(process, &self.pace_of(process));
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
        let found = kept.and_then(|kept| Some((kept, *kept.region(region)?)));
        let sample = found.map(|(_, sample)| sample);
        let latest = self.latest(|entry| {
            entry.event.process() == Some(process) && entry.event.region() == Some(region)
        });
        let mut state = match (excluded, found) {
            (Some(why), _) => RegionState::Excluded { why },
            (None, Some((kept, sample))) => self.state_of(kept, &sample, now),
            (None, None) => RegionState::NotSampled,
        };
        if let RegionState::CoolingDown { errno, .. } = &mut state {
            *errno = self.refusal(process, region);
        }
        // Without access figures `accessed` only repeats what is present.
        let seen = kept.is_some_and(|kept| kept.sample.source != CoverageSource::Population);
        let bucket =
            sample.filter(|sample| seen && state != RegionState::Huge && !sample.is_huge());
        let waiting = self.policy.explain_region(process, region);
        let status = self.process_status(process, &self.pace_of(process));
        let mut kept_by = self.kept_by(process, &status);
        kept_by.extend(waiting.as_ref().and_then(|it| it.passed_over.clone()));
        RegionExplanation {
            uptime_s: now.as_secs_f64(),
            start: region.start(),
            end: region.end(),
            age_s: kept.map(|kept| now.saturating_sub(kept.at).as_secs_f64()),
            sample,
            state,
            bucket: bucket.map(|sample| bucket_of(sample.accessed)),
            waiting: waiting.as_ref().map(|it| it.reason.to_string()),
            ahead: waiting.as_ref().map(|it| it.ahead),
            kept_by,
            process: status,
            latest,
            remembered_since_s: self.remembered_since_s(),
        }
    }

    /// What keeps every region of the process from being promoted now.
    fn kept_by(&self, process: ProcessId, status: &ProcessStatus) -> Vec<String> {
        let now = self.machine.now();
        let mut kept_by = Vec::new();
        if self.paused {
            kept_by.push("management is paused (`hawkeye resume` ends that)".to_owned());
        }
        if let Some(found) = self.unanswered.get(process) {
            kept_by.push(format!(
                "it does not answer: {} has waited for {:.0} s for a lock that it holds",
                found.call,
                found.waited.as_secs_f64()
            ));
        }
        if status.thp_disabled {
            kept_by.push("it was told PR_SET_THP_DISABLE and can't have huge pages".to_owned());
        }
        if let Err(hold) = self.guard.may_promote(process, 0) {
            kept_by.push(hold.to_string());
        }
        kept_by.extend(self.policy.explain_process(process));
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
                "calls into processes took long or no huge page could be had: promotion pauses {:.1} s more",
                left.as_secs_f64()
            ));
        }
        kept_by
    }

    pub(super) fn state_of(
        &self,
        kept: &Kept,
        sample: &RegionSample,
        now: Duration,
    ) -> RegionState {
        let (process, region) = (kept.sample.process, sample.region);
        if kept.is_huge(sample) {
            RegionState::Huge
        } else if !self.recovered.may_promote(process, region) {
            RegionState::Recovered
        } else if let Some(until) = self.cooldown.until(process, region, now) {
            RegionState::CoolingDown {
                remaining_s: (until - now).as_secs_f64(),
                errno: None,
            }
        } else if let Some((pages, until)) = self.shared.passed_over(process, region, now) {
            RegionState::Shared {
                pages,
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
        let kept = self.viewing.samples.get(&process)?;
        let Kept { at, sample, .. } = kept;
        let mut status = SampleStatus {
            age_s: now.saturating_sub(*at).as_secs_f64(),
            source: sample.source,
            accessed_pages: sample.regions.iter().map(|r| u64::from(r.accessed)).sum(),
            regions: sample.regions.len() as u64,
            huge: 0,
            candidates: 0,
            cooling_down: 0,
            shared: 0,
            recovered: 0,
            not_accessed: 0,
        };
        for region in &sample.regions {
            let count = match self.state_of(kept, region, now) {
                RegionState::Huge => &mut status.huge,
                RegionState::Candidate => &mut status.candidates,
                RegionState::CoolingDown { .. } => &mut status.cooling_down,
                RegionState::Shared { .. } => &mut status.shared,
                RegionState::Recovered => &mut status.recovered,
                _ => &mut status.not_accessed,
            };
            *count += 1;
        }
        Some(status)
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

    /// Why the kernel refused a region the last time, by the error's name.
    fn refusal(&self, process: ProcessId, region: RegionAddr) -> Option<String> {
        let mut newest_first = self.journal.entries().rev();
        newest_first.find_map(|entry| match entry.event {
            Event::Refused {
                process: whose,
                region: which,
                errno,
            } if whose == process && which == region => Some(errno.to_string()),
            _ => None,
        })
    }

    /// Since when the journal has everything.
    fn remembered_since_s(&self) -> f64 {
        let kept = self.journal.entries().len() as u64;
        let oldest = self.journal.entries().next();
        let oldest = oldest.filter(|_| kept < self.journal.written());
        oldest.map_or(0.0, |entry| entry.at.as_secs_f64())
    }

    fn pace_of(&self, process: ProcessId) -> Pace {
        let (_, mut each) = self.journal.pace(self.machine.now());
        each.remove(&process).unwrap_or_default()
    }
}
