//! What a machine shows to a policy: plain values without handles.

use crate::file_region::FileRegion;
use crate::machine_page_properties::MachinePageProperties;
use crate::page::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};
use crate::process_settings::ProcessSettings;
use crate::saturating_cast::{i64_from_u64, u64_from_f64};
use crate::translation_overhead::TranslationOverhead;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A process, identified so that reuse of its pid cannot confuse it with another.
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
    /// Base pages backed by the process's own memory (0-512; 512 for a huge page). Pages mapped to
    /// the shared zero page don't count.
    pub present: u16,
    /// Base pages accessed in the window: the *coverage* (0-512). A huge page has only one access
    /// bit, so it counts 512 or 0. Contiguous entries ([`PageOrder::CONTIGUOUS`]) have one for 16
    /// pages, which all count if one was accessed.
    pub accessed: u16,
    /// Runs of neighbouring accessed base pages (0-256; 1 for an accessed huge page).
    pub runs: u16,
    /// Base pages written since they were mapped (the dirty bit; 0-512).
    pub written: u16,
    /// Base pages mapped to the shared zero page.
    pub zero_mapped: u16,
    /// Present pages that other processes may map too, copy-on-write or merged. A promotion copies
    /// them. An upper limit: pages that are write-protected for other reasons count.
    pub maybe_shared: u16,
    /// Base pages that are not present but not empty, for example swapped out.
    pub swapped: u16,
    /// The size of the pages that map the region, or most of what is present. [`PageOrder::HUGE`]
    /// or more means that one page maps all of the region. Where a machine cannot tell smaller
    /// sizes apart, they count as base pages.
    pub order: PageOrder,
    /// Expected page walks caused by accesses to the region, per second of the process's CPU time.
    /// The estimate uses what was seen of this region and of similar ones. It is 0 where the region
    /// was not touched or no walks were looked for.
    pub walks_per_s: u32,
    /// Of a huge page: accesses per second, estimated from the times from clears of its access bit
    /// to the first access. Split, it would cause at most one page walk for each access. `None`:
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touches_per_s: Option<u32>,
    /// Base pages that the process gave back and that stay allocated all the same: they are part of
    /// a huge page of which base pages still map the rest (0-511; 0 where a machine cannot tell).
    /// The kernel frees them when it splits the huge page, at the latest in reclaim.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub freed: u16,
    /// Of shared memory: which part of which file it is. `None`: private memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileRegion>,
}

impl RegionSample {
    /// A region full of base pages, none of them touched or written. Used as a base for samples
    /// that differ in a few fields.
    pub const fn new_full_and_untouched(region: RegionAddr) -> Self {
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
            touches_per_s: None,
            freed: 0,
            file: None,
        }
    }

    /// Whether it is a huge page, mapped whole or in part, of which recovery may give memory back.
    /// Shared memory gets nothing back: a split leaves the zero-filled pages in the file.
    pub fn is_recoverable(&self) -> bool {
        (self.is_huge() || self.freed > 0) && self.file.is_none()
    }

    /// Whether it is huge, or a split or the process gave a part of it back.
    pub fn is_huge_or_gave_back(&self) -> bool {
        self.is_huge() || self.zero_mapped > 0 || self.freed > 0
    }

    /// Whether one page maps all of the region.
    pub fn is_huge(&self) -> bool {
        self.order >= PageOrder::HUGE
    }

    /// Coverage of a region under pages smaller than huge pages in TLB entries (0-512). Contiguous
    /// entries have one access bit and are one TLB entry, where the machine has such entries.
    pub fn accessed_tlb_entries(&self, machine: &MachinePageProperties) -> u64 {
        let accessed = u64::from(self.accessed);
        match machine.tlb_entry_order(self.order) {
            PageOrder::CONTIGUOUS => accessed.div_ceil(PageOrder::CONTIGUOUS.pages()),
            _ => accessed,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(pages: &u16) -> bool {
    *pages == 0
}

/// How the access figures of a sample were obtained.
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

/// Anonymous memory of mappings, or of ends of mappings, that are too small for a whole region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryOutsideRegions {
    /// Bytes mapped, by the power of two of the largest page that fits there (0: 4 KiB, 4: 64 KiB).
    pub mapped_bytes: [u64; 9],
    /// How many of all these bytes are resident.
    pub resident_bytes: u64,
}

/// All eligible regions of one process, in ascending address order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process.
    pub process: ProcessId,
    /// Source of the access figures.
    pub source: CoverageSource,
    /// Regions that are not empty.
    pub regions: Vec<RegionSample>,
    /// Memory outside all regions.
    pub outside: MemoryOutsideRegions,
    /// First touches by the process since its access bits were cleared. Under a hypervisor each of
    /// them costs the process time.
    pub first_touches: u64,
    /// Page faults of the process so far, except those that waited for a disk. `None` where the
    /// number isn't known.
    pub faults: Option<u64>,
    /// Cost of address translation to the process, where it could be determined.
    pub overhead: Option<TranslationOverhead>,
    /// Share of its regions under base pages in which page walks were observed recently (over 0, at
    /// most 1). A large process is not sampled whole at once.
    pub walks_seen: f64,
    /// CPU time it uses, in cores (seconds per second; 0 and up). 1 where unknown.
    pub cpu_cores: f64,
    /// Age of the process; `Duration::MAX` where unknown.
    pub age: Duration,
    /// What the machine's rules set for it.
    pub terms: ProcessSettings,
}

