//! The state of management.

use super::region_state::region_promotion_state;
use super::{
    BudgetWaitStatus, CgroupMemoryStatus, DecisionView, HugePageReserveStatus, MemoryStatus,
    ProcessStatus, RegionPromotionState,
};
use hawkeye_manager::{
    Event, Journal, JournalEntry, JournalTotals, Machine, Manager, PromotionAndRecoveryRates,
    WaitingWork,
};
use hawkeye_policy::{
    BloatTotals, CgroupMemory, HUGE_PAGE_BYTES, MemoryScope, ProcessId, RegionSample,
    SampledMemory, SharedMemoryTotals, gain_percent_if_all_huge,
};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManagerStatus {
    pub version: String,
    pub policy: String,
    pub uptime_s: f64,
    pub paused: bool,
    /// Why nothing is promoted at the moment, as a sentence; `None`: promotion is not held.
    pub held: Option<String>,
    pub budget_waits: Vec<BudgetWaitStatus>,
    pub memory: Option<MemoryStatus>,
    /// Shared memory that is managed, as of the last samples: each part of a file once.
    pub shared_memory: SharedMemoryTotals,
    /// The manager's own CPU time over the last minute, in per cent of one core. In the first
    /// minute: over the time since management began.
    pub manager_cpu_percent: f64,
    /// The part of it that the CPU budget paid. Savings of promotions and groups in danger paid the
    /// rest.
    pub budget_cpu_percent: f64,
    pub longest_call_ms: f64,
    pub totals: JournalTotals,
    pub reserve: HugePageReserveStatus,
    pub pace: PromotionAndRecoveryRates,
    pub managed: usize,
    /// Of these, processes that do not answer calls at the moment.
    pub not_answering: usize,
    /// The largest of them ([`ManagerStatus::MOST_PROCESSES`] at most), by resident memory.
    pub processes: Vec<ProcessStatus>,
    /// The latest decisions ([`ManagerStatus::MOST_DECISIONS`] at most), oldest first.
    pub latest: Vec<DecisionView>,
}

impl ManagerStatus {
    pub const MOST_PROCESSES: usize = 256;
    pub const MOST_DECISIONS: usize = 16;

    /// How promotion goes on while memory does not hold it. `budget_waits` names the budget.
    pub fn promotion_pace_text(&self) -> &'static str {
        match self.budget_waits.iter().any(|wait| wait.work == WaitingWork::Promotion) {
            true => "waits for a budget",
            false => "active",
        }
    }
}

#[derive(Default)]
pub struct ManagerView {
    figures: HashMap<ProcessId, CachedSampleFigures>,
}

/// Figures of a process from its last sample.
#[derive(Clone, Copy)]
struct CachedSampleFigures {
    reckoned_at: Duration,
    sampled_at: Duration,
    /// What it would save if everything that may be promoted were huge.
    gain_percent: Option<f64>,
    shared: SampledMemory,
}

impl CachedSampleFigures {
    /// Figures are reused for this time, because a large process has 100,000 regions to visit.
    const HOLDS: Duration = Duration::from_secs(10);

    fn is_valid(&self, sampled_at: Duration, now: Duration) -> bool {
        self.sampled_at == sampled_at && now.saturating_sub(self.reckoned_at) < Self::HOLDS
    }
}

