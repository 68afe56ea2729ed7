//! Memory use, and the decisions that depend on it.

use super::Manager;
use crate::machine::Machine;
use crate::settings::Settings;
use hawkeye_policy::saturating_cast::i64_from_u64;
use hawkeye_policy::{
    Event, HugePageReservePlanner, MemoryGuard, MemoryScope, MemoryState, ProcessId,
    PromotionBlockReason, SettingError,
};
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

/// With this many cgroups or more, a look is left out where memory stands still.
const MANY_CGROUPS: usize = 50;
/// A change of less than this in all shows nothing that recovery or promotion would have to know.
const HARDLY_ANY_BYTES: u64 = 1 << 20;

/// State of memory as last read, plus the changes since.
pub struct MemoryWatch {
    /// Decides from memory use on promotion and recovery.
    pub guard: MemoryGuard,
    /// Total memory and use; `None` where it could not be read.
    pub state: Option<MemoryState>,
    /// Why nothing is promoted at present, if so.
    pub held: Option<PromotionBlockReason>,
    /// The kind of hold in the last [`Event::Held`]; `None` where that said that promotion resumes.
    reported_hold: Option<Discriminant<PromotionBlockReason>>,
    /// Whether there are many cgroups, and it hardly changed between the last two looks.
    stood_still: bool,
    /// How many huge pages of it are held ready.
    pub reserve: HugePageReservePlanner,
}

impl MemoryWatch {
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingError> {
        let guard = MemoryGuard::new(settings.watermarks, settings.pressure_limit_percent)?;
        let reserve = HugePageReservePlanner::new(settings.reserve);
        Ok(Self {
            guard,
            state: None,
            held: None,
            reported_hold: None,
            stood_still: false,
            reserve,
        })
    }

    /// Whether memory of the machine, or of the process's own cgroup, is too short to promote in.
    pub(super) fn is_short_for_process(&self, process: ProcessId) -> bool {
        self.held.is_some() || self.guard.may_promote(process, 0).is_err()
    }

    /// Takes in an event: hundreds of regions are promoted or split between two looks.
    pub(super) fn apply_event(&mut self, now: Duration, event: &Event) {
        self.reserve.apply_event(now, event);
        match *event {
            Event::Promoted { process, effect, .. } => {
                self.add_used_bytes(now, process, i64_from_u64(effect.taken_bytes))
            }
            Event::Recovered { process, bytes, took, searched_for, .. } => {
                self.add_used_bytes(now, process, -i64_from_u64(bytes));
                self.guard.record_recovery_speed(bytes, searched_for + took);
            }
            _ => {}
        }
    }

    /// Adds memory that was taken, or given back (below 0). It counts until memory is next read.
    pub(super) fn add_used_bytes(&mut self, now: Duration, process: ProcessId, taken_bytes: i64) {
        let Some(memory) = &mut self.state else { return };
        let change = |used: &mut u64| *used = used.saturating_add_signed(taken_bytes);
        change(&mut memory.machine.used_bytes);
        for group in &mut memory.groups {
            if group.members.contains(&process) {
                change(&mut group.usage.used_bytes);
            }
        }
        self.guard.add_used_bytes(now, process, taken_bytes);
        self.held = self.guard.all_promotion_blocked_by();
    }

    /// Takes in a reading.
    fn update_hold(&mut self, now: Duration, read: Option<MemoryState>) {
        self.held = match &read {
            Some(state) => self.guard.assess(now, state).err(),
            None => {
                self.guard.mark_memory_unknown();
                Some(PromotionBlockReason::Unknown)
            }
        };
        let both = self.state.as_ref().zip(read.as_ref());
        self.stood_still = both.is_some_and(|(before, after)| {
            after.groups.len() >= MANY_CGROUPS && hardly_differ(before, after)
        });
        self.state = read;
    }

    /// Whether a look would hardly show anything new, where the machine now uses `used_bytes`.
    fn stands_still(&self, used_bytes: u64) -> bool {
        let before = self.state.as_ref().map(|state| state.machine.used_bytes);
        self.stood_still
            && before.is_some_and(|before| before.abs_diff(used_bytes) < HARDLY_ANY_BYTES)
            && self.held.is_none()
            && self.guard.is_below_all_low_marks()
    }

    /// The event for a hold that differs from the one last reported. Figures in a reason do not
    /// count, because they change all the time. Between two looks only the start of a hold counts:
    /// near a watermark reasons change many times a second.
    fn take_hold_event(&mut self, at_look: bool) -> Option<Event> {
        let hold = self.held.as_ref().map(discriminant);
        if hold == self.reported_hold || !at_look && self.reported_hold.is_some() {
            return None;
        }
        self.reported_hold = hold;
        Some(Event::Held { hold: self.held.clone() })
    }
}

