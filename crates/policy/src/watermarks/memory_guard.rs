//! The state of memory of the machine and of each cgroup, and its consequences.

mod memory_scope_state;

use super::recovery_timing::{MemoryReadRateLimit, RecoverySpeed, SharedUrgentWorkLimit};
use super::{MemoryScope, MemoryShortage, PromotionBlockReason, WatermarkTable};
use crate::observation::{MemoryState, MemoryUse, ProcessId};
use crate::setting_error::{Setting, SettingError, check_positive_percent};
use memory_scope_state::MemoryScopeState;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Watches the watermarks of the machine and of each cgroup, and memory pressure.
///
/// The machine and each group have a state of their own. Recovery starts when use is over the high
/// watermark, or over an earlier mark while use grows fast. It ends when use is under the low one,
/// or lower in a group that grows very fast. Meanwhile nothing is promoted in them. A group that is
/// no longer reported is forgotten.
#[derive(Clone, Debug)]
pub struct MemoryGuard {
    table: WatermarkTable,
    pressure_limit_percent: f64,
    /// The machine first; empty while the state of memory is not known.
    watched: Vec<MemoryScopeState>,
    /// The last known state, from before memory could not be read.
    last_known: Vec<MemoryScopeState>,
    /// The groups of each process, as indices into `watched`.
    groups: HashMap<ProcessId, Vec<usize>>,
    limits_unknown: HashSet<ProcessId>,
    speed: RecoverySpeed,
    pace: MemoryReadRateLimit,
    /// Of all groups together; `None` before the first assessment.
    urgent_work: Option<SharedUrgentWorkLimit>,
}

/// The groups that pay for urgent work on a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrgentWorkPayers(Vec<usize>);

impl MemoryGuard {
    /// Pressure above which nothing is promoted unless set, in per cent (10).
    pub const DEFAULT_PRESSURE_LIMIT_PERCENT: f64 = 10.0;

    /// Uses `watermarks`, and holds promotion while PSI "some avg10" is more than
    /// `pressure_limit_percent` (over 0, at most 100; 100: never). Holds until the first
    /// assessment.
    pub fn new(
        watermarks: impl Into<WatermarkTable>,
        pressure_limit_percent: f64,
    ) -> Result<Self, SettingError> {
        let limit = check_positive_percent(pressure_limit_percent, Setting::PressureLimit)?;
        Ok(Self {
            table: watermarks.into(),
            pressure_limit_percent: limit,
            watched: Vec::new(),
            last_known: Vec::new(),
            groups: HashMap::new(),
            limits_unknown: HashSet::new(),
            speed: RecoverySpeed::default(),
            pace: MemoryReadRateLimit::default(),
            urgent_work: None,
        })
    }

    /// How much memory the process may be given ahead of its demand, in bytes. The limit is the
    /// nearest mark at which recovery ends, of its groups or of the machine: what is above it
    /// belongs to the program's own demand. Memory given up to the high one would be recovered at
    /// the program's next allocation, and then given again.
    pub fn room_bytes_for_process(&self, process: ProcessId) -> u64 {
        if self.limits_unknown.contains(&process) {
            return 0;
        }
        let room = |watched: &MemoryScopeState| {
            watched.room_bytes_under(watched.end_percent(), self.pressure_limit_percent)
        };
        self.scope_states_of_process(process).map(room).min().unwrap_or(0)
    }

    /// Bytes up to the high watermark of the whole machine; 0 while memory is short or its state is
    /// unknown.
    pub fn machine_room_bytes(&self) -> u64 {
        self.watched.first().map_or(0, |machine| {
            machine.room_bytes_under(machine.marks.high_percent(), self.pressure_limit_percent)
        })
    }

    /// Changes the watermarks from the next assessment on. A recovery under way goes on until use
    /// is under the new low mark.
    pub fn set_watermarks(&mut self, watermarks: impl Into<WatermarkTable>) {
        self.table = watermarks.into();
    }