impl ManagerView {
    pub fn manager_status<M: Machine>(&mut self, manager: &Manager<M>) -> ManagerStatus {
        let now = manager.machine().now();
        let seen = manager.last_samples();
        let sampled = |process: &ProcessId| seen.sample(*process).is_some();
        self.figures.retain(|process, _| sampled(process));
        let mut largest = manager.processes().current.to_vec();
        let rss = |process| seen.footprint(process).unwrap_or_default().rss_bytes;
        largest.sort_by_key(|process| Reverse(rss(*process)));
        largest.truncate(ManagerStatus::MOST_PROCESSES);
        let waits = manager.budget_waits().map(|wait| BudgetWaitStatus::new(&wait, now));
        let (pace, each) = manager.journal().recent_rates(now);
        // Each process once, because it can have 100,000 huge pages, and cgroups are nested.
        let processes = manager.processes().current.iter();
        let bloat: HashMap<ProcessId, BloatTotals> = processes
            .map(|process| (*process, manager.bloat().bloat_totals(*process, now)))
            .collect();
        let status = |process: &ProcessId| {
            let pace = each.get(process).copied().unwrap_or_default();
            let bloat = bloat.get(process).copied().unwrap_or_default();
            self.process_status(manager, *process, pace, bloat)
        };
        ManagerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy: manager.policy().name().to_owned(),
            uptime_s: now.as_secs_f64(),
            paused: manager.is_paused(),
            held: manager.memory().held.as_ref().map(ToString::to_string),
            budget_waits: waits.collect(),
            memory: memory_status(manager, &bloat),
            shared_memory: seen.shared_memory(),
            manager_cpu_percent: manager.limits().all_cpu.percent_of_core(now),
            budget_cpu_percent: manager.limits().cpu.percent_of_core_used_in_minute(now),
            longest_call_ms: manager.machine().management_costs().longest_call.as_secs_f64() * 1e3,
            totals: manager.journal().totals().clone(),
            reserve: huge_page_reserve_status(manager),
            pace,
            managed: manager.processes().current.len(),
            not_answering: manager.processes().unresponsive.len(),
            processes: largest.iter().map(status).collect(),
            latest: latest_decisions(manager),
        }
    }

    pub(super) fn process_status<M: Machine>(
        &mut self,
        manager: &Manager<M>,
        process: ProcessId,
        pace: PromotionAndRecoveryRates,
        bloat: BloatTotals,
    ) -> ProcessStatus {
        let identity = manager.machine().describe(process);
        let seen = manager.last_samples();
        let footprint = seen.footprint(process).unwrap_or_default();
        let sampled = seen.figures(process);
        let done = manager.journal().process_totals(process).cloned().unwrap_or_default();
        let unanswered = manager.processes().unresponsive.get(&process);
        let figures = self.cached_sample_figures(manager, process);
        let shared = figures.map(|figures| figures.shared).unwrap_or_default();
        ProcessStatus {
            pid: process.pid,
            name: identity.name,
            user: identity.user,
            uid: identity.uid,
            cgroup: identity.cgroup,
            unit: identity.unit,
            rss_bytes: footprint.rss_bytes,
            huge_bytes: footprint.huge_bytes,
            overhead: sampled.and_then(|sampled| sampled.overhead),
            shared_bytes: shared.resident_bytes,
            shared_huge_bytes: shared.huge_bytes,
            gain_percent: figures.and_then(|figures| figures.gain_percent),
            bloat_bytes: bloat.unused_bytes,
            never_accessed_huge_bytes: bloat.never_accessed_bytes,
            freed_part_bytes: bloat.freed_part_bytes,
            cpu_cores: sampled.map(|sampled| sampled.cpu_cores),
            promoted: done.promoted,
            split: done.split,
            recovered_bytes: done.recovered_bytes,
            pace,
            refused: done.refused,
            last_reason: done.last_reason.map(|reason| reason.to_string()),
            terms: identity.terms.or(sampled.map(|sampled| sampled.terms)).unwrap_or_default(),
            rule_name: identity.rule_name,
            profile_request: identity.profile_request,
            not_answering_s: unanswered.map(|found| found.waited.as_secs_f64()),
            thp_disabled: identity.thp_disabled,
            refused_bytes: identity.refused_bytes,
        }
    }

    /// May be some seconds old.
    fn cached_sample_figures(
        &mut self,
        manager: &Manager<impl Machine>,
        process: ProcessId,
    ) -> Option<CachedSampleFigures> {
        let seen = manager.last_samples().sample(process)?;
        let now = manager.machine().now();
        let known = self.figures.get(&process).filter(|figures| figures.is_valid(seen.at, now));
        if known.is_some() {
            return known.copied();
        }
        let promotable = |region: &RegionSample| {
            region_promotion_state(&manager.limits().regions, seen, region, now)
                == RegionPromotionState::Candidate
        };
        let shared = seen.sample.regions.iter().filter(|region| region.file.is_some());
        let figures = CachedSampleFigures {
            reckoned_at: now,
            sampled_at: seen.at,
            gain_percent: gain_percent_if_all_huge(&seen.sample, promotable),
            shared: SampledMemory::of_regions(shared),
        };
        self.figures.insert(process, figures);
        Some(figures)
    }
}

