//! Explains the treatment of a process or of a region of it.

use super::manager_view::latest_entries;
use super::region_state::region_promotion_state;
use super::{
    BudgetWaitStatus, Explanation, FileMapperView, JournalEntryView, LastSampleSummary,
    ManagerView, ProcessExplanation, ProcessStatus, RegionExplanation, RegionPromotionState,
    SharedMemoryExplanation,
};
use hawkeye_manager::{
    BudgetWait, Event, Journal, JournalEntry, LastSample, Machine, Manager,
    PromotionAndRecoveryRates, WaitingWork,
};
use hawkeye_policy::access_map::bucket_of_coverage;
use hawkeye_policy::{CoverageSource, FileRegion, HeldState, ProcessId, RegionAddr};
use std::iter;

/// Entries of the journal in an explanation at most.
const LATEST: usize = 10;
/// Processes that map a part of a file, in an explanation at most.
const MOST_MAPPERS: usize = 8;

impl ManagerView {
    /// Explains the treatment of a process, or of the region at an address of it.
    pub fn explain_process_or_region<M: Machine>(
        &mut self,
        manager: &mut Manager<M>,
        pid: u32,
        address: Option<u64>,
    ) -> Explanation {
        let Some(&process) = manager.processes().current.iter().find(|p| p.pid == pid) else {
            let unknown = || format!("process {pid} is not under management");
            let why = manager.machine().why_not_managed(pid).unwrap_or_else(unknown);
            return Explanation::NotManaged { pid, why };
        };
        match address {
            None => Explanation::Process(Box::new(self.explain_process(manager, process))),
            Some(address) => {
                let region = RegionAddr::containing(address);
                Explanation::Region(Box::new(self.explain_region(manager, process, region)))
            }
        }
    }

    fn explain_process<M: Machine>(
        &mut self,
        manager: &Manager<M>,
        process: ProcessId,
    ) -> ProcessExplanation {
        let status = self.process_status_now(manager, process);
        let sample = last_sample_summary(manager, process);
        let (mut kept_by, waits) = promotion_obstacles_and_waits(manager, process, &status);
        let none = "it has no accessed region under base pages that may be promoted now";
        // The samples are shown above.
        let decided = |event: &Event| {
            event.process() == Some(process) && !matches!(event, Event::Sampled { .. })
        };
        let by_sample = match sample {
            _ if !status.terms.promotes || status.thp_disabled => None,
            None => (!was_sampled(manager, process)).then_some("it has not been sampled yet"),
            Some(it) if it.regions == 0 => Some("it has no memory that can become huge"),
            Some(it) if it.regions == it.huge => Some("all of it is huge already"),
            Some(it) => (it.candidates == 0).then_some(none),
        };
        kept_by.extend(by_sample.map(str::to_owned));
        ProcessExplanation {
            process: status,
            sample,
            kept_by,
            waits,
            latest: latest_entries(manager.journal(), LATEST, decided, journal_entry_view),
        }
    }

    fn process_status_now<M: Machine>(
        &mut self,
        manager: &Manager<M>,
        process: ProcessId,
    ) -> ProcessStatus {
        let pace = recent_rates_of_process(manager, process);
        let bloat = manager.bloat().bloat_totals(process, manager.machine().now());
        self.process_status(manager, process, pace, bloat)
    }

