//! Measures one process and changes nothing: the cost of address translation, and the state of its
//! regions.
//!
//! Access bits are cleared to see which are set again, as by a manager. Memory, mappings and
//! settings stay as they are.

use crate::error::{LinuxError, Result};
use crate::processes::mappings::{self, vm};
use crate::promote::target_call::CallHelperPool;
use crate::sample::counters::ProcessCounters;
use crate::sample::page_table_reader::{ProcessBpfLinks, WalkDetail};
use crate::sample::sampler::{
    AccessBitBackend, ProcessWindowProbing, ProcessWorkSlice, SampledProcess,
};
use hawkeye_policy::walk_rate::{OverheadEstimate, RegionProbeSettings};
use hawkeye_policy::{
    ProcessAttributes, ProcessSettings, RegionAddr, RegionSample, TranslationOverhead,
};
use std::time::{Duration, Instant};

/// Longest wait for a call into the process. No loop waits for it meanwhile, and on a loaded
/// machine the helper that makes the call may wait for a processor.
const CALL_TIME: Duration = Duration::from_secs(2);

/// A process that is measured window by window.
pub struct ProcessMeter {
    bits: Box<AccessBitBackend>,
    member: SampledProcess,
    target: ProcessBpfLinks,
    calls: CallHelperPool,
    counters: Option<ProcessCounters>,
    windows: u64,
}

/// Result of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredWindowOverhead {
    /// By the pages touched in short times.
    pub estimate: OverheadEstimate,
    /// By hardware counters, where there are any.
    pub counted: Option<TranslationOverhead>,
}

impl ProcessMeter {
    /// Prepares to measure a process. Fails if it is gone, or belongs to another user.
    pub fn open(bits: Box<AccessBitBackend>, pid: u32) -> Result<Self> {
        let (counters, identity) = (bits.counters.as_ref(), ProcessAttributes::default());
        Ok(Self {
            member: SampledProcess::open(pid, identity, ProcessSettings::default())?,
            target: bits.tables.bind_to_process(pid)?,
            calls: CallHelperPool::with_time_limit(CALL_TIME),
            // A process that cannot be counted is estimated.
            counters: counters.and_then(|counters| counters.bind(pid).ok()),
            bits,
            windows: 0,
        })
    }

    /// Measures for about a second. Fails if the cost of page walks was never measured.
    pub fn measure_window_overhead(&mut self) -> Result<MeasuredWindowOverhead> {
        let regions = self.read_candidate_regions()?;
        self.windows += 1;
        let (bits, seed) = (&mut self.bits, self.windows);
        let first_touch = bits.first_touch_cost;
        let settings = RegionProbeSettings::for_first_touch_cost(first_touch);
        let mut probing = ProcessWindowProbing::new(&regions, settings, first_touch, seed, |_| 0);
        let mut slice = ProcessWorkSlice {
            member: &mut self.member,
            calls: &mut self.calls,
            // Probing ends long before.
            deadline: Instant::now() + Duration::from_secs(3600),
        };
        let (tables, target) = (&mut bits.tables, &self.target);
        while let Some(wait) = probing.continue_until_wait(tables, target, &mut slice)? {
            std::thread::sleep(wait);
        }
        let unknown = "the cost of page walks on this machine was not measured";
        let costs = bits.walk_costs.as_mut().ok_or_else(|| LinuxError::Bpf(unknown.into()))?;
        let estimate = probing.finish_estimate(costs.measured_or_typical());
        let counters = self.counters.as_mut();
        let counted = counters.map_or(Ok(None), ProcessCounters::overhead_since_last_call)?;
        Ok(MeasuredWindowOverhead { estimate, counted })
    }

    /// All its regions that could be huge if nothing forbade it, as they are now.
    pub fn read_candidate_regions(&mut self) -> Result<Vec<RegionSample>> {
        let (tables, target) = (&mut self.bits.tables, &self.target);
        let mut mappings = self.calls.list_mappings(self.member.handle.id, target)?;
        // The base pages of MADV_NOHUGEPAGE memory cost the owner time, too.
        for mapping in &mut mappings {
            mapping.flags &= !vm::NOHUGEPAGE;
        }
        let ranges = mappings::collect_eligible_ranges(&mappings).ranges;
        let mut regions = Vec::new();
        tables.walk_ranges(target, &ranges, WalkDetail::Regions, &mut regions, |_| {})?;
        Ok(regions)
    }

    /// Counts the zero-filled base pages of a huge page; `None` if it is not, or no longer, huge.
    pub fn count_zero_pages(&mut self, region: RegionAddr) -> Result<Option<u16>> {
        let all = hawkeye_policy::PAGES_PER_REGION;
        self.bits.tables.count_zero_pages(&self.target, region, all)
    }
}