fn huge_page_reserve_status<M: Machine>(manager: &Manager<M>) -> HugePageReserveStatus {
    let state = manager.machine().reserve_state();
    HugePageReserveStatus {
        held_bytes: u64::from(state.held) * HUGE_PAGE_BYTES,
        filled: state.filled,
        failed: state.failed,
        served: state.served,
        fill_cpu_s: state.fill_cpu.as_secs_f64(),
        pays: manager.memory().reserve.is_worthwhile(),
    }
}

fn latest_decisions<M: Machine>(manager: &Manager<M>) -> Vec<DecisionView> {
    let decided = |event: &Event| !matches!(event, Event::Sampled { .. });
    let view = |entry: &JournalEntry| {
        let process = entry.event.process();
        let name = process.map(|process| manager.machine().describe(process).name);
        DecisionView {
            at_s: entry.at.as_secs_f64(),
            pid: process.map(|process| process.pid),
            name: name.filter(|name| !name.is_empty()),
            text: entry.event.to_string(),
        }
    };
    latest_entries(manager.journal(), ManagerStatus::MOST_DECISIONS, decided, view)
}

fn memory_status<M: Machine>(
    manager: &Manager<M>,
    bloat: &HashMap<ProcessId, BloatTotals>,
) -> Option<MemoryStatus> {
    let memory = manager.memory().state.as_ref()?;
    let guard = &manager.memory().guard;
    let groups = fullest_first(&memory.groups).into_iter().map(|group| CgroupMemoryStatus {
        name: group.name.clone(),
        used_bytes: group.usage.used_bytes,
        total_bytes: group.usage.total_bytes,
        pressure_percent: group.pressure_percent,
        processes: group.members.len(),
        growth_bytes_per_s: guard.growth_bytes_per_s(&MemoryScope::Group(group.name.clone())),
        bloat: group.members.iter().filter_map(|it| bloat.get(it)).copied().sum(),
    });
    let watermarks = manager.settings().watermarks;
    Some(MemoryStatus {
        used_bytes: memory.machine.used_bytes,
        total_bytes: memory.machine.total_bytes,
        high_percent: watermarks.high_percent(),
        low_percent: watermarks.low_percent(),
        recovering: guard.is_recovering(),
        pressure_percent: memory.pressure_percent,
        fmfi: memory.fmfi,
        growth_bytes_per_s: guard.growth_bytes_per_s(&MemoryScope::Machine),
        bloat: bloat.values().copied().sum(),
        groups: groups.collect(),
    })
}

/// Views that show only some cgroups take the first ones, and those near their limits matter most.
fn fullest_first(groups: &[CgroupMemory]) -> Vec<&CgroupMemory> {
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by(|a, b| {
        let by_use = b.usage.used_percent().total_cmp(&a.usage.used_percent());
        by_use.then_with(|| a.name.cmp(&b.name))
    });
    groups
}

/// The latest entries that `keep` selects, oldest first.
pub(super) fn latest_entries<T>(
    journal: &Journal,
    most: usize,
    keep: impl Fn(&Event) -> bool,
    view: impl Fn(&JournalEntry) -> T,
) -> Vec<T> {
    let newest_first = journal.entries().rev().filter(|entry| keep(&entry.event));
    let mut latest: Vec<T> = newest_first.take(most).map(view).collect();
    latest.reverse();
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_computed_every_few_seconds_and_again_for_a_new_sample() {
        let at = Duration::from_secs;
        let figures = CachedSampleFigures {
            reckoned_at: at(2),
            sampled_at: at(1),
            gain_percent: Some(10.0),
            shared: SampledMemory::default(),
        };
        assert!(figures.is_valid(at(1), at(11)));
        assert!(!figures.is_valid(at(1), at(12)));
        assert!(!figures.is_valid(at(3), at(3)), "a new sample");
    }
}
