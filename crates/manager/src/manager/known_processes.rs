//! What the loop knows of the processes that it manages.

use super::last_samples::LastSamples;
use super::refresh_schedule::RefreshSchedule;
use crate::machine::{SliceProgress, UnresponsiveProcess};
use hawkeye_policy::{Event, PageOrderSet, ProcessId};
use std::collections::HashMap;
use std::time::Duration;

/// The managed processes, what was set and seen of each, and when they are looked at again.
#[derive(Default)]
pub struct KnownProcesses {
    /// The current processes, in order of arrival.
    pub current: Vec<ProcessId>,
    /// Page sizes at first touches, where they were set.
    pub(super) fault_sizes: HashMap<ProcessId, PageOrderSet>,
    /// Those that do not answer, as of the last check.
    pub unresponsive: HashMap<ProcessId, UnresponsiveProcess>,
    pub(super) last_samples: LastSamples,
    pub(super) refresh: RefreshSchedule,
}

impl KnownProcesses {
    pub(super) fn apply_event(&mut self, event: &Event) {
        if let Event::FaultSizes { process, orders, .. } = *event {
            self.fault_sizes.insert(process, orders);
        }
        self.last_samples.apply_event(event);
        self.refresh.apply_event(event);
    }

    /// Takes in the result of an admission, which may be unfinished.
    pub(super) fn record_admission(&mut self, now: Duration, list: SliceProgress<Vec<ProcessId>>) {
        self.refresh.joining = match list {
            SliceProgress::Done(processes) => {
                self.current = processes;
                None
            }
            SliceProgress::Unfinished(wait) => Some(now + wait),
        };
    }

    /// Takes in the processes that do not answer at present. Returns what has changed.
    pub(super) fn update_unresponsive(&mut self, waiting: Vec<UnresponsiveProcess>) -> Vec<Event> {
        let mut before = std::mem::take(&mut self.unresponsive);
        let mut changes = Vec::new();
        for found in waiting {
            let UnresponsiveProcess { process, call, .. } = found;
            if before.remove(&process).is_none() {
                changes.push(Event::NotAnswering { process, call });
            }
            self.unresponsive.insert(process, found);
        }
        let answering =
            |UnresponsiveProcess { process, waited, .. }| Event::Answering { process, waited };
        changes.extend(before.into_values().map(answering));
        changes
    }

    pub(super) fn retain_processes(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.fault_sizes.retain(|process, _| is_there(*process));
        self.last_samples.retain_processes(&is_there);
        self.refresh.idle.retain_processes(is_there);
    }
}