    fn explain_region<M: Machine>(
        &mut self,
        manager: &mut Manager<M>,
        process: ProcessId,
        region: RegionAddr,
    ) -> RegionExplanation {
        let excluded = manager.machine_mut().why_region_excluded(process, region);
        let manager = &*manager;
        let journal = manager.journal();
        let now = manager.machine().now();
        let figures = manager.last_samples().figures(process);
        let seen = manager.last_samples().sample(process);
        let found = seen.and_then(|seen| Some((seen, *seen.region(region)?)));
        let sample = found.map(|(_, sample)| sample);
        let of_region = |event: &Event| is_event_of_region(event, process, region);
        let mut state = match (excluded, found) {
            (Some(why), _) => RegionPromotionState::Excluded { why },
            (None, Some((seen, sample))) => {
                region_promotion_state(&manager.limits().regions, seen, &sample, now)
            }
            (None, None) => RegionPromotionState::NotSampled,
        };
        if let RegionPromotionState::CoolingDown { errno, .. } = &mut state {
            *errno = last_refusal_errno(journal, process, region);
        }
        // Without access figures `accessed` only repeats the present pages.
        let accesses = seen.is_some_and(|seen| seen.sample.source != CoverageSource::Population);
        let bucket = sample
            .filter(|sample| accesses && state != RegionPromotionState::Huge && !sample.is_huge());
        let waiting = manager.policy().explain_waiting_region(process, region);
        let status = self.process_status_now(manager, process);
        let (mut kept_by, waits) = promotion_obstacles_and_waits(manager, process, &status);
        kept_by.extend(waiting.as_ref().and_then(|it| it.passed_over.clone()));
        let mut recovery = Vec::new();
        let hold = manager.bloat().hold_of_region(process, region, now);
        match hold.map(|hold| (hold.state, hold.explain(now))) {
            Some((HeldState::Split, why)) => kept_by.push(why),
            Some((HeldState::Huge, why)) => recovery.push(why),
            None => {}
        }
        recovery.extend(recovery_figures(manager, process, region));
        RegionExplanation {
            uptime_s: now.as_secs_f64(),
            start: region.start(),
            end: region.end(),
            age_s: figures.map(|figures| now.saturating_sub(figures.at).as_secs_f64()),
            sample,
            shared_memory: sample
                .and_then(|sample| sample.file)
                .map(|file| explain_shared_memory(manager, process, file)),
            state,
            bucket: bucket.map(|sample| bucket_of_coverage(sample.accessed)),
            waiting: waiting.as_ref().map(|it| it.reason.to_string()),
            ahead: waiting.as_ref().map(|it| it.ahead),
            kept_by,
            waits,
            recovery,
            process: status,
            latest: latest_entries(journal, LATEST, of_region, journal_entry_view),
            remembered_since_s: journal_start_s(journal),
        }
    }
}

fn explain_shared_memory(
    manager: &Manager<impl Machine>,
    process: ProcessId,
    file: FileRegion,
) -> SharedMemoryExplanation {
    let mappers = manager.last_samples().mappers_of_file_region(file);
    let view = |process: ProcessId| FileMapperView {
        pid: process.pid,
        name: manager.machine().describe(process).name,
    };
    let others = mappers.iter().copied().filter(|mapper| *mapper != process);
    SharedMemoryExplanation {
        file,
        file_name: None,
        mapper_count: mappers.len(),
        mappers: iter::once(process).chain(others).take(MOST_MAPPERS).map(view).collect(),
    }
}

/// What a split of a huge page would give back and cost.
fn recovery_figures(
    manager: &Manager<impl Machine>,
    process: ProcessId,
    region: RegionAddr,
) -> Option<String> {
    let bloat = manager.bloat().huge_page_bloat(process, region, manager.machine().now())?;
    let unused = format!("a split would give {} KiB back", bloat.unused_bytes >> 10);
    let cost = bloat.walks_per_s.map(|walks| format!(" and cost about {walks:.0} page walks/s"));
    let refilled = manager.bloat().refilled_share(process);
    let often = (refilled >= 0.1).then(|| {
        let percent = refilled * 100.0;
        format!("; its process soon takes {percent:.0} % of such memory again")
    });
    Some(unused + &cost.unwrap_or_default() + &often.unwrap_or_default())
}

/// What prevents promotion in a process, and the budgets that hold back other work.
fn promotion_obstacles_and_waits(
    manager: &Manager<impl Machine>,
    process: ProcessId,
    status: &ProcessStatus,
) -> (Vec<String>, Vec<String>) {
    let mut kept_by = Vec::new();
    if manager.is_paused() {
        kept_by.push("management is paused; `hawkeye resume` resumes it".to_owned());
    }
    if let Some(found) = manager.processes().unresponsive.get(&process) {
        let (call, s) = (&found.call, found.waited.as_secs_f64());
        let waited = format!("{call} has waited {s:.0} s for a lock that the process holds");
        kept_by.push(format!("it does not answer: {waited}"));
    }
    if status.thp_disabled {
        kept_by.push("huge pages are disabled for it (PR_SET_THP_DISABLE)".to_owned());
    }
    if !status.terms.promotes {
        let guard = "its profile is guard: bloat is recovered, and nothing is promoted";
        kept_by.push(guard.to_owned());
    }
    if let Err(hold) = manager.memory().guard.may_promote(process, 0) {
        kept_by.push(hold.to_string());
    }
    kept_by.extend(manager.policy().why_process_not_promoted(process));
    let huge = &manager.limits().regions.huge;
    if let Some((most, used)) = huge.limit_and_use_of_rule(process) {
        if !huge.allows_another_huge_page(process) {
            let (most, used) = (most >> 20, used >> 20);
            kept_by.push(format!(
                "its rule allows {most} MiB of huge pages, and {used} MiB are in use"
            ));
        }
    }
    let (kept_by_budgets, waits) = budget_waits_of_process(manager, process);
    kept_by.extend(kept_by_budgets);
    (kept_by, waits)
}

