//! The state of memory of the machine and of each cgroup, and its consequences.

use super::recovery_timing::{
    MemoryGrowth, MemoryReadRateLimit, RecoverySpeed, SharedUrgentWorkLimit, UrgentWorkLimit,
    recovery_start_percent, time_to_full, wanted_read_interval,
};
use super::{MemoryScope, MemoryShortage, PromotionBlockReason, WatermarkTable, Watermarks};
use crate::observation::{MemoryState, MemoryUse, ProcessId};
use crate::saturating_cast::u64_from_f64;
use crate::setting_error::{Setting, SettingError, check_positive_percent};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Watches the watermarks of the machine and of each cgroup, and memory pressure.
///
/// The machine and each group have a state of their own. Recovery starts when use is over the high
/// watermark, or over an earlier mark while use grows fast. It ends when use is under the low one.
/// Meanwhile nothing is promoted in them. A group that is no longer reported is forgotten.
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

/// Growth of the machine's use from which on memory is read as often as where a cgroup's use
/// changes, in bytes per second.
const GROWING_FAST: f64 = 64e6;
/// Growth of a fast fill, in bytes per second: 20 MB between two reads otherwise.
const FAST_FILL: f64 = 5e8;
/// The shortest time after which memory is read again because recovery is about to start.
const SOONEST_READ: Duration = Duration::from_millis(10);
/// Huge pages to recover from are listed anew when the list is older than this ...
const LIST_AGE: Duration = Duration::from_secs(10);
/// ... or when this many bytes, or this share of the total, were allocated since.
const LIST_GROWTH: f64 = (32u64 << 20) as f64;
const LIST_GROWTH_SHARE: f64 = 1.0 / 64.0;
/// Memory is in danger when it would be full within this time.
const FULL_SOON: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
struct MemoryScopeState {
    scope: MemoryScope,
    marks: Watermarks,
    usage: MemoryUse,
    pressure_percent: Option<f64>,
    /// Of a group; the machine has all processes.
    members: Vec<ProcessId>,
    growth: MemoryGrowth,
    start_percent: f64,
    recovering: bool,
    read_at: Duration,
    /// When its huge pages were last listed, and total growth until then, in bytes.
    listed: Option<(Duration, f64)>,
    /// Whether a listing of them has begun and not ended.
    being_listed: bool,
    /// Of a group. The machine has no limit, because all programs suffer when it is full.
    urgent_work: UrgentWorkLimit,
    /// Of a group: whether it may use the reserve that groups share.
    recent_urgent_work: UrgentWorkLimit,
}

/// The groups that pay for urgent work on a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrgentWorkPayers(Vec<usize>);

impl MemoryScopeState {
    fn record_reading(&mut self, now: Duration, usage: MemoryUse, speed: RecoverySpeed) {
        if usage.total_bytes != self.usage.total_bytes {
            self.urgent_work.set_group_limit(now, usage.total_bytes);
        }
        self.usage = usage;
        self.read_at = now;
        self.urgent_work.update(now);
        self.recent_urgent_work.update(now);
        self.growth.record_use(now, usage.used_bytes);
        self.update_recovery(speed);
    }

    fn update_recovery(&mut self, speed: RecoverySpeed) {
        let used = self.usage.used_percent();
        self.start_percent = recovery_start_percent(
            self.marks,
            self.usage.total_bytes,
            self.growth.bytes_per_s(),
            speed.bytes_per_s,
        );
        self.recovering =
            used > self.start_percent || (self.recovering && used >= self.marks.low_percent());
    }

    fn add_used_bytes(&mut self, taken_bytes: i64, speed: RecoverySpeed) {
        self.usage.used_bytes = self.usage.used_bytes.saturating_add_signed(taken_bytes);
        self.growth.record_manager_use(taken_bytes);
        self.update_recovery(speed);
    }

    /// Whether it is short of memory, and recovered from at present.
    fn is_recovered_now(&self) -> bool {
        self.recovering && self.urgent_work.rests_until().is_none()
    }

    fn shortage(&self) -> Option<MemoryShortage> {
        self.is_recovered_now().then(|| MemoryShortage {
            used_percent: self.usage.used_percent(),
            start_percent: self.start_percent,
            growth_bytes_per_s: u64_from_f64(self.growth.bytes_per_s()),
        })
    }

