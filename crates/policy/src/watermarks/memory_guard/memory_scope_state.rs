//! The state of the machine's memory, or of one cgroup's.

use crate::observation::{MemoryUse, ProcessId};
use crate::saturating_cast::u64_from_f64;
use crate::watermarks::recovery_timing::{
    MemoryGrowth, OFTEN, RecoverySpeed, SharedUrgentWorkLimit, UrgentWorkLimit,
    earliest_start_of_group, earliest_start_of_machine, recovery_end_percent,
    recovery_start_percent, start_if_outrun, time_to_full, wanted_read_interval,
};
use crate::watermarks::{MemoryScope, MemoryShortage, PromotionBlockReason, Watermarks};
use std::collections::HashSet;
use std::time::Duration;

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
pub(super) struct MemoryScopeState {
    pub(super) scope: MemoryScope,
    pub(super) marks: Watermarks,
    pub(super) usage: MemoryUse,
    pub(super) pressure_percent: Option<f64>,
    /// Of a group; the machine has all processes.
    pub(super) members: Vec<ProcessId>,
    growth: MemoryGrowth,
    /// Whether it filled faster than it can be recovered, at the last reading.
    outruns_recovery: bool,
    start_percent: f64,
    pub(super) recovering: bool,
    read_at: Duration,
    /// Until when `usage` has expected growth, and how much since the last reading, in bytes.
    estimated_at: Duration,
    expected_growth_bytes: f64,
    /// When it could not be read, if that was after the last reading.
    failed_at: Option<Duration>,
    /// When its huge pages were last listed, and total growth until then, in bytes.
    listed: Option<(Duration, f64)>,
    /// Whether a listing of them has begun and not ended.
    pub(super) being_listed: bool,
    /// Of a group. The machine has no limit, because all programs suffer when it is full.
    urgent_work: UrgentWorkLimit,
    /// Of a group: whether it may use the reserve that groups share.
    recent_urgent_work: UrgentWorkLimit,
}

impl MemoryScopeState {
    /// Not read yet, except that its size is known.
    pub(super) fn new(scope: MemoryScope, marks: Watermarks, usage: MemoryUse) -> Self {
        Self {
            scope,
            marks,
            usage,
            pressure_percent: None,
            members: Vec::new(),
            growth: MemoryGrowth::default(),
            outruns_recovery: false,
            start_percent: marks.high_percent(),
            recovering: false,
            read_at: Duration::ZERO,
            estimated_at: Duration::ZERO,
            expected_growth_bytes: 0.0,
            failed_at: None,
            listed: None,
            being_listed: false,
            urgent_work: UrgentWorkLimit::of_group(usage.total_bytes),
            recent_urgent_work: UrgentWorkLimit::of_recent_work(),
        }
    }

    /// Only a new member has huge pages that were not listed.
    pub(super) fn set_members(&mut self, members: &[ProcessId]) {
        let earlier: HashSet<&ProcessId> = self.members.iter().collect();
        if !members.iter().all(|member| earlier.contains(member)) {
            (self.listed, self.being_listed) = (None, false);
        }
        self.members = members.to_vec();
    }

    /// Takes in its use. Returns whether memory should be read often: the use of a group changes,
    /// or that of the machine grows fast.
    pub(super) fn record_reading(
        &mut self,
        now: Duration,
        usage: MemoryUse,
        speed: RecoverySpeed,
    ) -> bool {
        let has_changed = usage != self.usage;
        if usage.total_bytes != self.usage.total_bytes {
            self.urgent_work.set_group_limit(now, usage.total_bytes);
        }
        self.usage = usage;
        (self.read_at, self.failed_at) = (now, None);
        (self.estimated_at, self.expected_growth_bytes) = (now, 0.0);
        self.urgent_work.update(now);
        self.recent_urgent_work.update(now);
        self.growth.record_use(now, usage.used_bytes);
        if let Some((_, grown)) = &mut self.listed {
            // It may have been estimated too high.
            *grown = grown.min(self.growth.total_growth_bytes());
        }
        self.outruns_recovery = self.outruns(speed);
        self.update_recovery(speed);
        match self.scope {
            MemoryScope::Machine => self.growth.bytes_per_s() > GROWING_FAST,
            MemoryScope::Group(_) => has_changed,
        }
    }