    /// Takes in the state of memory at `now`. The error says why nothing at all is promoted. A
    /// process in a group that is short of memory is held separately, by [`Self::may_promote`].
    pub fn assess(
        &mut self,
        now: Duration,
        state: &MemoryState,
    ) -> Result<(), PromotionBlockReason> {
        self.urgent_work
            .get_or_insert_with(|| SharedUrgentWorkLimit::new(state.machine.total_bytes))
            .update(now);
        let mut before = std::mem::take(&mut self.watched);
        before.append(&mut self.last_known);
        let mut known: HashMap<MemoryScope, MemoryScopeState> =
            before.into_iter().map(|w| (w.scope.clone(), w)).collect();
        self.groups.clear();
        let mut watch = |scope: MemoryScope, usage, pressure_percent, members: &[ProcessId]| {
            let marks = self.table.for_scope(&scope);
            let before = known.remove(&scope);
            let is_new_group = before.is_none() && scope != MemoryScope::Machine;
            let mut watched = before.unwrap_or_else(|| MemoryScopeState::new(scope, marks, usage));
            (watched.marks, watched.pressure_percent) = (marks, pressure_percent);
            watched.set_members(members);
            if watched.record_reading(now, usage, self.speed) || is_new_group {
                self.pace.record_change();
            }
            for member in members {
                self.groups.entry(*member).or_default().push(self.watched.len());
            }
            self.watched.push(watched);
        };
        self.limits_unknown = state.limits_unknown.iter().copied().collect();
        let (machine, pressure_percent) = (state.machine, state.pressure_percent);
        watch(MemoryScope::Machine, machine, pressure_percent, &[]);
        for group in &state.groups {
            let scope = MemoryScope::Group(group.name.clone());
            watch(scope, group.usage, group.pressure_percent, &group.members);
        }
        self.all_promotion_blocked_by().map_or(Ok(()), Err)
    }

    /// Takes in the use of the machine or of one group between assessments (see
    /// [`scopes_due_to_read`](Self::scopes_due_to_read)).
    pub fn record_scope_use(&mut self, now: Duration, scope: &MemoryScope, usage: MemoryUse) {
        let speed = self.speed;
        if let Some(all_groups) = &mut self.urgent_work {
            all_groups.update(now);
        }
        if let Some(watched) = self.watched.iter_mut().find(|w| w.scope == *scope) {
            if watched.record_reading(now, usage, speed) {
                self.pace.record_change();
            }
        }
    }

    /// The use of a group that was due could not be read.
    pub fn record_failed_read(&mut self, now: Duration, scope: &MemoryScope) {
        if let Some(watched) = self.watched.iter_mut().find(|w| w.scope == *scope) {
            watched.record_failed_reading(now);
        }
    }

    /// Adds what a promotion took from memory by `now`, or a recovery gave back (below 0). It
    /// counts until memory is next read.
    pub fn add_used_bytes(&mut self, now: Duration, process: ProcessId, taken_bytes: i64) {
        let groups = self.groups.get(&process).map_or(&[][..], Vec::as_slice);
        for place in std::iter::once(0).chain(groups.iter().copied()) {
            if let Some(watched) = self.watched.get_mut(place) {
                watched.add_used_bytes(now, taken_bytes, self.speed);
            }
        }
    }

    /// A huge page was searched and split in `took`, and gave back `bytes`.
    pub fn record_recovery_speed(&mut self, bytes: u64, took: Duration) {
        self.speed.record_recovery(bytes, took);
    }

    /// The state of memory could not be read. Nothing is promoted or recovered until the next
    /// assessment. A recovery that was under way then goes on.
    pub fn mark_memory_unknown(&mut self) {
        self.last_known.append(&mut self.watched);
        self.groups.clear();
    }

    /// Everything to recover from was searched. Where the list of huge pages is up to date,
    /// recovery ends, because the rest is in use. It starts again when memory is over the mark;
    /// until then promotion goes on. Where the list is outdated, recovery goes on. `only_urgent`:
    /// only processes in danger were searched.
    pub fn on_search_exhausted(&mut self, now: Duration, only_urgent: bool) {
        for watched in self.scope_states_to_recover(only_urgent) {
            watched.recovering = watched.is_huge_page_list_outdated(now);
        }
    }

    /// Recovery does not work at all, so it ends. It starts again where memory is over the mark at
    /// the next reading.
    pub fn stop_recovery(&mut self) {
        self.watched.iter_mut().for_each(|watched| watched.recovering = false);
    }

    /// Those recovered from at present. Where the machine is in danger, all work is urgent.
    fn scope_states_to_recover(
        &mut self,
        only_urgent: bool,
    ) -> impl Iterator<Item = &mut MemoryScopeState> {
        let only_urgent = only_urgent && !self.is_machine_in_danger();
        let all_groups = self.urgent_work;
        self.watched.iter_mut().filter(move |watched| {
            watched.is_recovered_now() && (!only_urgent || watched.is_urgent(all_groups))
        })
    }

    fn is_urgent(&self, watched: &MemoryScopeState) -> bool {
        watched.is_urgent(self.urgent_work)
    }

    fn promotion_block(&self, watched: &MemoryScopeState) -> Option<PromotionBlockReason> {
        watched.promotion_block(self.pressure_limit_percent, self.urgent_work)
    }

