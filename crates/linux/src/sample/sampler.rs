//! Access coverage: what clears access bits, what reads them, and what is used where neither works.
//!
//! ```text
//!  probe chooses --> SamplerBackend --> Box<dyn Sampler>
//!                    AccessBits  access_bits_sampler.rs  exact: MADV_COLD clears, BPF reads
//!                                walk_probing.rs         walk rates, by probes
//!                    Population  pagemap_sampler.rs      what is present, no accesses
//!                    Damon       pagemap_sampler.rs      the same, accesses estimated by damon.rs
//! ```
//!
//! A new way of seeing accesses is one file with a [`Sampler`], a variant of [`SamplerBackend`],
//! and a case in the probe that chooses it. Each sampler keeps its own state of every process.

mod access_bits_sampler;
pub(crate) mod damon;
mod huge_bytes_count;
mod pagemap_sampler;
mod walk_probing;

pub use access_bits_sampler::AccessBitBackend;
pub(super) use walk_probing::ProcessWindowProbing;

use crate::error::Result;
use crate::processes::mappings::{self, EligibleRanges, ManagedMemory, Mapping};
use crate::processes::process::{self, ProcessHandle};
use crate::promote::target_call::CallHelperPool;
use crate::sample::partly_mapped::LostHugePages;
use access_bits_sampler::AccessBitsSampler;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{
    FileRegion, HUGE_PAGE_BYTES, ProcessAttributes, ProcessId, ProcessSample, ProcessSettings,
    RegionAddr, RegionSample, SampleKinds,
};
use huge_bytes_count::HugeBytesCount;
use pagemap_sampler::PagemapSampler;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Result of a slice of work, or why it failed.
pub type SliceResult<T> = Result<SliceProgress<T>>;

/// A slice of work on one process: the calls that it may make, and its deadline.
pub struct ProcessWorkSlice<'a> {
    /// The process.
    pub member: &'a mut SampledProcess,
    /// Calls that take locks of the process.
    pub calls: &'a mut CallHelperPool,
    /// End of the slice.
    pub deadline: Instant,
}

/// A process that was seen to have no huge page, and can get none, is looked at again after this
/// time. Some memory is not eligible at all times, and the flag that forbids huge pages can be
/// reset.
const FREE_OF_HUGE_PAGES_AGE: Duration = Duration::from_secs(60);

/// A managed process: its handle and what was last found in it.
pub struct SampledProcess {
    /// The process.
    pub handle: ProcessHandle,
    /// Its identity.
    pub identity: ProcessAttributes,
    /// Terms on which it is managed.
    pub terms: ProcessSettings,
    /// Whether it or an ancestor had set `PR_SET_THP_DISABLE` when it joined: then none of its
    /// memory can become huge. What is huge already stays so.
    pub thp_disabled: bool,
    /// When it was seen to have no huge page and can get none any more. Then there is nothing to
    /// look for, for a while.
    seen_free_of_huge_pages: Option<Instant>,
    /// Mappings that were eligible at the last sample.
    pub eligible: EligibleRanges,
    /// Whether its mappings were ever listed.
    pub(crate) is_listed: bool,
    /// Bytes under huge pages in them.
    pub(crate) huge_bytes: HugeBytesCount,
    /// Regions in which huge pages may be mapped in part.
    pub(crate) lost_huge_pages: LostHugePages,
}

impl SampledProcess {
    /// Opens a process for management, under the given identity.
    pub fn open(pid: u32, identity: ProcessAttributes, terms: ProcessSettings) -> Result<Self> {
        // `THP_enabled` in `/proc/PID/status` (since 5.0).
        let status = process::read_proc_entry(pid, process::read_status);
        Ok(Self {
            handle: ProcessHandle::open(pid)?,
            identity,
            terms,
            thp_disabled: status.is_ok_and(|status| status.thp_enabled == Some(false)),
            seen_free_of_huge_pages: None,
            eligible: EligibleRanges::default(),
            is_listed: false,
            huge_bytes: HugeBytesCount::default(),
            lost_huge_pages: LostHugePages::default(),
        })
    }

    /// The terms that are in force: nothing is promoted or prefaulted where the kernel would refuse
    /// it.
    pub(crate) fn terms_in_force(&self) -> ProcessSettings {
        let (promotes, prefaults) = match self.thp_disabled {
            true => (false, false),
            false => (self.terms.promotes, self.terms.prefaults),
        };
        ProcessSettings { promotes, prefaults, ..self.terms }
    }

    pub(crate) fn set_eligible(&mut self, eligible: EligibleRanges) {
        self.eligible = eligible;
        self.is_listed = true;
        self.huge_bytes.forget();
    }

    /// Sets what is eligible and what is protected from its current mappings.
    pub(crate) fn set_mappings(&mut self, mappings: &[Mapping], managed: ManagedMemory) {
        let mut found = mappings::collect_eligible_ranges_of(mappings, managed);
        if self.is_free_of_huge_pages() {
            (found.ranges, found.locked) = (Vec::new(), Vec::new());
        }
        self.set_eligible(found);
    }

    /// A sample of the process with these regions, of which only the population is known.
    fn sample_with_population_only(&self, regions: Vec<RegionSample>) -> ProcessSample {
        let process = self.handle.id;
        ProcessSample {
            age: process::process_age(process),
            ..ProcessSample::from_present_pages(process, regions)
        }
    }

    /// Takes in all regions that a walk over its memory found. What it gives back of shared memory
    /// stays in the file.
    pub(crate) fn record_huge_pages(&mut self, found: &[RegionSample]) {
        let huge = found.iter().filter(|found| {
            is_huge_page_with_memory(found) && self.eligible.file_region(found.region).is_none()
        });
        self.lost_huge_pages.record_huge_pages(huge.map(|region| region.region).collect());
    }

