//! Periodic looks at the sizes of the pages that map managed processes.

use super::{
    MappedPageSizes, PageSizeCounters, read_mapped_page_sizes, read_page_size_setting,
    read_page_size_settings,
};
use crate::error::Result;
use crate::processes::process::with_cpu_time;
use crate::processes::process_reader_thread::ProcessReaderThread;
use hawkeye_policy::{PageOrder, ProcessId, RegionAddr};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Least time between two looks at a process.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The time is longer after an expensive look: this many times its CPU time, times the number of
/// processes. So all looks together take half a per cent of a core.
const PAUSE_PER_CPU_TIME: u32 = 200;
/// Longest wait for all looks together, at the end.
const FINAL_WAIT: Duration = Duration::from_millis(500);

/// Result of the last looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedPageSizes {
    /// Time since the latest of them, in seconds.
    pub age_s: f64,
    /// Whether they covered all memory.
    pub complete: bool,
    /// Sizes of which a page exists, or was given since management began.
    pub sizes: Vec<ObservedPageSize>,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedPageSize {
    /// The size.
    pub page_bytes: u64,
    /// Pages of it that map managed processes.
    pub pages: u64,
    /// Pages of it given at first touches since management began, to any process on this machine.
    pub given_on_machine: Option<u64>,
}

type SizeReading = (Result<MappedPageSizes>, Duration);

/// Looks at each process as often as its cost allows, in a separate thread: the reads take the
/// process's `mmap_lock`.
#[derive(Debug)]
pub(crate) struct MappedPageSizeSampler {
    thp: PathBuf,
    reader: ProcessReaderThread<SizeReading>,
    /// The counters when management began.
    counters: BTreeMap<PageOrder, PageSizeCounters>,
    processes: BTreeMap<ProcessId, LastSizeReading>,
    /// Time and sums of the last looks that found a process.
    last: Option<(Duration, MappedPageSizes)>,
}

#[derive(Debug)]
struct LastSizeReading {
    found: MappedPageSizes,
    next: Duration,
}

impl MappedPageSizeSampler {
    /// `thp`: the folder of the settings.
    pub(crate) fn new(thp: PathBuf) -> Self {
        Self::with_reader(thp, |pid| with_cpu_time(|| read_mapped_page_sizes(pid)))
    }

    fn with_reader(thp: PathBuf, look: impl Fn(u32) -> SizeReading + Send + 'static) -> Self {
        let states = read_page_size_settings(&thp).into_iter();
        Self {
            thp,
            reader: ProcessReaderThread::new("hawkeye-sizes", look),
            counters: states.map(|state| (state.order, state.counters)).collect(),
            processes: BTreeMap::new(),
            last: None,
        }
    }

    /// Starts a look at a process if one is due, and takes earlier results. Never waits.
    pub(crate) fn take_results_and_request_if_due(&mut self, process: ProcessId, now: Duration) {
        let look = self.processes.get(&process);
        if look.is_none_or(|look| now >= look.next) {
            self.reader.request_read(process);
        }
        self.take_results_until(now, Instant::now());
    }

    /// Starts looks at all of these processes at once, and waits for them for a short time.
    pub(crate) fn read_all_waiting_briefly(&mut self, processes: &[ProcessId], now: Duration) {
        self.take_results_until(now, Instant::now());
        for process in processes {
            self.reader.request_read(*process);
        }
        self.take_results_until(now, Instant::now() + FINAL_WAIT);
    }

    fn take_results_until(&mut self, now: Duration, deadline: Instant) {
        for (process, (found, cpu)) in self.reader.wait_for_results(deadline) {
            match found {
                Ok(found) => {
                    let others = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
                    let pause = cpu * PAUSE_PER_CPU_TIME.saturating_mul(others.max(1));
                    let next = now + pause.max(MIN_INTERVAL);
                    self.processes.insert(process, LastSizeReading { found, next });
                    let mut sum = MappedPageSizes::empty();
                    for look in self.processes.values() {
                        sum.add_page_counts(&look.found);
                    }
                    self.last = Some((now, sum));
                }
                // A process that ends meanwhile was seen before.
                Err(error) => {
                    tracing::debug!("the page sizes of process {process} cannot be read: {error}");
                }
            }
        }
    }

    /// Drops all processes except these. While there are none, the last result stays.
    pub(crate) fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.processes.retain(|process, _| there(*process));
    }

    /// The size of the pages that map most of a region, if it is not the base size.
    pub(crate) fn dominant_order_of_region(
        &self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Option<PageOrder> {
        let look = self.processes.get(&process)?;
        look.found.regions.get(&region).copied()
    }

    /// Result of the last looks.
    pub(crate) fn observed_page_sizes(&self, now: Duration) -> ObservedPageSizes {
        let (at, sum) = self.last.clone().unwrap_or((now, MappedPageSizes::empty()));
        let given = |order: PageOrder| {
            let before = self.counters.get(&order)?.anon_fault_alloc?;
            let now = read_page_size_setting(&self.thp, order)?.counters;
            let after = now.anon_fault_alloc?;
            Some(after.saturating_sub(before))
        };
        let orders = sum.pages.keys().chain(self.counters.keys()).copied();
        let sizes = orders.collect::<BTreeSet<PageOrder>>().into_iter();
        let sizes = sizes.map(|order| ObservedPageSize {
            page_bytes: order.bytes(),
            pages: sum.pages.get(&order).copied().unwrap_or(0),
            given_on_machine: given(order),
        });
        let is_used = |size: &ObservedPageSize| size.pages > 0 || size.given_on_machine > Some(0);
        ObservedPageSizes {
            age_s: now.saturating_sub(at).as_secs_f64(),
            complete: sum.complete,
            sizes: sizes.filter(is_used).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::process_with_pid;
    use std::sync::mpsc::channel;

    #[test]
    fn a_stuck_process_is_not_waited_for() {
        let (free, held) = channel::<()>();
        let mut looks = MappedPageSizeSampler::with_reader("/nonexistent".into(), move |pid| {
            if pid == 2 {
                let _ = held.recv();
            }
            let mut found = MappedPageSizes::empty();
            found.pages.insert(PageOrder::HUGE, u64::from(pid));
            (Ok(found), Duration::from_millis(10))
        });
        let huge = |looks: &MappedPageSizeSampler| {
            let observed = looks.observed_page_sizes(Duration::ZERO);
            observed.sizes.first().map(|s| s.pages)
        };
        looks.read_all_waiting_briefly(&[process_with_pid(1)], Duration::ZERO);
        assert_eq!(huge(&looks), Some(1));
        // The call returns, although the thread does not.
        looks.read_all_waiting_briefly(&[process_with_pid(2)], Duration::ZERO);
        looks.take_results_and_request_if_due(process_with_pid(1), Duration::ZERO);
        assert_eq!(huge(&looks), Some(1));
        drop(free);
        looks.read_all_waiting_briefly(&[process_with_pid(2)], Duration::ZERO);
        assert_eq!(huge(&looks), Some(3));
        // The next look is due when this one's CPU time is half a per cent of the time.
        let next = looks.processes[&process_with_pid(2)].next;
        assert!(next >= Duration::from_secs(2), "{next:?}");
    }
}