    fn record_urgent_work(&mut self, now: Duration, cpu: Duration) {
        self.urgent_work.record_work(now, cpu);
        // Work outside the reserve does not prolong its ten minutes.
        if self.recent_urgent_work.rests_until().is_none() {
            self.recent_urgent_work.record_work(now, cpu);
        }
    }

    /// When it may be urgent again, if the groups in danger have used up the CPU time that they
    /// share. Its recovery goes on like any other meanwhile, in the manager's own budget.
    fn shared_rest_until(&self, all_groups: Option<SharedUrgentWorkLimit>) -> Option<Duration> {
        let may_use_reserve = self.recent_urgent_work.rests_until().is_none();
        let all_groups = all_groups.filter(|_| self.scope != MemoryScope::Machine)?;
        all_groups.rests_until(may_use_reserve)
    }

    fn is_urgent(&self, all_groups: Option<SharedUrgentWorkLimit>) -> bool {
        self.will_be_full_within_seconds() && self.shared_rest_until(all_groups).is_none()
    }

    /// Why nothing in it is promoted, if so.
    fn promotion_block(
        &self,
        limit_percent: f64,
        all_groups: Option<SharedUrgentWorkLimit>,
    ) -> Option<PromotionBlockReason> {
        let scope = self.scope.clone();
        if !self.recovering {
            let pressure_percent = self.pressure_percent.filter(|p| *p > limit_percent)?;
            return Some(PromotionBlockReason::Pressure { scope, pressure_percent, limit_percent });
        }
        let (used_percent, start_percent) = (self.usage.used_percent(), self.start_percent);
        if let Some(until) = self.urgent_work.rests_until() {
            let rests_for_s = until.saturating_sub(self.read_at).as_secs_f64();
            return Some(PromotionBlockReason::RecoveryRests { scope, used_percent, rests_for_s });
        }
        let in_danger = self.will_be_full_within_seconds();
        if let Some(until) = self.shared_rest_until(all_groups).filter(|_| in_danger) {
            let rests_for_s = until.saturating_sub(self.read_at).as_secs_f64();
            return Some(PromotionBlockReason::NotUrgent { scope, used_percent, rests_for_s });
        }
        let (high_percent, low_percent) = (self.marks.high_percent(), self.marks.low_percent());
        Some(if used_percent > high_percent {
            PromotionBlockReason::AboveHigh { scope, used_percent, high_percent }
        } else if used_percent > start_percent {
            PromotionBlockReason::FillingUp {
                scope,
                used_percent,
                start_percent,
                growth_bytes_per_s: u64_from_f64(self.growth.bytes_per_s()),
            }
        } else {
            PromotionBlockReason::Recovering { scope, used_percent, low_percent }
        })
    }

    /// Whether nothing in it is promoted, however little memory that takes.
    fn holds_all_promotion(&self, pressure_limit_percent: f64) -> bool {
        let pressed = |percent| percent > pressure_limit_percent;
        self.recovering
            || self.usage.used_percent() > self.start_percent
            || self.pressure_percent.is_some_and(pressed)
    }

    /// Why `bytes` more would be too much, if so.
    fn promotion_block_after_adding(&self, bytes: u64) -> Option<PromotionBlockReason> {
        let with =
            MemoryUse { used_bytes: self.usage.used_bytes.saturating_add(bytes), ..self.usage };
        (with.used_percent() > self.start_percent).then(|| PromotionBlockReason::WouldCross {
            scope: self.scope.clone(),
            used_percent: self.usage.used_percent(),
            bytes,
            start_percent: self.start_percent,
        })
    }

    fn is_huge_page_list_outdated(&self, now: Duration) -> bool {
        let enough = LIST_GROWTH.min(self.usage.total_bytes as f64 * LIST_GROWTH_SHARE);
        self.listed.is_none_or(|(at, grown)| {
            now >= at.saturating_add(LIST_AGE) || self.growth.total_growth_bytes() - grown >= enough
        })
    }

    fn mark_huge_pages_listed(&mut self, now: Duration) {
        self.listed = Some((now, self.growth.total_growth_bytes()));
    }

    /// Memory up to `mark_percent` of the total, in bytes; 0 while memory is short. Growth does not
    /// matter here, because a process that is prefaulted grows with its program.
    fn room_bytes_under(&self, mark_percent: f64, pressure_limit_percent: f64) -> u64 {
        let pressed = |percent| percent > pressure_limit_percent;
        if self.recovering || self.pressure_percent.is_some_and(pressed) {
            return 0;
        }
        self.usage.room_bytes_under(mark_percent)
    }