/// The budgets that hold back the promotion of a process, and those that hold back other work.
fn budget_waits_of_process(
    manager: &Manager<impl Machine>,
    process: ProcessId,
) -> (Vec<String>, Vec<String>) {
    let now = manager.machine().now();
    let (promotion, other): (Vec<_>, Vec<_>) =
        manager.budget_waits().partition(|wait| match wait.budget.work() {
            WaitingWork::Promotion => true,
            WaitingWork::Recovery | WaitingWork::Prefault => false,
            // It is promoted after its first sample.
            WaitingWork::Sampling | WaitingWork::EarlySampling => !was_sampled(manager, process),
        });
    let text = |wait: BudgetWait| BudgetWaitStatus::new(&wait, now).to_string();
    (promotion.into_iter().map(text).collect(), other.into_iter().map(text).collect())
}

fn was_sampled(manager: &Manager<impl Machine>, process: ProcessId) -> bool {
    manager.last_samples().figures(process).is_some()
}

fn last_sample_summary<M: Machine>(
    manager: &Manager<M>,
    process: ProcessId,
) -> Option<LastSampleSummary> {
    let now = manager.machine().now();
    let seen = manager.last_samples().sample(process)?;
    let LastSample { at, sample, .. } = seen;
    let mut status = LastSampleSummary {
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
        let count = match region_promotion_state(&manager.limits().regions, seen, region, now) {
            RegionPromotionState::Huge => &mut status.huge,
            RegionPromotionState::Candidate => &mut status.candidates,
            RegionPromotionState::CoolingDown { .. } => &mut status.cooling_down,
            RegionPromotionState::Shared { .. } => &mut status.shared,
            RegionPromotionState::Recovered => &mut status.recovered,
            _ => &mut status.not_accessed,
        };
        *count += 1;
    }
    Some(status)
}

fn journal_entry_view(entry: &JournalEntry) -> JournalEntryView {
    JournalEntryView {
        at_s: entry.at.as_secs_f64(),
        region: entry.event.region().map(RegionAddr::start),
        text: entry.event.to_string(),
    }
}

fn is_event_of_region(event: &Event, process: ProcessId, region: RegionAddr) -> bool {
    event.process() == Some(process) && event.region() == Some(region)
}

fn last_refusal_errno(journal: &Journal, process: ProcessId, region: RegionAddr) -> Option<String> {
    let newest_first = journal.entries().rev().map(|entry| &entry.event);
    let mut of_region = newest_first.filter(|event| is_event_of_region(event, process, region));
    let last =
        of_region.find(|event| matches!(event, Event::Refused { .. } | Event::FileHoles { .. }));
    match last? {
        Event::Refused { errno, .. } => Some(errno.to_string()),
        // That was no refusal by the kernel.
        _ => None,
    }
}

/// Time from which on the journal is complete, in seconds.
fn journal_start_s(journal: &Journal) -> f64 {
    let kept = journal.entries().len() as u64;
    let oldest = journal.entries().next().filter(|_| kept < journal.written_entries);
    oldest.map_or(0.0, |entry| entry.at.as_secs_f64())
}

fn recent_rates_of_process<M: Machine>(
    manager: &Manager<M>,
    process: ProcessId,
) -> PromotionAndRecoveryRates {
    let (_, mut each) = manager.journal().recent_rates(manager.machine().now());
    each.remove(&process).unwrap_or_default()
}