    fn is_machine_in_danger(&self) -> bool {
        self.watched.first().is_some_and(MemoryScopeState::will_be_full_within_seconds)
    }

    /// The processes of which huge pages should be listed now, chosen from the given ones. Memory
    /// must be recovered from them, and new huge pages may have appeared. They count as listed from
    /// then on. `only_urgent`: only processes in danger.
    pub fn take_processes_due_for_listing(
        &mut self,
        now: Duration,
        everyone: &[ProcessId],
        only_urgent: bool,
    ) -> Vec<ProcessId> {
        let mut all = false;
        let mut members = Vec::new();
        for watched in self.scope_states_to_recover(only_urgent) {
            if watched.is_huge_page_list_outdated(now) {
                watched.mark_huge_pages_listed(now);
                watched.being_listed = true;
                all |= watched.scope == MemoryScope::Machine;
                members.extend_from_slice(&watched.members);
            }
        }
        let wanted = |process: &&ProcessId| all || members.contains(process);
        everyone.iter().filter(wanted).copied().collect()
    }

    /// The listing of the processes that were due has ended. It may have taken longer than a list
    /// stays valid, so it counts from its end.
    pub fn on_listing_done(&mut self, now: Duration) {
        for watched in &mut self.watched {
            if std::mem::take(&mut watched.being_listed) {
                watched.mark_huge_pages_listed(now);
            }
        }
    }

    /// The huge pages of all processes except `unread` were just listed.
    pub fn record_huge_pages_listed(&mut self, now: Duration, unread: &[ProcessId]) {
        let unread: HashSet<&ProcessId> = unread.iter().collect();
        for watched in &mut self.watched {
            let is_complete = match watched.scope {
                MemoryScope::Machine => unread.is_empty(),
                MemoryScope::Group(_) => !watched.members.iter().any(|it| unread.contains(it)),
            };
            if is_complete {
                watched.mark_huge_pages_listed(now);
            }
        }
    }

    /// Why nothing at all is promoted now, if so.
    pub fn all_promotion_blocked_by(&self) -> Option<PromotionBlockReason> {
        match self.watched.first() {
            None => Some(PromotionBlockReason::Unknown),
            Some(machine) => self.promotion_block(machine),
        }
    }

    /// Whether a region of this process may be promoted, by the last assessment, if that takes
    /// `bytes` more memory.
    pub fn may_promote(&self, process: ProcessId, bytes: u64) -> Result<(), PromotionBlockReason> {
        let fullest = self.group_states_of_process(process).max_by(|a, b| {
            let by_recovery = a.recovering.cmp(&b.recovering);
            by_recovery.then(a.usage.used_percent().total_cmp(&b.usage.used_percent()))
        });
        let mut groups = fullest.into_iter().chain(self.group_states_of_process(process));
        let mut scopes = self.scope_states_of_process(process);
        let unknown = self.limits_unknown.contains(&process);
        self.all_promotion_blocked_by()
            .or_else(|| unknown.then_some(PromotionBlockReason::LimitsUnknown))
            .or_else(|| groups.find_map(|w| self.promotion_block(w)))
            .or_else(|| scopes.find_map(|w| w.promotion_block_after_adding(bytes)))
            .map_or(Ok(()), Err)
    }

    /// Those of `everyone` of which nothing may be promoted, however little memory that takes.
    pub fn held_processes(&self, everyone: &[ProcessId]) -> HashSet<ProcessId> {
        let holds = |it: &&MemoryScopeState| it.holds_all_promotion(self.pressure_limit_percent);
        let Some((_, groups)) = self.watched.split_first().filter(|(it, _)| !holds(it)) else {
            return everyone.iter().copied().collect();
        };
        let mut held = self.limits_unknown.clone();
        held.extend(groups.iter().filter(holds).flat_map(|it| &it.members));
        held
    }

    /// Growth of use of the machine or of a cgroup, in bytes per second; 0 where it is not watched.
    pub fn growth_bytes_per_s(&self, scope: &MemoryScope) -> u64 {
        let found = self.watched.iter().find(|watched| watched.scope == *scope);
        found.map_or(0, MemoryScopeState::growth_bytes_per_s)
    }

    /// Whether the machine and each group use less than at their low watermarks, and none is
    /// recovered from.
    pub fn is_below_all_low_marks(&self) -> bool {
        let is_below = |it: &MemoryScopeState| {
            !it.recovering && it.usage.used_percent() < it.marks.low_percent()
        };
        !self.watched.is_empty() && self.watched.iter().all(is_below)
    }

