//! Processes that do not answer, and promotions that end late.

use super::Manager;
use crate::machine::{LatePromotion, Machine, NotAnswering};
use hawkeye_policy::{Event, ProcessId, Promotion, RegionAddr};
use std::collections::HashMap;
use std::time::Duration;

/// Calls for which the loop has stopped waiting.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// Promotions without a result yet.
    pub(super) promotions: HashMap<(ProcessId, RegionAddr), Promotion>,
    /// Processes that were reported, and how long they had not answered at the last check.
    pub(super) reported: HashMap<ProcessId, NotAnswering>,
}

impl<M: Machine> Manager<M> {
    /// Takes in late results. Reports processes that do not answer, and those that answer again.
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
