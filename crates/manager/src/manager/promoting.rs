//! Carries promotions out, within every limit.

use super::{BATCH, Manager};
use crate::journal::Event;
use crate::machine::{Machine, MachineError, Promoted};
use hawkeye_policy::{
    AfterCall, BASE_PAGE_BYTES, Backoff, Errno, PAGES_PER_REGION, PageOrder, ProcessId, Promotion,
    RegionAddr, Spent,
};
use std::time::Duration;

/// Share of the CPU budget that promotion does not use up: memory that runs short just afterwards must
/// not wait a minute for its recovery.
const KEPT_FOR_RECOVERY: f64 = 1.0 / 3.0;

/// A region is tried so often while no huge page can be had for it: the best ones come first, and are not to be the ones that are left alone
/// because memory was short just then.
const TRIES: u32 = Backoff::PATIENCE + 1;

/// The promotion that is carried out next.
#[derive(Debug)]
pub(super) struct Next {
    promotion: Promotion,
    /// How often no huge page could be had for it.
    shortages: u32,
}

impl<M: Machine> Manager<M> {
    /// Promotes until the batch's time is up or a limit is reached. Returns when to go on, if there is
    /// a reason to before the next look.
    pub(super) fn promote_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        // Nobody may: leave what waits where it is.
        if self.holds_all() {
            return None;
        }
        if !self.promotion_backoff.ready(begun) {
            return Some(self.promotion_backoff.ready_at());
        }
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.cpu.update(now, self.machine.own_costs().cpu);
            if self.cpu.exhausted_but(now, KEPT_FOR_RECOVERY) {
                break Some(self.cpu.ready_but_at(now, KEPT_FOR_RECOVERY));
            }
            if now >= begun + BATCH || self.holds_all() {
                break Some(now);
            }
            match self.budget.take(now) {
                Ok(()) => {}
                Err(Spent::Total { .. }) => break None,
                Err(Spent::Rate { ready_at }) => break Some(ready_at),
            }
            let next = self.next_promotion(now);
            self.note_best_left(now, next.as_ref());
            let Some(next) = next else {
                self.budget.give_back();
                break Some(self.sampling.due());
            };
            let Promotion {
                process, region, ..
            } = next.promotion;
            if !self.allowed(&next.promotion, now) {
                self.budget.give_back();
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
            self.promotion_backoff.end_batch(now);
        }
        let ready = self.promotion_backoff.ready_at();
        more.map(|at| if called { at.max(ready) } else { at })
    }

    fn next_promotion(&mut self, now: Duration) -> Option<Next> {
        self.postponed.take().or_else(|| {
            Some(Next {
                promotion: self.policy.next_promotion(now)?,
                shortages: 0,
            })
        })
    }

    /// Tells when to look what is left: policies that don't say what a promotion saves look once a period.
    fn note_best_left(&mut self, now: Duration, next: Option<&Next>) {
        let best = next.map_or(Some(0.0), |next| next.promotion.saved_us_per_s);
        if let Some(saved_us_per_s) = best {
            self.sampling
                .note_best_left(now, saved_us_per_s, &self.settings);
        }
    }

    /// What is to be tried again is chosen anew from what a policy is about to see.
    pub(super) fn drop_postponed(&mut self) {
        if let Some(Next { promotion, .. }) = self.postponed.take() {
            let Promotion {
                process, region, ..
            } = promotion;
            self.policy.settle(process, region, None);
        }
    }

    fn allowed(&self, promotion: &Promotion, now: Duration) -> bool {
        let Promotion {
            process, region, ..
        } = *promotion;
        let taken_bytes = self.taken_bytes(promotion);
        let spared = taken_bytes == 0 && !self.settings.hold_full;
        (spared || self.guard.may_promote(process, taken_bytes).is_ok())
            && self.cooldown.allows(process, region, now)
            && self.shared.may_promote(process, region, now)
            && self.recovered.may_promote(process, region)
            && self.huge_limits.allows(process)
    }

    /// What a promotion takes from memory at the most.
    fn taken_bytes(&self, promotion: &Promotion) -> u64 {
        let copied = self
            .shared
            .copied_pages(promotion.process, promotion.region);
        promotion_bytes(promotion) + u64::from(copied) * BASE_PAGE_BYTES
    }

    /// Whether nothing may be promoted.
    fn holds_all(&self) -> bool {
        self.settings.hold_full && self.held.is_some()
    }

    /// Makes one region huge; says whether the batch may go on.
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
            // A refusal may have waited for memory as well.
            _ => self.machine.now().saturating_sub(before),
        };
        let shortage = matches!(&outcome, Err(error) if error.is_shortage());
        let shortages = next.shortages + u32::from(shortage);
        if outcome == Ok(Promoted::Pending) {
            // The kernel may still do it: it stays charged to the budget until that is known.
            self.unanswered.note_promotion(next.promotion);
        } else if shortage && shortages < TRIES {
            self.budget.give_back();
            self.note_refused(process, region, Errno::ENOMEM, now);
            self.postponed = Some(Next { shortages, ..next });
        } else {
            self.settle(next.promotion, outcome, took, now);
        }
        if shortage {
            self.promotion_backoff.after_shortage()
        } else {
            self.promotion_backoff.after_call(took)
        }
    }

    /// Tells all who have to know what came of a promotion.
    pub(super) fn settle(
        &mut self,
        promotion: Promotion,
        outcome: Result<Promoted, MachineError>,
        took: Duration,
        now: Duration,
    ) {
        let taken_bytes = self.taken_bytes(&promotion);
        let added_pages = (promotion_bytes(&promotion) / BASE_PAGE_BYTES) as u16;
        let Promotion {
            process,
            region,
            order,
            saved_us_per_s,
            reason,
            ..
        } = promotion;
        let done = matches!(outcome, Ok(Promoted::Done(_)));
        self.policy.settle(process, region, done.then_some(took));
        if done {
            self.cooldown.succeed(process, region);
            self.shared.note_promoted(process, region);
            // Smaller pages are no bloat to be split, larger ones were huge before.
            if order == PageOrder::HUGE {
                self.planner.note_huge(process, region);
                self.huge_limits.note_promoted(process);
            }
            if order >= PageOrder::HUGE {
                self.viewing.note_promoted(process, region, added_pages);
            }
            self.account(process, taken_bytes as i64);
        } else {
            self.budget.give_back();
        }
        match outcome {
            Ok(Promoted::Done(took)) => {
                if let Some(saved_us_per_s) = saved_us_per_s {
                    self.sampling.note_saving(saved_us_per_s);
                }
                self.journal.note(
                    now,
                    Event::Promoted {
                        process,
                        region,
                        order,
                        reason,
                        took,
                    },
                );
            }
            Ok(Promoted::Freed) => self.journal.note(now, Event::Freed { process, region }),
            Ok(Promoted::NotCandidate | Promoted::Pending) => {}
            Ok(Promoted::Shared { pages }) => {
                self.shared.pass_over(process, region, pages, now);
                let event = Event::Shared {
                    process,
                    region,
                    pages,
                };
                self.journal.note(now, event);
            }
            Err(MachineError::Refused { errno, .. }) => {
                self.cooldown.refuse(process, region, now);
                self.note_refused(process, region, errno, now);
            }
            Err(error) => self.trouble(now, &error),
        }
    }

    fn note_refused(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        errno: Errno,
        now: Duration,
    ) {
        let event = Event::Refused {
            process,
            region,
            errno,
        };
        self.journal.note(now, event);
    }
}

