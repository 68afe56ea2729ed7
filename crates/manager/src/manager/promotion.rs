//! Carries out promotions within all limits.

use super::{BATCH, Manager};
use crate::machine::{Machine, MachineError, PromotionResult};
use hawkeye_policy::limits::added_pages;
use hawkeye_policy::{
    BatchDecision, CallBatchBackoff, Errno, Event, Promotion, PromotionBudget,
    PromotionBudgetExhausted, PromotionEffect,
};
use std::time::Duration;

/// Share of the CPU budget that promotion leaves unused. If memory runs short just afterwards, its
/// recovery must not wait a minute.
const KEPT_FOR_RECOVERY: f64 = 1.0 / 3.0;

/// Attempts on a region without a free huge page: a brief shortage must not skip the best ones.
const TRIES: u32 = CallBatchBackoff::PATIENCE + 1;

/// The pace of promotion.
pub struct PromotionPacing {
    budget: PromotionBudget,
    backoff: CallBatchBackoff,
    postponed: Option<NextPromotion>,
}

impl PromotionPacing {
    pub(super) fn new(budget: PromotionBudget) -> Self {
        Self {
            budget,
            backoff: CallBatchBackoff::default(),
            postponed: None,
        }
    }

    /// The budget, which counts the promotions taken.
    pub fn budget(&self) -> &PromotionBudget {
        &self.budget
    }

    /// The pause after calls that took long, or for which no huge page was available.
    pub fn backoff(&self) -> &CallBatchBackoff {
        &self.backoff
    }

    /// A promotion has ended outside any batch.
    pub(super) fn on_timed_out_promotion_result(&mut self, now: Duration, took: Duration) {
        // No batch is under way that this could stop.
        let _ = self.backoff.after_call(took);
        self.backoff.end_batch(now);
    }
}

#[derive(Debug)]
struct NextPromotion {
    promotion: Promotion,
    /// How often no huge page was available for it.
    shortages: u32,
}

impl<M: Machine> Manager<M> {
    /// When the CPU budget has room for promotions again, if it has none now. Its last third is
    /// kept for recovery.
    pub fn promotions_wait_for_cpu(&self, now: Duration) -> Option<Duration> {
        let ready_at = self.cpu.cpu_above_reserve_at(now, KEPT_FOR_RECOVERY);
        (ready_at > now).then_some(ready_at)
    }