impl ProcessSample {
    /// A sample of the present pages, where no accesses are known.
    pub fn from_present_pages(process: ProcessId, regions: Vec<RegionSample>) -> Self {
        Self {
            process,
            source: CoverageSource::Population,
            regions,
            outside: MemoryOutsideRegions::default(),
            first_touches: 0,
            faults: None,
            overhead: None,
            walks_seen: 1.0,
            cpu_cores: 1.0,
            age: Duration::MAX,
            terms: ProcessSettings::default(),
        }
    }

    /// Leaves out regions of base pages of a process that is not promoted, unless a split or the
    /// process gave a part of them back. Policies would take them for candidates, and each
    /// promotion would be refused. Recovery needs those that it has split, to see whether the
    /// process has filled them again.
    pub fn drop_what_recovery_alone_needs(&mut self) {
        if !self.terms.promotes {
            self.regions.retain(RegionSample::is_huge_or_gave_back);
        }
    }

    /// Whether another look at the process pays: part of it was not seen, it may be promoted, and
    /// the possible saving is enough for that.
    pub fn is_worth_sampling_again(&self) -> bool {
        /// Less than 1, because programs grow and shrink meanwhile.
        const NEARLY_ALL: f64 = 0.95;
        let least = self.terms.min_overhead_to_promote_percent();
        let savable = self.overhead.map(|overhead| overhead.savable_percent());
        self.terms.promotes
            && savable.is_some_and(|percent| percent >= least)
            && self.walks_seen < NEARLY_ALL
    }

    /// Memory in the sampled regions, in bytes.
    pub fn resident_bytes_in_regions(&self) -> u64 {
        let pages: u64 = self.regions.iter().map(|r| u64::from(r.present)).sum();
        pages * BASE_PAGE_BYTES
    }

    /// Memory under huge pages, in bytes.
    pub fn huge_bytes(&self) -> u64 {
        self.regions.iter().filter(|r| r.is_huge()).count() as u64 * HUGE_PAGE_BYTES
    }
}

/// One round of sampling: every managed process, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// When the window ended, since the machine's clock began.
    pub at: Duration,
    /// Processes in order of arrival under management.
    pub processes: Vec<ProcessSample>,
    /// Processes that exist but could not be read this time. What is known of them stays.
    pub unread: Vec<ProcessId>,
    /// Free memory fragmentation index for huge pages. 0: all free memory is in large blocks; 1:
    /// none is. `None` where it cannot be determined.
    pub fmfi: Option<f64>,
    /// What the machine offers.
    pub machine: MachinePageProperties,
}

