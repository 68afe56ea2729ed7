//! Processes that do not answer, and promotions that end late.

use super::Manager;
use crate::machine::{LatePromotion, Machine, NotAnswering};
use hawkeye_policy::{Event, ProcessId, Promotion, RegionAddr};
use std::collections::HashMap;
use std::time::Duration;

/// What the loop has stopped waiting for.
#[derive(Debug, Default)]
pub struct Unanswered {
    /// Promotions whose outcome is not known yet.
    promotions: HashMap<(ProcessId, RegionAddr), Promotion>,
    /// Processes that were reported, and for how long they had not answered when last asked.
    reported: HashMap<ProcessId, NotAnswering>,
}

impl Unanswered {
    /// The outcome of a promotion is not known yet.
    pub(super) fn note_promotion(&mut self, promotion: Promotion) {
        let key = (promotion.process, promotion.region);
        self.promotions.insert(key, promotion);
    }

    /// How a process that does not answer was last found.
    pub fn get(&self, process: ProcessId) -> Option<&NotAnswering> {
        self.reported.get(&process)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.reported.len()
    }

    /// Whether everybody answers.
    pub fn is_empty(&self) -> bool {
        self.reported.is_empty()
    }
}

impl<M: Machine> Manager<M> {
    /// Takes in what was answered late, and reports processes that do not answer, or do again.
    pub(super) fn settle_late(&mut self, now: Duration) {
        let unanswered = self.machine.unanswered();
        for late in unanswered.ended {
            let LatePromotion {
                process,
                region,
                outcome,
                took,
            } = late;
            if let Some(promotion) = self.unanswered.promotions.remove(&(process, region)) {
                self.settle(promotion, outcome, took, now);
                self.promoting.ended_late(now, took);
                // Its other regions were passed over meanwhile.
                self.sampling.hasten(now, &self.settings);
            }
        }
        let mut before = std::mem::take(&mut self.unanswered.reported);
        for found in unanswered.waiting {
            let NotAnswering { process, call, .. } = found;
            if before.remove(&process).is_none() {
                self.tell(now, Event::NotAnswering { process, call });
            }
            self.unanswered.reported.insert(process, found);
        }
        for (process, NotAnswering { waited, .. }) in before {
            self.tell(now, Event::Answering { process, waited });
        }
    }
}