    /// Whether there is nothing to recover in it, and nothing to promote.
    fn is_free_of_huge_pages(&self) -> bool {
        self.seen_free_of_huge_pages.is_some_and(|at| at.elapsed() < FREE_OF_HUGE_PAGES_AGE)
    }

    /// Takes in whether there is anything to recover. For after [`Self::record_huge_pages`], with
    /// all that is eligible now.
    fn update_seen_free_of_huge_pages(&mut self) {
        if !self.is_free_of_huge_pages() {
            let is_free = self.thp_disabled && self.lost_huge_pages.is_empty();
            self.seen_free_of_huge_pages = is_free.then(Instant::now);
        }
    }

    /// The huge pages with memory of their own, outside of locked memory.
    fn keep_unlocked_huge_pages(&self, mut regions: Vec<RegionSample>) -> Vec<RegionSample> {
        regions
            .retain(|r| is_huge_page_with_memory(r) && !self.eligible.is_region_locked(r.region));
        regions
    }
}

/// Whether a region is a huge page with memory of its own.
pub(crate) fn is_huge_page_with_memory(region: &RegionSample) -> bool {
    region.is_huge() && region.present > 0
}

/// Bytes of the huge pages with memory of their own.
fn sum_huge_bytes(regions: &[RegionSample]) -> u64 {
    let huge = regions.iter().filter(|region| is_huge_page_with_memory(region));
    huge.count() as u64 * HUGE_PAGE_BYTES
}

/// How the kernel lets us see accesses on this machine; the probe chooses it.
pub enum SamplerBackend {
    /// Access bits, cleared by `MADV_COLD` and read from page tables by BPF: exact.
    AccessBits(Box<AccessBitBackend>),
    /// Accesses are estimated by DAMON; population comes from pagemap.
    Damon,
    /// Population from pagemap: no accesses at all.
    Population,
}

impl SamplerBackend {
    /// A sampler that is bound to no process yet.
    pub fn into_sampler(self) -> Box<dyn Sampler> {
        match self {
            Self::AccessBits(bits) => {
                Box::new(AccessBitsSampler { bits: *bits, watched: HashMap::new() })
            }
            Self::Damon => Box::new(PagemapSampler::with_damon()),
            Self::Population => Box::<PagemapSampler>::default(),
        }
    }
}

/// Sees the accesses of the processes to which it was bound. Calls fail if the process is gone or
/// does not answer.
pub trait Sampler: Send {
    /// File descriptors per process, including its handle.
    fn descriptors_per_process(&self) -> usize {
        ProcessHandle::DESCRIPTORS
    }

    /// Prepares for sampling a process.
    fn bind(&mut self, _process: ProcessId) -> Result<()> {
        Ok(())
    }

    /// Forgets the processes for which `there` is false.
    fn retain_processes(&mut self, there: &dyn Fn(ProcessId) -> bool);

    /// The mappings of a process, as they are now. Without BPF, as they were at the last sample:
    /// reading them takes the process's `mmap_lock`.
    fn list_mappings(
        &mut self,
        member: &SampledProcess,
        calls: &mut CallHelperPool,
    ) -> Result<Vec<Mapping>>;

    /// Starts a window: clears the access bits where they can be seen, or starts DAMON.
    fn start_window(
        &mut self,
        _slice: &mut ProcessWorkSlice,
        _needs: SampleKinds,
    ) -> SliceResult<()> {
        Ok(SliceProgress::Done(()))
    }

    /// Drops the unfinished work of a window.
    fn abandon_all_windows(&mut self) {}

    /// Continues to probe a process. Returns the time until the next call, or `None` when the
    /// process is done.
    fn continue_walk_probing(&mut self, _slice: &mut ProcessWorkSlice) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Reads all eligible regions of a process.
    fn read_sample(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<ProcessSample>;

    /// One region as it is now; `None` where nothing is mapped. Without BPF, a helper reads it.
    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        calls: &mut CallHelperPool,
    ) -> Result<Option<RegionSample>>;

    /// The range around a region that its current mapping allows to be managed; `None` if it does
    /// not allow that, or is no longer of this part of a `file`, or of private memory (`None`). A
    /// mapping that was registered with userfaultfd since the last sample may not allow it.
    ///
    /// Without BPF a single mapping cannot be looked up, and the answer is the region, as at the
    /// last sample. That is safe: the kernel refuses to collapse regions in which userfaultfd would
    /// miss faults. Splits are used only where they keep userfaultfd's marks.
    ///
    /// Fails with `NotAnswering` if the process's `mmap_lock` was held for as long as a helper
    /// waited for it.
    fn eligible_range_around(
        &mut self,
        _member: &SampledProcess,
        region: RegionAddr,
        _file: Option<FileRegion>,
        _calls: &mut CallHelperPool,
    ) -> Result<Option<Range<u64>>> {
        Ok(Some(region.start()..region.end()))
    }

    /// Which memory of a process is managed. Shared memory is not managed where accesses to it
    /// cannot be seen.
    fn managed_memory(&self, _member: &SampledProcess) -> ManagedMemory {
        ManagedMemory::Private
    }

    /// Bytes under huge pages in the mappings that were eligible at the last sample.
    fn count_huge_bytes(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<u64>;

    /// The huge pages in all mappings that are eligible now. Does not disturb a window under way.
    fn list_huge_pages(&mut self, slice: &mut ProcessWorkSlice) -> SliceResult<Vec<RegionSample>>;

    /// Zero-filled base pages of a huge page, counted up to `enough`; `None` if the region is not
    /// huge.
    fn count_zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut CallHelperPool,
    ) -> Result<Option<u16>>;
}

#[cfg(test)]
mod tests;
