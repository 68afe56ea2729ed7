//! What was measured about a process: plain values, from which `findings` derives the advice.

use crate::allocator_env_plan::AllocatorEnvPlan;
use hawkeye_linux::processes::huge_page_context::{HugePageAdvice, HugePageContext, MappingGroup};
use hawkeye_policy::{
    BASE_PAGE_BYTES, CgroupForecast, MemoryUse, PAGES_PER_REGION, TranslationOverhead,
};
use serde::{Serialize, Serializer};

#[derive(Clone, Debug, Serialize)]
pub struct AdviceFacts {
    pub pid: u32,
    #[serde(rename = "measured_s")]
    pub seconds: f64,
    #[serde(skip)]
    pub cost: Result<TranslationCost, TranslationNotMeasured>,
    /// Its regions under base pages, in order of importance.
    #[serde(rename = "base_regions", serialize_with = "serialize_length")]
    pub regions: Vec<BaseRegionFacts>,
    pub huge_regions: u64,
    #[serde(skip)]
    pub zeros: ZeroPageFacts,
    /// Whether zeros in its huge pages can be given back. This depends on the kernel and, where
    /// recovery takes swap, on the swap of its cgroup.
    #[serde(skip)]
    pub recovery_possible: bool,
    pub surroundings: HugePageContext,
    /// What would let its allocator request huge pages from its next start on.
    pub first_touch: AllocatorEnvPlan,
    pub memory: MemoryUse,
    #[serde(skip)]
    pub manager: Option<RunningHawkeye>,
    /// The fullest of its cgroups that have a limit.
    pub cgroup: Option<CgroupFacts>,
    /// `None`: its memory could not be read, for example because it did not answer.
    #[serde(skip)]
    pub forecast: Option<ProcessForecast>,
}

fn serialize_length<S: Serializer>(regions: &[BaseRegionFacts], to: S) -> Result<S::Ok, S::Error> {
    regions.len().serialize(to)
}

impl AdviceFacts {
    pub fn regions_in_mapping_group<'a>(
        &'a self,
        place: &'a MappingGroup,
    ) -> impl Iterator<Item = &'a BaseRegionFacts> {
        let inside = |region: &&BaseRegionFacts| (place.start..place.end).contains(&region.start);
        self.regions.iter().filter(inside)
    }

    /// Whether most page walks are in memory that the program excludes from huge pages
    /// (`MADV_NOHUGEPAGE`). Huge pages elsewhere then bring little.
    pub fn are_walks_mostly_in_excluded_memory(&self) -> bool {
        let places = self.surroundings.places.iter();
        let refused = places.filter(|place| place.advice == HugePageAdvice::NoHuge);
        let regions = refused.flat_map(|place| self.regions_in_mapping_group(place));
        regions.map(|region| region.share).sum::<f64>() > 0.5
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum TranslationNotMeasured {
    /// It used too little CPU time for a measurement.
    Idle,
    /// It has no populated 2 MiB region that could be huge.
    TooSmall,
    /// The manager can't see accesses on this kernel.
    Unseen,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TranslationCost {
    /// The median of all windows.
    pub overhead: TranslationOverhead,
    /// The part that comes from memory already under huge pages, in per cent of its CPU time.
    pub huge_percent: f64,
    /// The lowest and the highest of all windows, in per cent.
    pub windows_percent: [f64; 2],
    /// Windows in which it ran.
    pub windows: usize,
    /// CPU time used, in cores: the mean of these windows.
    pub cpu_cores: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BaseRegionFacts {
    pub start: u64,
    pub present: u16,
    pub swapped: u16,
    /// Contiguous entries map most of it, so that one TLB entry covers 16 pages.
    pub contiguous: bool,
    /// Its share of all page walks of base pages (0-1), from windows that did not rank it.
    pub share: f64,
    /// Whether windows of both kinds sampled it, so that its rank and its share are independent.
    pub ranked: bool,
}

impl BaseRegionFacts {
    /// Memory that the process would additionally hold if the region were huge, in bytes.
    pub fn added_bytes_if_huge(&self) -> u64 {
        let there = self.present.saturating_add(self.swapped);
        u64::from(PAGES_PER_REGION.saturating_sub(there)) * BASE_PAGE_BYTES
    }
}

/// What huge pages for every program (`enabled=always`) would add.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessForecast {
    /// To the process, in bytes at most.
    pub added_bytes: u64,
    /// To the fullest of its cgroups that have a limit.
    pub cgroup: Option<CgroupForecast>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZeroPageFacts {
    pub searched: u64,
    pub zero_pages: u64,
    /// Huge pages with enough zero pages for recovery to split them.
    pub bloated: u64,
}

/// A manager that ran while the process was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningHawkeye {
    /// Process and purpose, as the manager describes itself.
    pub holder: String,
    /// Whether it manages this process; known only of a daemon, which answers requests.
    pub manages: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CgroupFacts {
    pub name: String,
    pub usage: MemoryUse,
}
