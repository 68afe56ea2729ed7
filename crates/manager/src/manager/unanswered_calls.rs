//! Processes that do not answer, and promotions that end late.

use super::Manager;
use crate::machine::{Machine, TimedOutPromotionResult, UnresponsiveProcess};
use hawkeye_policy::{
    Event, HugePageReadiness, MeasuredPromotionCost, ProcessId, Promotion, RegionAddr,
};
use std::collections::HashMap;
use std::time::Duration;

/// Calls for which the loop has stopped waiting.
#[derive(Debug, Default)]
pub(super) struct UnansweredCalls {
    pub(super) promotions: HashMap<(ProcessId, RegionAddr), (Promotion, HugePageReadiness)>,
    pub(super) reported: HashMap<ProcessId, UnresponsiveProcess>,
}

impl<M: Machine> Manager<M> {
    /// Takes in late results. Reports processes that do not answer, and those that answer again.
    pub(super) fn handle_late_call_results(&mut self, now: Duration) {
        let unanswered = self.machine.take_timed_out_call_results();
        for late in unanswered.ended {
            let TimedOutPromotionResult { process, region, outcome, took } = late;
            if let Some((promotion, supply)) = self.unanswered.promotions.remove(&(process, region))
            {
                let cost = MeasuredPromotionCost { took, supply };
                self.finish_promotion(promotion, outcome, cost, now);
                // No batch is under way that this could stop.
                let _ = self.promotion.backoff.record_call_duration(took);
                self.promotion.backoff.end_batch(now);
                // Its other regions were passed over meanwhile.
                self.sampling.schedule_window_soon(now, &self.settings);
            }
        }
        let mut before = std::mem::take(&mut self.unanswered.reported);
        for found in unanswered.waiting {
            let UnresponsiveProcess { process, call, .. } = found;
            if before.remove(&process).is_none() {
                self.dispatch_event(now, Event::NotAnswering { process, call });
            }
            self.unanswered.reported.insert(process, found);
        }
        for (process, UnresponsiveProcess { waited, .. }) in before {
            self.dispatch_event(now, Event::Answering { process, waited });
        }
    }
}
