//! What was found out about a process: plain values that the advice rests on.

use hawkeye_linux::processes::surroundings::{Advice, Place, Surroundings};
use hawkeye_policy::{BASE_PAGE_BYTES, MemoryUse, Overhead, PAGES_PER_REGION, RegionSample};
use serde::Serialize;

/// Everything that advice rests on.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Which process.
    pub pid: u32,
    /// How long it was measured.
    pub seconds: f64,
    /// What translation costs it, where that could be seen.
    pub cost: Result<Cost, NotMeasured>,
    /// Its regions under base pages, what matters most first.
    pub regions: Vec<Region>,
    /// Regions under huge pages.
    pub huge_regions: u64,
    /// What was found in those of them that were searched for zeros.
    pub zeros: Zeros,
    /// Whether zeros in its huge pages can be given back: by this kernel, and by its cgroup's swap where that takes swap.
    pub recovery_possible: bool,
    /// Its settings, mappings, and the kernel's settings.
    pub surroundings: Surroundings,
    /// The machine's memory.
    pub memory: MemoryUse,
    /// A manager that runs at the same time.
    pub manager: Option<RunningManager>,
    /// The fullest of its cgroups with a limit.
    pub cgroup: Option<Group>,
}

impl Facts {
    /// Regions under base pages inside a place, in order of what matters most.
    pub fn regions_in<'a>(&'a self, place: &'a Place) -> impl Iterator<Item = &'a Region> {
        let inside = |region: &&Region| (place.start..place.end).contains(&region.start);
        self.regions.iter().filter(inside)
    }

    /// Whether most of the page walks are in memory that its owner keeps from huge pages (`MADV_NOHUGEPAGE`): then nobody
    /// else's huge pages bring much.
    pub fn mostly_refused(&self) -> bool {
        let places = self.surroundings.places.iter();
        let refused = places.filter(|place| place.advice == Advice::NoHuge);
        let share: f64 = refused
            .flat_map(|place| self.regions_in(place))
            .map(|region| region.share)
            .sum();
        share > 0.5
    }
}

/// Why the cost of translation is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum NotMeasured {
    /// It used less of a core than tells anything.
    Idle,
    /// It has no region of 2 MiB with memory in it that could be huge.
    TooSmall,
    /// Accesses can't be seen on this kernel.
    Unseen,
}

/// What translation costs a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The middle one of all windows.
    pub overhead: Overhead,
    /// What of it comes from huge pages already, in per cent of its CPU time.
    pub huge_percent: f64,
    /// The lowest and the highest of all windows, in per cent.
    pub windows_percent: [f64; 2],
    /// Windows in which it ran.
    pub windows: usize,
    /// CPU time that it used, in cores: the mean of these windows.
    pub cpu_cores: f64,
}

/// A region under base pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Base pages present.
    pub present: u16,
    /// Base pages whose contents are in swap.
    pub swapped: u16,
    /// Its part in all page walks of base pages, by windows other than those that it was ranked by (0-1).
    pub share: f64,
    /// Whether windows of both kinds looked at it, so that its rank and its share are known and owe nothing to each other.
    pub ranked: bool,
}

impl Region {
    /// What is known of a region.
    pub fn new(sample: &RegionSample, share: f64, ranked: bool) -> Self {
        Self {
            start: sample.region.start(),
            present: sample.present,
            swapped: sample.swapped,
            share,
            ranked,
        }
    }

    /// Memory that the process would hold more if it were huge, in bytes.
    pub fn added_bytes(&self) -> u64 {
        let there = self
            .present
            .saturating_add(self.swapped)
            .min(PAGES_PER_REGION);
        u64::from(PAGES_PER_REGION - there) * BASE_PAGE_BYTES
    }
}

/// Zeros in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Zeros {
    /// Huge pages searched.
    pub searched: u64,
    /// Base pages in them that hold nothing but zeros.
    pub zero_pages: u64,
    /// Huge pages that would be split for having many of them.
    pub bloated: u64,
}

/// A manager that ran while the process was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningManager {
    /// What it says of itself: process and purpose.
    pub holder: String,
    /// Whether it manages this process, as far as it answers: only a daemon does.
    pub manages: Option<bool>,
}

/// A cgroup with a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Its path.
    pub name: String,
    /// Its memory.
    pub usage: MemoryUse,
}
