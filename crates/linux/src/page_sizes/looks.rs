//! Looks now and then at the sizes of the pages by which managed processes are mapped.

use super::{MappedSizes, SizeCounters, mapped, state, states};
use crate::error::LinuxError;
use hawkeye_policy::{PageOrder, ProcessId, RegionAddr};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process is looked at again after this time ...
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// ... or after so many times as long as the last look took, for each that there is: all looks together take half a per cent of a
/// core.
const PAUSE: u32 = 200;

/// What the last looks have shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizesSeen {
    /// How long ago the latest of them was, in seconds.
    pub age_s: f64,
    /// Whether all memory was looked through.
    pub complete: bool,
    /// Sizes of which there is a page, or was one given since management began.
    pub sizes: Vec<SizeSeen>,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeSeen {
    /// The size.
    pub page_bytes: u64,
    /// Pages of it that map managed processes.
    pub pages: u64,
    /// Pages of it given at first touches since management began, to anybody on this machine.
    pub given_on_machine: Option<u64>,
}

/// Looks at each process as often as it may cost.
#[derive(Debug)]
pub(crate) struct SizeLooks {
    thp: PathBuf,
    /// At the start.
    counters: BTreeMap<PageOrder, SizeCounters>,
    processes: BTreeMap<ProcessId, Look>,
    /// Sums of the last time that anybody was there, and when.
    last: Option<(Duration, MappedSizes)>,
}

#[derive(Debug)]
struct Look {
    found: MappedSizes,
    next: Duration,
}

impl SizeLooks {
    /// `thp`: the folder of the settings.
    pub(crate) fn new(thp: PathBuf) -> Self {
        let counters = states(&thp)
            .into_iter()
            .map(|state| (state.order, state.counters))
            .collect();
        Self {
            thp,
            counters,
            processes: BTreeMap::new(),
            last: None,
        }
    }

    /// Looks at a process, if it is time again.
    ///
    /// # Errors
    /// As of [`mapped`].
    pub(crate) fn look(&mut self, process: ProcessId, now: Duration) -> Result<(), LinuxError> {
        if self
            .processes
            .get(&process)
            .is_some_and(|look| now < look.next)
        {
            return Ok(());
        }
        let begun = Instant::now();
        let found = mapped(process.pid)?;
        let others = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        let pause = begun.elapsed() * PAUSE.saturating_mul(others.max(1));
        let pause = pause.max(AGAIN_AFTER);
        let next = now + pause;
        self.processes.insert(process, Look { found, next });
        self.add_up(now);
        Ok(())
    }

    fn add_up(&mut self, now: Duration) {
        let mut sum = MappedSizes {
            complete: true,
            ..MappedSizes::default()
        };
        for look in self.processes.values() {
            sum.add(&look.found);
        }
        self.last = Some((now, sum));
    }

    /// Forgets all processes but these. While nobody is there, what was last seen stays.
    pub(crate) fn retain(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.processes.retain(|process, _| there(*process));
    }

    /// Has everybody be looked at again at once.
    pub(crate) fn hurry(&mut self) {
        for look in self.processes.values_mut() {
            look.next = Duration::ZERO;
        }
    }

    /// The size of the pages that map most of a region, if it is not the base size.
    pub(crate) fn order_of(&self, process: ProcessId, region: RegionAddr) -> Option<PageOrder> {
        let look = self.processes.get(&process)?;
        look.found.regions.get(&region).copied()
    }

    /// What the last looks have shown.
    pub(crate) fn seen(&self, now: Duration) -> SizesSeen {
        let (at, pages, complete) = match &self.last {
            Some((at, sum)) => (*at, sum.pages.clone(), sum.complete),
            None => (now, BTreeMap::new(), true),
        };
        let given = |order: PageOrder| {
            let before = self.counters.get(&order)?.anon_fault_alloc?;
            let after = state(&self.thp, order)?.counters.anon_fault_alloc?;
            Some(after.saturating_sub(before))
        };
        let mut orders: Vec<PageOrder> =
            pages.keys().chain(self.counters.keys()).copied().collect();
        orders.sort_unstable();
        orders.dedup();
        let sizes = orders.into_iter().map(|order| SizeSeen {
            page_bytes: order.bytes(),
            pages: pages.get(&order).copied().unwrap_or(0),
            given_on_machine: given(order),
        });
        SizesSeen {
            age_s: now.saturating_sub(at).as_secs_f64(),
            complete,
            sizes: sizes
                .filter(|size| size.pages > 0 || size.given_on_machine > Some(0))
                .collect(),
        }
    }
}