    /// Its use could not be read. It is read again as if it had been.
    pub(super) fn record_failed_reading(&mut self, now: Duration) {
        self.failed_at = Some(now);
    }

    /// Whether it fills faster than it can be recovered.
    fn outruns(&self, speed: RecoverySpeed) -> bool {
        // The average of growth rises more slowly than the speed is measured.
        let share = if self.outruns_recovery { 0.5 } else { 1.0 };
        self.is_fast_fill_of_group() && self.growth.bytes_per_s() > share * speed.bytes_per_s
    }

    fn update_recovery(&mut self, speed: RecoverySpeed) {
        let used = self.usage.used_percent();
        self.start_percent = self.recovery_start_percent(speed);
        self.recovering =
            used > self.start_percent || (self.recovering && used >= self.end_percent());
    }

    fn recovery_start_percent(&self, speed: RecoverySpeed) -> f64 {
        if self.outruns_recovery {
            return start_if_outrun(self.marks);
        }
        let is_group = self.scope != MemoryScope::Machine;
        let earliest_percent = match is_group && self.growth.goes_on() {
            true => earliest_start_of_group(self.marks),
            false => earliest_start_of_machine(self.marks),
        };
        recovery_start_percent(
            self.marks,
            earliest_percent,
            self.usage.total_bytes,
            self.growth.bytes_per_s(),
            speed.bytes_per_s,
        )
    }

    /// Under it recovery ends.
    pub(super) fn end_percent(&self) -> f64 {
        recovery_end_percent(self.marks, self.start_percent)
    }

    /// Adds what the manager took, or gave back (below 0). While memory is recovered, it also adds
    /// how much programs are expected to have grown meanwhile. Without that, recovery would end in
    /// a fast fill that seems to shrink.
    pub(super) fn add_used_bytes(&mut self, now: Duration, taken_bytes: i64, speed: RecoverySpeed) {
        if self.recovering {
            let grown = self.growth_since_estimate(now, self.growth.newest_bytes_per_s());
            (self.estimated_at, self.expected_growth_bytes) =
                (self.estimated_at.max(now), self.expected_growth_bytes + grown);
            self.usage.used_bytes = self.usage.used_bytes.saturating_add(u64_from_f64(grown));
        }
        self.usage.used_bytes = self.usage.used_bytes.saturating_add_signed(taken_bytes);
        self.growth.record_manager_use(taken_bytes);
        self.update_recovery(speed);
    }

    /// Whether it is short of memory, and recovered from at present.
    pub(super) fn is_recovered_now(&self) -> bool {
        self.recovering && self.urgent_work.rests_until().is_none()
    }

    pub(super) fn growth_bytes_per_s(&self) -> u64 {
        u64_from_f64(self.growth.bytes_per_s())
    }

    pub(super) fn shortage(&self) -> Option<MemoryShortage> {
        self.is_recovered_now().then(|| MemoryShortage {
            used_percent: self.usage.used_percent(),
            start_percent: self.start_percent,
            growth_bytes_per_s: self.growth_bytes_per_s(),
        })
    }