    fn is_machine_growing_fast(&self) -> bool {
        self.scope == MemoryScope::Machine && self.growth.bytes_per_s() > GROWING_FAST
    }

    fn will_be_full_within_seconds(&self) -> bool {
        self.is_recovered_now() && self.fills_within_seconds()
    }

    fn fills_within_seconds(&self) -> bool {
        time_to_full(self.usage, self.growth.bytes_per_s()).is_some_and(|at| at < FULL_SOON)
    }

    /// Time until a fast fill starts recovery; `None`: there is none, or it has.
    fn time_to_start_in_fast_fill(&self) -> Option<Duration> {
        let growth = self.growth.bytes_per_s();
        let mark_bytes = self.usage.total_bytes as f64 * self.start_percent / 100.0;
        let to_mark = MemoryUse { total_bytes: u64_from_f64(mark_bytes), ..self.usage };
        let fast = growth >= FAST_FILL && !self.recovering;
        fast.then(|| time_to_full(to_mark, growth))?
    }
}

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
    /// nearest low watermark, of its groups or of the machine: what is above it belongs to the
    /// program's own demand. Memory given up to the high one would be recovered at the program's
    /// next allocation, and then given again.
    pub fn room_bytes_for_process(&self, process: ProcessId) -> u64 {
        if self.limits_unknown.contains(&process) {
            return 0;
        }
        let room = |watched: &MemoryScopeState| {
            watched.room_bytes_under(watched.marks.low_percent(), self.pressure_limit_percent)
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

    /// Takes in the state of memory at `now`. Reports whether promotion goes on at all. A process
    /// in a group that is short of memory is held separately, by [`Self::may_promote`].
    ///
    /// # Errors
    /// Why nothing is promoted.
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
            let changed = before.as_ref().is_none_or(|before| before.usage != usage);
            if changed && scope != MemoryScope::Machine {
                self.pace.record_change();
            }
            // Only a new member has huge pages that were not listed.
            let listed = before.as_ref().filter(|it| {
                let earlier: HashSet<&ProcessId> = it.members.iter().collect();
                members.iter().all(|member| earlier.contains(member))
            });
            let mut watched = MemoryScopeState {
                scope,
                marks,
                usage: before.as_ref().map_or(usage, |it| it.usage),
                pressure_percent,
                members: members.to_vec(),
                growth: before.as_ref().map(|it| it.growth).unwrap_or_default(),
                start_percent: marks.high_percent(),
                recovering: before.as_ref().is_some_and(|it| it.recovering),
                read_at: now,
                listed: listed.and_then(|it| it.listed),
                being_listed: listed.is_some_and(|it| it.being_listed),
                urgent_work: before.as_ref().map_or_else(
                    || UrgentWorkLimit::of_group(usage.total_bytes),
                    |before| before.urgent_work,
                ),
                recent_urgent_work: before
                    .as_ref()
                    .map_or_else(UrgentWorkLimit::of_recent_work, |before| {
                        before.recent_urgent_work
                    }),
            };
            watched.record_reading(now, usage, self.speed);
            if watched.is_machine_growing_fast() {
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
            if *scope != MemoryScope::Machine && watched.usage != usage {
                self.pace.record_change();
            }
            watched.record_reading(now, usage, speed);
            if watched.is_machine_growing_fast() {
                self.pace.record_change();
            }
        }
    }

    /// Adds what a promotion took from memory, or a recovery gave back (below 0). It counts until
    /// memory is next read.
    pub fn add_used_bytes(&mut self, process: ProcessId, taken_bytes: i64) {
        let groups = self.groups.get(&process).map_or(&[][..], Vec::as_slice);
        for place in std::iter::once(0).chain(groups.iter().copied()) {
            if let Some(watched) = self.watched.get_mut(place) {
                watched.add_used_bytes(taken_bytes, self.speed);
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
        found.map_or(0, |watched| u64_from_f64(watched.growth.bytes_per_s()))
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
        self.pace.record_cost(now, cost);
    }

    fn next_read_of_scope_at(&self, watched: &MemoryScopeState) -> Duration {
        let wanted = wanted_read_interval(watched.usage, watched.growth.bytes_per_s());
        // It is noticed where recovery has to start, and not some 100 MiB later.
        let to_start = watched.time_to_start_in_fast_fill().map(|at| at.max(SOONEST_READ));
        let wanted = to_start.map_or(wanted, |at| at.min(wanted));
        watched.read_at.saturating_add(wanted).max(self.pace.ready_at())
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
