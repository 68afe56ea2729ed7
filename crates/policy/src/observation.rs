//! What a machine shows to a policy: plain values, no handles.

use crate::machine_shape::MachineShape;
use crate::overhead::Overhead;
use crate::page::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};
use crate::terms::Terms;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A process, safe against reuse of its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id (thread group id).
    pub pid: u32,
    /// Start time since boot in clock ticks, field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// One region in one sampling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSample {
    /// Which region.
    pub region: RegionAddr,
    /// Base pages backed by memory of their own (0-512; 512 for a huge page). Pages mapped to the
    /// shared zero page don't count.
    pub present: u16,
    /// Base pages accessed in the window: the *coverage* (0-512). A huge page has one access bit:
    /// 512 or 0.
    pub accessed: u16,
    /// Runs of neighbouring accessed base pages (0-256; 1 for an accessed huge page).
    pub runs: u16,
    /// Base pages written since they were mapped (the dirty bit; 0-512).
    pub written: u16,
    /// Base pages mapped to the shared zero page.
    pub zero_mapped: u16,
    /// Of the pages present, those that other processes may map too, copy-on-write or merged: a
    /// promotion copies them. An upper limit: pages that are write-protected for other reasons count.
    #[serde(default)]
    pub maybe_shared: u16,
    /// Base pages swapped out or otherwise not present but not empty.
    pub swapped: u16,
    /// The size of the pages that map it, or most of what is present; [`PageOrder::HUGE`] or more where one page
    /// maps all of the region. Where a machine can't tell sizes below that apart they count as base pages.
    pub order: PageOrder,
    /// Page walks that accesses to the region are expected to cause, per second of the process's CPU time, by what was seen of it and of
    /// others like it; 0 where it was not touched or none were looked for.
    pub walks_per_s: u32,
}

impl RegionSample {
    /// A region full of base pages of which none was touched or written: what samples are made from that differ in a few things.
    pub const fn untouched(region: RegionAddr) -> Self {
        Self {
            region,
            present: PAGES_PER_REGION,
            accessed: 0,
            runs: 0,
            written: 0,
            zero_mapped: 0,
            maybe_shared: 0,
            swapped: 0,
            order: PageOrder::BASE,
            walks_per_s: 0,
        }
    }

    /// Whether one page maps all of the region.
    pub fn is_huge(&self) -> bool {
        self.order >= PageOrder::HUGE
    }
}

/// How trustworthy the access figures of a sample are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoverageSource {
    /// Every access bit was cleared and read.
    AccessBits,
    /// Estimated from sampled pages (DAMON).
    Estimated,
    /// No access information: `accessed` repeats `present`.
    Population,
}

/// Anonymous memory of mappings, or ends of mappings, that no whole region fits in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideRegions {
    /// Bytes mapped, by the power of two of the largest page that fits there (0: 4 KiB, 4: 64 KiB).
    pub mapped_bytes: [u64; 9],
    /// Of all of them, resident.
    pub resident_bytes: u64,
}

/// All eligible regions of one process, in ascending address order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Whose.
    pub process: ProcessId,
    /// Where the access figures come from.
    pub source: CoverageSource,
    /// Regions with anything in them.
    pub regions: Vec<RegionSample>,
    /// Memory that lies in no region.
    pub outside: OutsideRegions,
    /// Times that the process touched a page for the first time since its access bits were cleared: each costs it
    /// something where a hypervisor looks on.
    pub first_touches: u64,
    /// Page faults that it has had so far, without those that waited for a disk; `None` where that isn't known.
    pub faults: Option<u64>,
    /// What translation costs it, where that could be found out.
    pub overhead: Option<Overhead>,
    /// Of its regions under base pages, the share whose page walks were seen lately (over 0, at most 1): a large process is not
    /// looked at whole at once.
    pub walks_seen: f64,
    /// CPU time it uses, in cores (seconds per second; 0 and up). 1 where it isn't known.
    pub cpu_cores: f64,
    /// How long ago it began; `Duration::MAX` where that isn't known.
    pub age: Duration,
    /// What the machine's rules say about it.
    pub terms: Terms,
}

impl ProcessSample {
    /// What is there, where nothing is known of accesses.
    pub fn population(process: ProcessId, regions: Vec<RegionSample>) -> Self {
        Self {
            process,
            source: CoverageSource::Population,
            regions,
            outside: OutsideRegions::default(),
            first_touches: 0,
            faults: None,
            overhead: None,
            walks_seen: 1.0,
            cpu_cores: 1.0,
            age: Duration::MAX,
            terms: Terms::default(),
        }
    }

    /// Whether there is more to see of it than was seen, and that is worth the looks: what could be saved is enough for promotions.
    pub fn is_worth_another_look(&self) -> bool {
        /// Programs grow and shrink meanwhile.
        const NEARLY_ALL: f64 = 0.95;
        let least = self.terms.least_gain_percent();
        let worth = self
            .overhead
            .is_some_and(|it| it.savable_percent() >= least);
        worth && self.walks_seen < NEARLY_ALL
    }

    /// Memory in the sampled regions, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.regions
            .iter()
            .map(|r| u64::from(r.present))
            .sum::<u64>()
            * BASE_PAGE_BYTES
    }

    /// Memory under huge pages, in bytes.
    pub fn huge_bytes(&self) -> u64 {
        self.regions.iter().filter(|r| r.is_huge()).count() as u64 * HUGE_PAGE_BYTES
    }
}

/// One round of sampling: every managed process, first come first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// When the window ended, since the machine's clock began.
    pub at: Duration,
    /// Processes in order of arrival under management.
    pub processes: Vec<ProcessSample>,
    /// Processes that are there but could not be read this time: what is known of them stays.
    pub unread: Vec<ProcessId>,
    /// Free memory fragmentation index for huge pages (0: all free memory is in large blocks, 1: none
    /// is); `None` where it can't be found out.
    pub fmfi: Option<f64>,
    /// What the machine offers.
    pub machine: MachineShape,
}

/// Memory in use against what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Allocated and not cheaply reclaimable, in bytes.
    pub used_bytes: u64,
    /// The machine's memory or the cgroup's limit, in bytes (not 0).
    pub total_bytes: u64,
}

impl MemoryUse {
    /// Share in use, in per cent (above 100 where a limit was lowered).
    pub fn percent(self) -> f64 {
        self.used_bytes as f64 * 100.0 / self.total_bytes.max(1) as f64
    }
}

/// A memory limit and the managed processes under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupMemory {
    /// The cgroup's path, for people.
    pub name: String,
    /// Use against the limit.
    pub usage: MemoryUse,
    /// Share of the last 10 s in which some task in it waited for memory, in per cent; `None` where
    /// the kernel does not say.
    pub pressure_percent: Option<f64>,
    /// Managed processes in it.
    pub members: Vec<ProcessId>,
}

/// The state of memory that decisions rest on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryState {
    /// The whole machine.
    pub machine: MemoryUse,
    /// Every cgroup with a limit that holds a managed process.
    pub groups: Vec<GroupMemory>,
    /// Share of the last 10 s in which some task waited for memory, in per cent (PSI "some avg10");
    /// `None` where the kernel has no PSI.
    pub pressure_percent: Option<f64>,
    /// Free memory fragmentation index for huge pages (see [`Observation::fmfi`]).
    pub fmfi: Option<f64>,
}
