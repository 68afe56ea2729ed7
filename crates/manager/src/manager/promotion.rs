//! Carries out promotions within all limits.

use super::work_limits::PaidBy;
use super::{BATCH, Manager};
use crate::budget_wait::{BudgetWait, ExhaustedBudget, WaitingWork};
use crate::machine::{Machine, MachineError, PromotionResult, TimedOutPromotionResult};
use hawkeye_policy::region_promotion_limits::added_pages_upper_bound;
use hawkeye_policy::{
    BatchDecision, CallBatchBackoff, Errno, Event, MeasuredPromotionCost, ProcessId, Promotion,
    PromotionEffect, RegionAddr,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Attempts on a region without a free huge page: a brief shortage must not skip the best ones.
const TRIES: u32 = CallBatchBackoff::PATIENCE + 1;

/// How long a batch goes on without a call when the CPU budget is used up. Nothing pays for the
/// time that dropped proposals take.
const DROPS_WITHOUT_BUDGET: Duration = Duration::from_millis(1);

/// What a call for one promotion took, and what pays for it.
struct PromotionCallCost {
    took: Duration,
    cpu: Duration,
    paid_by: PaidBy,
}

/// What promotion keeps from one batch to the next.
#[derive(Default)]
pub(super) struct PromotionProgress {
    /// The pause after calls that took long, or for which no huge page was available.
    pub(super) backoff: CallBatchBackoff,
    /// A promotion that waits for a budget or for a huge page, before the policy's next one.
    postponed: Option<Promotion>,
    /// How often no huge page was available for it.
    shortages: u32,
    /// Promotions that have no result yet, and for which the loop no longer waits.
    timed_out: HashMap<(ProcessId, RegionAddr), Promotion>,
}

impl PromotionProgress {
    fn pause_after_calls(&self, now: Duration) -> Option<BudgetWait> {
        let until = Some(self.backoff.pause_ends_at());
        let pause = BudgetWait { budget: ExhaustedBudget::PromotionPause, until };
        (!self.backoff.is_pause_over(now)).then_some(pause)
    }
}

impl<M: Machine> Manager<M> {
    /// Promotes until the batch's time is up or a limit is reached. Returns when to go on, if that
    /// is before the next look.
    pub(super) fn promote_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        // No process may be promoted in: leave the waiting list as it is.
        let blocked = self.is_all_promotion_blocked();
        if blocked {
            self.limits.waits.end_current_wait(begun, WaitingWork::Promotion);
            return None;
        }
        if let Some(pause) = self.promotion.pause_after_calls(begun) {
            return self.limits.waits.begin_wait(begun, pause);
        }
        let mut held = self.held_processes();
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.limits.record_total_cpu_time(now, self.machine.management_costs().cpu);
            if now >= begun + BATCH || self.is_all_promotion_blocked() {
                break Some(now);
            }
            let drops_only = !called && now >= begun + DROPS_WITHOUT_BUDGET;
            if drops_only {
                if let Err(wait) = self.limits.decide_promotion_payment(now, None) {
                    self.limits.waits.begin_wait(now, wait);
                    break None;
                }
            }
            if let Err(wait) = self.limits.take_promotion(now) {
                break self.limits.waits.begin_wait(now, wait);
            }
            let supply = self.next_huge_page_readiness(now);
            let again = self.promotion.postponed.take();
            let is_new = again.is_none();
            let next = again.or_else(|| self.policy.pop_next_promotion(now, supply, &held));
            self.reschedule_sampling_by_saving(now, next.as_ref());
            let Some(next) = next else {
                self.limits.promotions.give_back_promotion();
                self.limits.waits.end_without_promotion(now);
                break None;
            };
            self.limits.waits.end_current_wait(now, WaitingWork::Promotion);
            if is_new {
                self.promotion.shortages = 0;
            }
            if !self.is_promotion_allowed(&next, now) {
                self.limits.promotions.give_back_promotion();
                self.drop_proposal(&next);
                if self.is_process_held(next.process) {
                    held.insert(next.process);
                }
                continue;
            }
            let paid_by = match self.limits.decide_promotion_payment(now, next.saved_us_per_s) {
                Ok(paid_by) => paid_by,
                Err(wait) => {
                    self.limits.promotions.give_back_promotion();
                    self.promotion.postponed = Some(next);
                    break self.limits.waits.begin_wait(now, wait);
                }
            };
            called = true;
            let (call_begun, cpu_before) =
                (self.machine.now(), self.machine.management_costs().cpu);
            let outcome = self.machine.promote(&next);
            let cost = PromotionCallCost {
                took: self.machine.now().saturating_sub(call_begun),
                cpu: self.machine.management_costs().cpu.saturating_sub(cpu_before),
                paid_by,
            };
            if self.charge_promotion(now, next, outcome, cost) == BatchDecision::StopBatch {
                break Some(now);
            }
        };
        if called {
            let now = self.machine.now();
            self.promotion.backoff.end_batch(now);
            self.update_reserve_target(now);
            // A wait for a budget that lasts longer stays.
            let pause = self.promotion.pause_after_calls(now);
            if let Some(pause) = pause.filter(|it| more.is_some_and(|at| it.until >= Some(at))) {
                self.limits.waits.begin_wait(now, pause);
            }
        }
        let ready = self.promotion.backoff.pause_ends_at();
        more.map(|at| if called { at.max(ready) } else { at })
    }

    /// The next sample comes early where the best promotion saves little. Policies that don't
    /// estimate what a promotion saves are sampled once a period.
    fn reschedule_sampling_by_saving(&mut self, now: Duration, next: Option<&Promotion>) {
        let best = next.map_or(Some(0.0), |next| next.saved_us_per_s);
        if let Some(saved_us_per_s) = best {
            self.sampling.bring_window_forward_if_poor(now, saved_us_per_s, &self.settings);
        }
    }

    /// Drops the promotion to try again, because a policy is about to see a new observation.
    pub(super) fn drop_postponed_promotion(&mut self) {
        if let Some(next) = self.promotion.postponed.take() {
            self.drop_proposal(&next);
        }
    }

    fn drop_proposal(&mut self, promotion: &Promotion) {
        (self.policy).on_promotion_result(promotion.process, promotion.region, None);
    }

    fn is_promotion_allowed(&self, promotion: &Promotion, now: Duration) -> bool {
        let taken_bytes = self.max_bytes_taken(promotion);
        let spared = taken_bytes == 0 && !self.settings.hold_full;
        let guard = &self.memory.guard;
        let (process, region) = (promotion.process, promotion.region);
        (spared || guard.may_promote(process, taken_bytes).is_ok())
            && !self.recovery.planner.is_kept_split(process, region, now)
            && self.limits.regions.may_promote_within_limits(promotion, now)
    }

    /// The processes of which nothing may be promoted now. What waits in them is not dropped.
    fn held_processes(&self) -> HashSet<ProcessId> {
        let mut held: HashSet<_> = self.limits.regions.huge.processes_at_limit().collect();
        // Otherwise promotions that take no memory go on.
        if self.settings.hold_full {
            held.extend(self.memory.guard.held_processes(&self.processes.current));
        }
        held
    }

    fn is_process_held(&self, process: ProcessId) -> bool {
        let by_memory = || self.memory.guard.may_promote(process, 0).is_err();
        (self.settings.hold_full && by_memory())
            || !self.limits.regions.huge.allows_another_huge_page(process)
    }

    /// Upper limit of the memory that a promotion takes, in bytes. The cgroup of the promoted
    /// process pays for all of a huge page of shared memory, also where another one paid before.
    fn max_bytes_taken(&self, promotion: &Promotion) -> u64 {
        match promotion.file {
            Some(_) => promotion.order.bytes(),
            None => self.limits.regions.max_bytes_taken_by_promotion(promotion),
        }
    }

    fn is_all_promotion_blocked(&self) -> bool {
        self.settings.hold_full && self.memory.held.is_some()
    }

    /// Takes in the result of a call and charges what it cost; returns whether the batch may go on.
    fn charge_promotion(
        &mut self,
        now: Duration,
        promotion: Promotion,
        outcome: Result<PromotionResult, MachineError>,
        cost: PromotionCallCost,
    ) -> BatchDecision {
        let (process, region) = (promotion.process, promotion.region);
        let PromotionCallCost { took, cpu, paid_by } = cost;
        let (done, took, from_reserve) = match outcome {
            Ok(PromotionResult::Done { took, from_reserve, .. }) => (true, took, from_reserve),
            // A refused call may have waited for memory too.
            _ => (false, took, false),
        };
        let paid_by_savings = paid_by == PaidBy::Savings;
        let tried = Event::PromotionTried { process, done, cpu, paid_by_savings, from_reserve };
        self.dispatch_event(now, tried);
        let shortage = matches!(&outcome, Err(error) if error.is_huge_page_shortage());
        self.promotion.shortages += u32::from(shortage);
        if let Err(error @ MachineError::NoHelper(_)) = &outcome {
            self.limits.promotions.give_back_promotion();
            self.record_error(now, error);
            self.promotion.postponed = Some(promotion);
            return self.promotion.backoff.record_memory_shortage();
        }
        if outcome == Ok(PromotionResult::Pending) {
            // The kernel may still do it, so it stays charged to the budget until the result is
            // known.
            self.promotion.timed_out.insert((process, region), promotion);
        } else if shortage && self.promotion.shortages < TRIES {
            self.limits.promotions.give_back_promotion();
            let event = Event::Refused { process, region, errno: Errno::ENOMEM, again_soon: true };
            self.dispatch_event(now, event);
            self.promotion.postponed = Some(promotion);
        } else {
            self.finish_promotion(promotion, outcome, now);
        }
        if shortage {
            self.promotion.backoff.record_memory_shortage()
        } else {
            self.promotion.backoff.record_call_duration(took)
        }
    }

    /// Takes in the result of a promotion for which the loop no longer waits.
    pub(super) fn finish_late_promotion(&mut self, now: Duration, late: TimedOutPromotionResult) {
        let TimedOutPromotionResult { process, region, outcome, took } = late;
        let Some(promotion) = self.promotion.timed_out.remove(&(process, region)) else {
            return;
        };
        self.finish_promotion(promotion, outcome, now);
        // No batch is under way that this could stop.
        let _ = self.promotion.backoff.record_call_duration(took);
        self.promotion.backoff.end_batch(now);
        // Its other regions were passed over meanwhile.
        self.sampling.schedule_window_soon(now, &self.settings);
    }

    fn finish_promotion(
        &mut self,
        promotion: Promotion,
        outcome: Result<PromotionResult, MachineError>,
        now: Duration,
    ) {
        let effect = PromotionEffect {
            taken_bytes: self.max_bytes_taken(&promotion),
            added_pages: added_pages_upper_bound(&promotion),
            saved_us_per_s: promotion.saved_us_per_s,
        };
        let Promotion { process, region, order, file, reason, .. } = promotion;
        let cost = match outcome {
            Ok(PromotionResult::Done { cpu, from_reserve, .. }) => {
                let supply = self.memory.readiness_if_reserve_holds(u32::from(from_reserve));
                Some(MeasuredPromotionCost { cpu, supply })
            }
            _ => None,
        };
        self.policy.on_promotion_result(process, region, cost);
        if cost.is_none() {
            self.limits.promotions.give_back_promotion();
        }
        let event = match outcome {
            Ok(PromotionResult::Done { took, .. }) => {
                Event::Promoted { process, region, order, reason, file, took, effect }
            }
            Ok(PromotionResult::Freed) => Event::Freed { process, region },
            Ok(PromotionResult::NotCandidate | PromotionResult::Pending) => return,
            Ok(PromotionResult::Shared { pages }) => Event::Shared { process, region, pages },
            Ok(PromotionResult::FileHoles { pages }) => Event::FileHoles { process, region, pages },
            Err(MachineError::Refused { errno, .. }) => {
                Event::Refused { process, region, errno, again_soon: false }
            }
            Err(error) => return self.record_error(now, &error),
        };
        self.dispatch_event(now, event);
    }
}