    /// Whether memory is recovered from any process, by the last assessment. A group that has used
    /// up its CPU time for urgent work does not count until it has rested.
    pub fn is_recovering(&self) -> bool {
        self.watched.iter().any(MemoryScopeState::is_recovered_now)
    }

    /// The shortage for which this process is recovered from; `None` when it is left alone. Its
    /// group comes before the machine, and of nested groups the fullest one.
    pub fn shortage_for_process(&self, process: ProcessId) -> Option<MemoryShortage> {
        let machine = self.watched.first().and_then(MemoryScopeState::shortage);
        self.group_states_of_process(process)
            .filter_map(MemoryScopeState::shortage)
            .max_by(|a, b| a.used_percent.total_cmp(&b.used_percent))
            .or(machine)
    }

    /// Whether memory is recovered from this process.
    pub fn is_recovering_from(&self, process: ProcessId) -> bool {
        self.shortage_for_process(process).is_some()
    }

    /// Whether the machine or a group would be out of memory within seconds at its present growth.
    /// Its recovery then comes before all else. A group does not count while the CPU time for such
    /// recovery is used up.
    pub fn will_be_full_within_seconds(&self) -> bool {
        self.watched.iter().any(|watched| self.is_urgent(watched))
    }

    /// Whether that is so of a group.
    pub fn is_a_group_in_danger(&self) -> bool {
        self.watched.iter().skip(1).any(|watched| self.is_urgent(watched))
    }

    /// Whether that is so of the machine or of a group of this process.
    pub fn is_urgent_for_process(&self, process: ProcessId) -> bool {
        let mut scopes = self.scope_states_of_process(process);
        scopes.any(|watched| self.is_urgent(watched))
    }

    /// The groups that pay for recovery of a process because they are in danger; `None`: the
    /// manager's own budget does. Valid until the next assessment.
    pub fn payers_of_urgent_work(&self, process: ProcessId) -> Option<UrgentWorkPayers> {
        if self.is_machine_in_danger() {
            return None;
        }
        let urgent = |place: &usize| self.is_urgent(self.watched.get(*place)?).then_some(*place);
        let payers: Vec<usize> = self.groups.get(&process)?.iter().filter_map(urgent).collect();
        (!payers.is_empty()).then_some(UrgentWorkPayers(payers))
    }

    /// Recovery took `cpu` for groups in danger. Each may use a quarter of a core, and at once 5 s,
    /// or 1 s for each GiB of its limit. Then nothing is recovered from it until it may use 1 s.
    /// All groups share half of a core, and at once 10 s, or 1 s for each GiB of the machine. Where
    /// that is used up, groups that had less than 1 s share a tenth of a core, and at once 5 s.
    pub fn record_urgent_work(&mut self, now: Duration, payers: &UrgentWorkPayers, cpu: Duration) {
        if let Some(all_groups) = &mut self.urgent_work {
            all_groups.record_work(now, cpu);
        }
        for place in &payers.0 {
            if let Some(watched) = self.watched.get_mut(*place) {
                watched.record_urgent_work(now, cpu);
            }
        }
    }

    /// The machine and groups to read by `now`, between assessments.
    pub fn scopes_due_to_read(&self, now: Duration) -> Vec<MemoryScope> {
        let due = self.watched.iter().filter(|w| self.next_read_of_scope_at(w) <= now);
        due.map(|w| w.scope.clone()).collect()
    }

    /// When one should be read next; `None`: at the next assessment.
    pub fn next_memory_read_at(&self) -> Option<Duration> {
        self.watched.iter().map(|w| self.next_read_of_scope_at(w)).min()
    }

    /// CPU time that the reads that were due at `now` took.
    pub fn record_read_cost(&mut self, now: Duration, cost: Duration) {
        match now < self.pace.ready_at() {
            true => self.pace.record_cost_in_pause(now, cost),
            false => self.pace.record_cost(now, cost),
        }
    }

    fn next_read_of_scope_at(&self, watched: &MemoryScopeState) -> Duration {
        let affordable_at = match watched.is_filling_fast() {
            true => self.pace.ready_at_in_fast_fill(),
            false => self.pace.ready_at(),
        };
        watched.wanted_read_at().max(affordable_at)
    }

    fn group_states_of_process(
        &self,
        process: ProcessId,
    ) -> impl Iterator<Item = &MemoryScopeState> {
        let places = self.groups.get(&process).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| self.watched.get(*place))
    }

    /// The machine, which comes first, and the groups of a process.
    fn scope_states_of_process(
        &self,
        process: ProcessId,
    ) -> impl Iterator<Item = &MemoryScopeState> {
        self.watched.iter().take(1).chain(self.group_states_of_process(process))
    }
}

#[cfg(test)]
mod tests;