/// What a promotion takes from memory at the most, without copies of shared pages: the base pages that were not there, of the blocks that something is present in.
fn promotion_bytes(promotion: &Promotion) -> u64 {
    let present = u64::from(promotion.expected_present.min(PAGES_PER_REGION));
    let absent = u64::from(PAGES_PER_REGION) - present;
    absent.min(present * (promotion.order.pages() - 1)) * BASE_PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::Reason;

    fn bytes(order: PageOrder, present: u16) -> u64 {
        promotion_bytes(&Promotion {
            process: ProcessId {
                pid: 1,
                start_ticks: 1,
            },
            region: RegionAddr::containing(0),
            order,
            expected_present: present,
            saved_us_per_s: None,
            reason: Reason::new("a test"),
        })
    }

    #[test]
    fn memory_is_taken_for_what_was_not_there() {
        assert_eq!(bytes(PageOrder::HUGE, 500), 12 * BASE_PAGE_BYTES);
        assert_eq!(bytes(PageOrder::HUGE, 1), 511 * BASE_PAGE_BYTES);
        assert_eq!(bytes(PageOrder::CONTIGUOUS, 3), 45 * BASE_PAGE_BYTES);
        assert_eq!(bytes(PageOrder::CONTIGUOUS, 500), 12 * BASE_PAGE_BYTES);
        assert_eq!(bytes(PageOrder::HUGE_CONTIGUOUS, 512), 0);
    }
}
