//! The choice of page sizes for memory at its first touch.

use super::Manager;
use crate::machine::Machine;
use hawkeye_policy::{Event, FaultSizes, PageOrderSet, ProcessId, Reason};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The sizes at first touches that suited the same program before.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "learned")]
struct LearnedFaultSizesReason {
    starts: u32,
}

impl fmt::Display for LearnedFaultSizesReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts = self.starts;
        write!(f, "best page sizes in the last {starts} starts of this program")
    }
}

impl<M: Machine> Manager<M> {
    /// Sets each process's page sizes at first touches: the policy's choice, else what suited the
    /// program before, else nothing. While promotion is held back or paused, base pages are set:
    /// larger pages take memory that no program asked for.
    pub(super) fn update_fault_sizes(&mut self, now: Duration) {
        let offered = self.machine.page_properties().at_faults;
        if offered.is_empty() || self.settings.measure_only {
            return;
        }
        for process in self.processes.current.clone() {
            let set = self.processes.fault_sizes.get(&process).copied();
            let chosen = self.policy.fault_sizes(process);
            let chosen = chosen.or_else(|| self.learned_fault_sizes(process));
            let (orders, reason) = match chosen {
                _ if self.paused || self.memory.is_short_for_process(process) => {
                    (PageOrderSet::NONE, None)
                }
                Some(chosen) => (chosen.orders.intersection(offered), Some(chosen.reason)),
                None => continue,
            };
            if set.unwrap_or_default() == orders {
                continue;
            }
            match self.machine.set_fault_sizes(process, orders) {
                Ok(()) => self.dispatch_event(now, Event::FaultSizes { process, orders, reason }),
                Err(error) => self.record_error(now, &error),
            }
        }
    }

    fn learned_fault_sizes(&self, process: ProcessId) -> Option<FaultSizes> {
        let learned = self.machine.learned_fault_sizes(process)?;
        Some(FaultSizes {
            orders: learned.orders,
            reason: Reason::new(LearnedFaultSizesReason { starts: learned.starts }),
        })
    }
}
