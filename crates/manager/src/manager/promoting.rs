//! Carries out promotions within all limits.

use super::{BATCH, Manager};
use crate::machine::{Machine, MachineError, Promoted};
use hawkeye_policy::limits::added_pages;
use hawkeye_policy::{
    AfterCall, Backoff, Errno, Event, Promotion, PromotionBudget, PromotionEffect, Spent,
};
use std::time::Duration;

/// Share of the CPU budget that promotion leaves unused. If memory runs short just afterwards, its
/// recovery must not wait a minute.
const KEPT_FOR_RECOVERY: f64 = 1.0 / 3.0;

/// How often a region is tried while no huge page is available. The best regions come first. They
/// should not be left alone only because memory was short at that moment.
const TRIES: u32 = Backoff::PATIENCE + 1;

/// The pace of promotion.
pub struct Promoting {
    budget: PromotionBudget,
    backoff: Backoff,
    /// A promotion to try again.
    postponed: Option<Next>,
}

impl Promoting {
    pub(super) fn new(budget: PromotionBudget) -> Self {
        Self {
            budget,
            backoff: Backoff::default(),
            postponed: None,
        }
    }

    /// The budget, which counts the promotions taken.
    pub fn budget(&self) -> &PromotionBudget {
        &self.budget
    }

    /// The pause after calls that took long, or for which no huge page was available.
    pub fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// A promotion has ended outside any batch.
    pub(super) fn ended_late(&mut self, now: Duration, took: Duration) {
        // No batch is under way that this could stop.
        let _ = self.backoff.after_call(took);
        self.backoff.end_batch(now);
    }
}

/// The promotion to carry out next.
#[derive(Debug)]
struct Next {
    promotion: Promotion,
    /// How often no huge page was available for it.
    shortages: u32,
}

impl<M: Machine> Manager<M> {
    /// When the CPU budget has room for promotions again, if it has none now. Its last third is
    /// kept for recovery.
    pub fn promotions_wait_for_cpu(&self, now: Duration) -> Option<Duration> {
        let exhausted = self.cpu.exhausted_but(now, KEPT_FOR_RECOVERY);
        exhausted.then(|| self.cpu.ready_but_at(now, KEPT_FOR_RECOVERY))
    }

    /// Promotes until the batch's time is up or a limit is reached. Returns when to go on, if that
    /// is before the next look.
    pub(super) fn promote_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        // No process may be promoted in: leave the waiting list as it is.
        if self.holds_all() {
            return None;
        }
        if !self.promoting.backoff.ready(begun) {
            return Some(self.promoting.backoff.ready_at());
        }
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.cpu.update(now, self.machine.own_costs().cpu);
            if let Some(ready_at) = self.promotions_wait_for_cpu(now) {
                break Some(ready_at);
            }
            if now >= begun + BATCH || self.holds_all() {
                break Some(now);
            }
            match self.promoting.budget.take(now) {
                Ok(()) => {}
                Err(Spent::Total) => break None,
                Err(Spent::Rate { ready_at }) => break Some(ready_at),
            }
            let again = self.promoting.postponed.take();
            let next = again.or_else(|| {
                let promotion = self.policy.next_promotion(now)?;
                Some(Next {
                    promotion,
                    shortages: 0,
                })
            });
            // Policies that don't estimate what a promotion saves are sampled once a period.
            let best = next.as_ref().map(|next| next.promotion.saved_us_per_s);
            if let Some(saved_us_per_s) = best.unwrap_or(Some(0.0)) {
                self.sampling
                    .note_best_left(now, saved_us_per_s, &self.settings);
            }
            let Some(next) = next else {
                self.promoting.budget.give_back();
                break Some(self.sampling.due());
            };
            let Promotion {
                process, region, ..
            } = next.promotion;
            if !self.allowed(&next.promotion, now) {
                self.promoting.budget.give_back();
                self.policy.settle(process, region, None);
                continue;
            }
            called = true;
            let stop = self.promote(next, now);
            if stop == AfterCall::StopBatch {
                break Some(now);
            }
        };
        if called {
            let now = self.machine.now();
            self.promoting.backoff.end_batch(now);
        }
        let ready = self.promoting.backoff.ready_at();
        more.map(|at| if called { at.max(ready) } else { at })
    }

    /// Drops the promotion to try again, because a policy is about to see a new observation.
    pub(super) fn drop_postponed(&mut self) {
        if let Some(Next { promotion, .. }) = self.promoting.postponed.take() {
            let Promotion {
                process, region, ..
            } = promotion;
            self.policy.settle(process, region, None);
        }
    }

    fn allowed(&self, promotion: &Promotion, now: Duration) -> bool {
        let taken_bytes = self.limits.taken_bytes(promotion);
        let spared = taken_bytes == 0 && !self.settings.hold_full;
        let guard = &self.memory.guard;
        (spared || guard.may_promote(promotion.process, taken_bytes).is_ok())
            && self.limits.allow(promotion, now)
    }

    /// Whether nothing may be promoted.
    fn holds_all(&self) -> bool {
        self.settings.hold_full && self.memory.held.is_some()
    }

    /// Makes one region huge; returns whether the batch may go on.
    fn promote(&mut self, next: Next, now: Duration) -> AfterCall {
        let Promotion {
            process,
            region,
            order,
            expected_present,
            ..
        } = next.promotion;
        let before = self.machine.now();
        let outcome = self
            .machine
            .promote(process, region, order, expected_present);
        let took = match outcome {
            Ok(Promoted::Done(took)) => took,
            // A refused call may have waited for memory too.
            _ => self.machine.now().saturating_sub(before),
        };
        let shortage = matches!(&outcome, Err(error) if error.is_shortage());
        let shortages = next.shortages + u32::from(shortage);
        if outcome == Ok(Promoted::Pending) {
            // The kernel may still do it, so it stays charged to the budget until the result is
            // known.
            let key = (process, region);
            self.unanswered.promotions.insert(key, next.promotion);
        } else if shortage && shortages < TRIES {
            self.promoting.budget.give_back();
            let event = Event::Refused {
                process,
                region,
                errno: Errno::ENOMEM,
                again_soon: true,
            };
            self.tell(now, event);
            self.promoting.postponed = Some(Next { shortages, ..next });
        } else {
            self.settle(next.promotion, outcome, took, now);
        }
        if shortage {
            self.promoting.backoff.after_shortage()
        } else {
            self.promoting.backoff.after_call(took)
        }
    }

    /// Reports the result of a promotion to all parts.
    pub(super) fn settle(
        &mut self,
        promotion: Promotion,
        outcome: Result<Promoted, MachineError>,
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
        let done = matches!(outcome, Ok(Promoted::Done(_)));
        self.policy.settle(process, region, done.then_some(took));
        if !done {
            self.promoting.budget.give_back();
        }
        let event = match outcome {
            Ok(Promoted::Done(took)) => Event::Promoted {
                process,
                region,
                order,
                reason,
                took,
                effect,
            },
            Ok(Promoted::Freed) => Event::Freed { process, region },
            Ok(Promoted::NotCandidate | Promoted::Pending) => return,
            Ok(Promoted::Shared { pages }) => Event::Shared {
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
            Err(error) => return self.trouble(now, &error),
        };
        self.tell(now, event);
    }
}