/// Memory in use and in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Allocated and not cheaply reclaimable, in bytes.
    pub used_bytes: u64,
    /// The machine's memory or the cgroup's limit, in bytes (not 0).
    pub total_bytes: u64,
}

impl MemoryUse {
    /// Share in use, in per cent (above 100 where a limit was lowered).
    pub fn used_percent(self) -> f64 {
        self.used_bytes as f64 * 100.0 / self.total_bytes.max(1) as f64
    }

    /// Bytes that are left until this share is in use, in per cent; 0 where more is.
    pub fn room_bytes_under(self, percent: f64) -> u64 {
        u64::try_from(self.bytes_up_to(percent)).unwrap_or(0)
    }

    /// The same; below 0 where more is in use.
    pub fn bytes_up_to(self, percent: f64) -> i64 {
        let mark_bytes = u64_from_f64(percent / 100.0 * self.total_bytes as f64);
        i64_from_u64(mark_bytes).saturating_sub(i64_from_u64(self.used_bytes))
    }
}

/// A memory limit and the managed processes under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CgroupMemory {
    /// The cgroup's path, for display.
    pub name: String,
    /// Use against the limit.
    pub usage: MemoryUse,
    /// Share of the last 10 s in which some task in the cgroup waited for memory, in per cent.
    /// `None` where the kernel does not report it.
    pub pressure_percent: Option<f64>,
    /// Managed processes in it.
    pub members: Vec<ProcessId>,
}

/// The state of memory on which decisions rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryState {
    /// The whole machine.
    pub machine: MemoryUse,
    /// Every cgroup with a limit that holds a managed process.
    pub groups: Vec<CgroupMemory>,
    /// Managed processes in cgroups that were not read, which may have limits.
    #[serde(default)]
    pub limits_unknown: Vec<ProcessId>,
    /// Share of the last 10 s in which some task waited for memory, in per cent (PSI "some avg10");
    /// `None` where the kernel has no PSI.
    pub pressure_percent: Option<f64>,
    /// Free memory fragmentation index for huge pages (see [`Observation::fmfi`]).
    pub fmfi: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::HUGE_PAGE_BYTES;
    use crate::test_support::process;
    use crate::translation_overhead::TranslationOverheadSource;

    #[test]
    fn of_a_process_that_is_not_promoted_only_full_base_pages_are_left_out() {
        let region = |index| RegionAddr::containing(index * HUGE_PAGE_BYTES);
        let base = |index| RegionSample {
            order: PageOrder::BASE,
            ..RegionSample::new_full_and_untouched(region(index))
        };
        let regions = vec![
            base(1),
            RegionSample { order: PageOrder::HUGE, ..base(2) },
            RegionSample { zero_mapped: 400, ..base(3) },
            RegionSample { freed: 400, ..base(4) },
        ];
        for (promotes, left) in [(true, vec![1, 2, 3, 4]), (false, vec![2, 3, 4])] {
            let mut sample = ProcessSample::from_present_pages(process(1), regions.clone());
            sample.terms.promotes = promotes;
            sample.drop_what_recovery_alone_needs();
            let found: Vec<_> = sample.regions.iter().map(|r| r.region).collect();
            assert_eq!(found, left.into_iter().map(region).collect::<Vec<_>>(), "{promotes}");
        }
    }

    #[test]
    fn only_a_process_that_was_seen_in_part_and_may_gain_is_worth_another_look() {
        let is_worth_it = |walks_seen, percent, promotes| {
            let mut sample = ProcessSample::from_present_pages(process(1), Vec::new());
            let source = TranslationOverheadSource::WalkRate;
            sample.overhead = Some(TranslationOverhead::new_without_error(percent, source));
            sample.walks_seen = walks_seen;
            sample.terms.promotes = promotes;
            sample.is_worth_sampling_again()
        };
        assert!(is_worth_it(0.7, 20.0, true));
        assert!(!is_worth_it(1.0, 20.0, true), "all of it was seen");
        assert!(!is_worth_it(0.7, 0.1, true), "nothing to gain");
        assert!(!is_worth_it(0.7, 20.0, false), "guard");
    }
}