/// Whether neither the machine nor the cgroups together have changed by much, and nothing waits
/// for memory.
fn hardly_differ(before: &MemoryState, after: &MemoryState) -> bool {
    let pressures = after.groups.iter().map(|group| group.pressure_percent);
    let mut pressures = pressures.chain([after.pressure_percent]).flatten();
    let groups = || before.groups.iter().zip(&after.groups);
    let changes = groups().map(|(a, b)| a.usage.used_bytes.abs_diff(b.usage.used_bytes));
    before.machine.used_bytes.abs_diff(after.machine.used_bytes) < HARDLY_ANY_BYTES
        && before.groups.len() == after.groups.len()
        && groups().all(|(a, b)| a.name == b.name && a.usage.total_bytes == b.usage.total_bytes)
        && pressures.all(|percent| percent <= 0.0)
        && changes.sum::<u64>() < HARDLY_ANY_BYTES
}

impl<M: Machine> Manager<M> {
    /// Whether the look at `now` can be left out, because memory stands still. Processes that join
    /// or end are still noticed.
    pub(super) fn can_leave_out_look(&mut self, now: Duration) -> bool {
        // A look also decides when the reserve is emptied.
        let has_reserve = self.machine.reserve_state().held > 0;
        if !self.processes.refresh.may_leave_out_look(now)
            || !self.memory.stood_still
            || has_reserve
        {
            return false;
        }
        let Ok(usage) = self.machine.read_memory_use(&MemoryScope::Machine) else { return false };
        self.memory.guard.record_scope_use(now, &MemoryScope::Machine, usage);
        self.memory.held = self.memory.guard.all_promotion_blocked_by();
        if !self.memory.stands_still(usage.used_bytes) {
            return false;
        }
        let before = self.processes.current.clone();
        self.admit_processes();
        self.processes.refresh.joining.is_none() && self.processes.current == before
    }

    /// Sets how much memory may be prefaulted from now on: up to the nearest mark at which
    /// recovery ends, and within the limit of the process's rule.
    pub(super) fn update_prefault_limits(&mut self) {
        let by_rule = &mut self.limits.regions.huge;
        for &process in &self.processes.current {
            if let Some(settings) = self.machine.process_settings(process) {
                by_rule.update_rule(process, &settings);
            }
        }
        let left_by_rule = by_rule.bytes_left_by_process();
        for process in &self.processes.current {
            let left = left_by_rule.get(process).copied().unwrap_or(u64::MAX);
            let room = self.memory.guard.room_bytes_for_process(*process).min(left);
            self.machine.set_prefault_limit(*process, if self.paused { 0 } else { room });
        }
    }

    /// Adds what was filled ahead of programs, before memory is read. Then it is no growth of
    /// theirs. Growth would start recovery early, which takes back what was just filled.
    pub(super) fn add_prefaulted_memory(&mut self, now: Duration) {
        for process in self.processes.current.clone() {
            let filled_bytes = self.machine.take_prefaulted_bytes(process);
            if filled_bytes > 0 {
                self.memory.reserve.record_demand(now);
                self.memory.add_used_bytes(now, process, i64_from_u64(filled_bytes));
                self.limits.regions.huge.add_prefaulted_bytes(process, filled_bytes);
            }
        }
    }

    pub(super) fn read_and_assess_memory(&mut self, now: Duration) {
        let read = self.machine.read_memory_state();
        if let Err(error) = &read {
            self.record_error(now, error);
        }
        self.memory.update_hold(now, read.ok());
        self.report_hold(now, true);
        self.update_fault_sizes(now);
        self.update_reserve_target(now);
    }

    fn report_hold(&mut self, now: Duration, at_look: bool) {
        if let Some(event) = self.memory.take_hold_event(at_look) {
            self.dispatch_event(now, event);
        }
    }

    /// Reads, between looks, the memory that could be full before the next look. A vanished group
    /// is left to that look.
    pub(super) fn read_due_memory(&mut self, now: Duration) {
        let due = self.memory.guard.scopes_due_to_read(now);
        if due.is_empty() {
            return;
        }
        let before = self.machine.management_costs().cpu;
        self.add_prefaulted_memory(now);
        for scope in due {
            match self.machine.read_memory_use(&scope) {
                Ok(usage) => self.memory.guard.record_scope_use(now, &scope, usage),
                Err(_) => {
                    self.memory.guard.record_failed_read(now, &scope);
                    self.processes.refresh.request_look_at(now);
                }
            }
        }
        self.memory.held = self.memory.guard.all_promotion_blocked_by();
        self.report_hold(now, false);
        self.update_fault_sizes(now);
        self.update_prefault_limits();
        self.update_reserve_target(now);
        let cost = self.machine.management_costs().cpu.saturating_sub(before);
        self.memory.guard.record_read_cost(now, cost);
    }
}