    pub(super) fn record_urgent_work(&mut self, now: Duration, cpu: Duration) {
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

    pub(super) fn is_urgent(&self, all_groups: Option<SharedUrgentWorkLimit>) -> bool {
        self.will_be_full_within_seconds() && self.shared_rest_until(all_groups).is_none()
    }

    /// Why nothing in it is promoted, if so.
    pub(super) fn promotion_block(
        &self,
        limit_percent: f64,
        all_groups: Option<SharedUrgentWorkLimit>,
    ) -> Option<PromotionBlockReason> {
        let scope = self.scope.clone();
        if !self.recovering {
            let pressure_percent = self.pressure_above(limit_percent)?;
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
        let high_percent = self.marks.high_percent();
        let low_percent = (self.end_percent() * 10.0).round() / 10.0;
        Some(if used_percent > high_percent {
            PromotionBlockReason::AboveHigh { scope, used_percent, high_percent }
        } else if used_percent > start_percent {
            PromotionBlockReason::FillingUp {
                scope,
                used_percent,
                start_percent,
                growth_bytes_per_s: self.growth_bytes_per_s(),
            }
        } else {
            PromotionBlockReason::Recovering { scope, used_percent, low_percent }
        })
    }

    /// Whether nothing in it is promoted, however little memory that takes.
    pub(super) fn holds_all_promotion(&self, pressure_limit_percent: f64) -> bool {
        self.recovering
            || self.usage.used_percent() > self.start_percent
            || self.pressure_above(pressure_limit_percent).is_some()
    }

    /// Memory pressure, if it is above a limit.
    fn pressure_above(&self, limit_percent: f64) -> Option<f64> {
        self.pressure_percent.filter(|percent| *percent > limit_percent)
    }

    /// Why `bytes` more would be too much, if so.
    pub(super) fn promotion_block_after_adding(&self, bytes: u64) -> Option<PromotionBlockReason> {
        let with =
            MemoryUse { used_bytes: self.usage.used_bytes.saturating_add(bytes), ..self.usage };
        (with.used_percent() > self.start_percent).then(|| PromotionBlockReason::WouldCross {
            scope: self.scope.clone(),
            used_percent: self.usage.used_percent(),
            bytes,
            start_percent: self.start_percent,
        })
    }

    pub(super) fn is_huge_page_list_outdated(&self, now: Duration) -> bool {
        let enough = LIST_GROWTH.min(self.usage.total_bytes as f64 * LIST_GROWTH_SHARE);
        self.listed.is_none_or(|(at, grown)| {
            now >= at.saturating_add(LIST_AGE) || self.growth_until(now) - grown >= enough
        })
    }

    /// All growth so far, in bytes, with what is expected since the last reading. The average makes
    /// sure that huge pages are listed again after a program has stood still for a moment.
    fn growth_until(&self, now: Duration) -> f64 {
        let expected = self.growth_since_estimate(now, self.growth.bytes_per_s());
        self.growth.total_growth_bytes() + self.expected_growth_bytes + expected
    }

    /// Bytes by which the use of a cgroup that fills fast is expected to have grown since it was
    /// last estimated.
    fn growth_since_estimate(&self, now: Duration, bytes_per_s: f64) -> f64 {
        if !self.is_fast_fill_of_group() {
            return 0.0;
        }
        let seconds = now.saturating_sub(self.estimated_at).as_secs_f64();
        let room = self.usage.total_bytes.saturating_sub(self.usage.used_bytes) as f64;
        (bytes_per_s * seconds).min(room)
    }

    pub(super) fn mark_huge_pages_listed(&mut self, now: Duration) {
        self.listed = Some((now, self.growth_until(now)));
    }

    /// Memory up to `mark_percent` of the total, in bytes; 0 while memory is short. The mark at
    /// which recovery starts is no limit, because a process that is prefaulted grows with its
    /// program.
    pub(super) fn room_bytes_under(&self, mark_percent: f64, pressure_limit_percent: f64) -> u64 {
        if self.recovering || self.pressure_above(pressure_limit_percent).is_some() {
            return 0;
        }
        self.usage.room_bytes_under(mark_percent)
    }

    pub(super) fn will_be_full_within_seconds(&self) -> bool {
        self.is_recovered_now() && self.fills_within_seconds()
    }

    fn fills_within_seconds(&self) -> bool {
        let time_left = time_to_full(self.usage, self.growth.bytes_per_s());
        time_left.is_some_and(|left| left < FULL_SOON)
    }

    /// Whether it is a cgroup that fills fast, and readings have shown growth lately.
    fn is_fast_fill_of_group(&self) -> bool {
        self.scope != MemoryScope::Machine && self.growth.goes_on() && self.is_filling_fast()
    }

    pub(super) fn is_filling_fast(&self) -> bool {
        self.growth.bytes_per_s() >= FAST_FILL && self.fills_within_seconds()
    }

    /// When its use should be read next, whatever that costs.
    pub(super) fn wanted_read_at(&self) -> Duration {
        let mut wanted = wanted_read_interval(self.usage, self.growth.bytes_per_s());
        if self.is_recovered_now() && self.is_fast_fill_of_group() {
            // It is noticed soon that growth has stopped.
            wanted = OFTEN;
        }
        // It is noticed where recovery has to start, and not some 100 MiB later.
        let to_start = self.time_to_start_in_fast_fill().map(|at| at.max(SOONEST_READ));
        self.failed_at
            .unwrap_or(self.read_at)
            .saturating_add(to_start.map_or(wanted, |at| at.min(wanted)))
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