    /// Promotes until the batch's time is up or a limit is reached. Returns when to go on, if that
    /// is before the next look.
    pub(super) fn promote_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        // No process may be promoted in: leave the waiting list as it is.
        if self.is_promotion_blocked() {
            return None;
        }
        if !self.promotion.backoff.ready(begun) {
            return Some(self.promotion.backoff.ready_at());
        }
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.cpu.update(now, self.machine.own_costs().cpu);
            if let Some(ready_at) = self.promotions_wait_for_cpu(now) {
                break Some(ready_at);
            }
            if now >= begun + BATCH || self.is_promotion_blocked() {
                break Some(now);
            }
            match self.promotion.budget.take_promotion(now) {
                Ok(()) => {}
                Err(PromotionBudgetExhausted::Total) => break None,
                Err(PromotionBudgetExhausted::Rate { ready_at }) => break Some(ready_at),
            }
            self.update_huge_page_supply(now);
            let again = self.promotion.postponed.take();
            let next = again.or_else(|| {
                let promotion = self.policy.next_promotion(now)?;
                Some(NextPromotion {
                    promotion,
                    shortages: 0,
                })
            });
            // Policies that don't estimate what a promotion saves are sampled once a period.
            let best = next.as_ref().map(|next| next.promotion.saved_us_per_s);
            if let Some(saved_us_per_s) = best.unwrap_or(Some(0.0)) {
                self.sampling
                    .record_best_saving(now, saved_us_per_s, &self.settings);
            }
            let Some(next) = next else {
                self.promotion.budget.give_back_promotion();
                break Some(self.sampling.due());
            };
            self.reserve.record_use(now);
            let Promotion {
                process, region, ..
            } = next.promotion;
            if !self.is_promotion_allowed(&next.promotion, now) {
                self.promotion.budget.give_back_promotion();
                self.policy.on_promotion_result(process, region, None);
                continue;
            }
            called = true;
            let stop = self.promote(next, now);
            if stop == BatchDecision::StopBatch {
                break Some(now);
            }
        };
        if called {
            let now = self.machine.now();
            self.promotion.backoff.end_batch(now);
            self.plan_reserve(now);
        }
        let ready = self.promotion.backoff.ready_at();
        more.map(|at| if called { at.max(ready) } else { at })
    }

    /// Drops the promotion to try again, because a policy is about to see a new observation.
    pub(super) fn drop_postponed_promotion(&mut self) {
        if let Some(NextPromotion { promotion, .. }) = self.promotion.postponed.take() {
            let Promotion {
                process, region, ..
            } = promotion;
            self.policy.on_promotion_result(process, region, None);
        }
    }

    fn is_promotion_allowed(&self, promotion: &Promotion, now: Duration) -> bool {
        let taken_bytes = self.limits.taken_bytes(promotion);
        let spared = taken_bytes == 0 && !self.settings.hold_full;
        let guard = &self.memory.guard;
        (spared || guard.may_promote(promotion.process, taken_bytes).is_ok())
            && self.limits.may_promote_within_limits(promotion, now)
    }

    fn is_promotion_blocked(&self) -> bool {
        self.settings.hold_full && self.memory.held.is_some()
    }

    /// Makes one region huge; returns whether the batch may go on.
    fn promote(&mut self, next: NextPromotion, now: Duration) -> BatchDecision {
        let Promotion {
            process,
            region,
            order,
            expected_present,
            ..
        } = next.promotion;
        let before = self.machine.now();
        let served_before = self.machine.reserve().served;
        let outcome = self
            .machine
            .promote(process, region, order, expected_present);
        let took = match outcome {
            Ok(PromotionResult::Done(took)) => took,
            // A refused call may have waited for memory too.
            _ => self.machine.now().saturating_sub(before),
        };
        let served = self.machine.reserve().served > served_before;
        self.record_promotion_supply(served, took);
        let shortage = matches!(&outcome, Err(error) if error.is_shortage());
        let shortages = next.shortages + u32::from(shortage);
        if outcome == Ok(PromotionResult::Pending) {
            // The kernel may still do it, so it stays charged to the budget until the result is
            // known.
            let key = (process, region);
            self.unanswered.promotions.insert(key, next.promotion);
        } else if shortage && shortages < TRIES {
            self.promotion.budget.give_back_promotion();
            let event = Event::Refused {
                process,
                region,
                errno: Errno::ENOMEM,
                again_soon: true,
            };
            self.dispatch(now, event);
            self.promotion.postponed = Some(NextPromotion { shortages, ..next });
        } else {
            self.finish_promotion(next.promotion, outcome, took, now);
        }
        if shortage {
            self.promotion.backoff.after_shortage()
        } else {
            self.promotion.backoff.after_call(took)
        }
    }

    pub(super) fn finish_promotion(
        &mut self,
        promotion: Promotion,
        outcome: Result<PromotionResult, MachineError>,
        took: Duration,
        now: Duration,
    ) {
        let effect = PromotionEffect {
            taken_bytes: self.limits.taken_bytes(&promotion),
            added_pages: added_pages(&promotion),
            saved_us_per_s: promotion.saved_us_per_s,
        };
        let Promotion {
            process,
            region,
            order,
            reason,
            ..
        } = promotion;
        let done = matches!(outcome, Ok(PromotionResult::Done(_)));
        self.policy
            .on_promotion_result(process, region, done.then_some(took));
        if !done {
            self.promotion.budget.give_back_promotion();
        }
        let event = match outcome {
            Ok(PromotionResult::Done(took)) => Event::Promoted {
                process,
                region,
                order,
                reason,
                took,
                effect,
            },
            Ok(PromotionResult::Freed) => Event::Freed { process, region },
            Ok(PromotionResult::NotCandidate | PromotionResult::Pending) => return,
            Ok(PromotionResult::Shared { pages }) => Event::Shared {
                process,
                region,
                pages,
            },
            Err(MachineError::Refused { errno, .. }) => Event::Refused {
                process,
                region,
                errno,
                again_soon: false,
            },
            Err(error) => return self.record_error(now, &error),
        };
        self.dispatch(now, event);
    }
}
