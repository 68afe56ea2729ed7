//! Access coverage: what clears access bits, what reads them, and what is used where neither works.
//!
//! ```text
//!  probe chooses --> SamplerBackend --> Box<dyn Sampler>
//!                      AccessBits   access_bits.rs  exact: MADV_COLD clears, BPF reads
//!                                   run_rate.rs     walk rates, by probes
//!                      Population   population.rs   what is present, no accesses
//!                      Damon        population.rs   the same, accesses estimated by damon.rs
//! ```
//!
//! A new way of seeing accesses is one file with a [`Sampler`], a variant of [`SamplerBackend`],
//! and a case in the probe that chooses it. Each sampler keeps its own state of every process.

mod access_bits;
mod background_task;
pub(crate) mod damon;
mod population;
pub mod run_rate;
mod sampled_process;
mod slice;

pub use access_bits::{AccessBitBackend, estimate, probe_once};
pub use sampled_process::SampledProcess;
pub use slice::{SliceContext, SliceResult};

use crate::error::Result;
use crate::processes::mappings::Mapping;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::TargetCalls;
use access_bits::AccessBitsSampler;
use hawkeye_manager::SliceProgress;
use hawkeye_policy::{ProcessId, ProcessSample, RegionAddr, RegionSample, SampleKinds};
use population::PopulationSampler;
use std::time::{Duration, Instant};

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
            Self::AccessBits(bits) => Box::new(AccessBitsSampler::new(*bits)),
            Self::Damon => Box::new(PopulationSampler::with_damon()),
            Self::Population => Box::<PopulationSampler>::default(),
        }
    }
}

/// Sees the accesses of the processes to which it was bound.
pub trait Sampler: Send {
    /// File descriptors per process, including its handle.
    fn descriptors(&self) -> usize {
        ProcessHandle::DESCRIPTORS
    }

    /// Prepares for sampling a process.
    ///
    /// # Errors
    /// The process is gone.
    fn bind(&mut self, _process: ProcessId) -> Result<()> {
        Ok(())
    }

    /// Forgets the processes for which `there` is false.
    fn retain(&mut self, there: &dyn Fn(ProcessId) -> bool);

    /// The mappings of a process, as they are now. Without BPF the loop must not call it: it takes
    /// the process's `mmap_lock`.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn mappings(
        &mut self,
        member: &SampledProcess,
        calls: &mut TargetCalls,
    ) -> Result<Vec<Mapping>>;

    /// Starts a window: clears the access bits where they can be seen, or starts DAMON.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn start_window(
        &mut self,
        _member: &mut SampledProcess,
        _needs: SampleKinds,
        _turn: &mut SliceContext,
    ) -> SliceResult<()> {
        Ok(SliceProgress::Done(()))
    }

    /// Drops the unfinished work of a window.
    fn abandon_window(&mut self) {}

    /// Continues to probe a process. Returns the time until the next call, or `None` when the
    /// process is done.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn probe(
        &mut self,
        _member: &SampledProcess,
        _turn: &mut SliceContext,
    ) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Reads all eligible regions of a process.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn sample(
        &mut self,
        member: &mut SampledProcess,
        turn: &mut SliceContext,
    ) -> SliceResult<ProcessSample>;

    /// One region as it is now; `None` where nothing is mapped.
    ///
    /// # Errors
    /// The process is gone.
    fn read_region(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
    ) -> Result<Option<RegionSample>>;

    /// Whether the current mapping allows a region to be managed. A mapping that was registered
    /// with userfaultfd since the last sample may not allow it.
    ///
    /// Without BPF a single mapping cannot be looked up, and the answer is that of the last sample.
    /// That is safe: the kernel refuses to collapse regions in which userfaultfd would miss faults.
    /// Splits are used only where they keep userfaultfd's marks.
    ///
    /// # Errors
    /// `NotAnswering`: the process's `mmap_lock` was held for as long as a helper waited for
    /// it.
    fn still_eligible(
        &mut self,
        _member: &SampledProcess,
        _region: RegionAddr,
        _calls: &mut TargetCalls,
    ) -> Result<bool> {
        Ok(true)
    }

    /// Bytes under huge pages in the mappings that were eligible at the last sample.
    ///
    /// # Errors
    /// The process is gone.
    fn huge_bytes(&mut self, member: &mut SampledProcess, deadline: Instant) -> SliceResult<u64>;

    /// The huge pages in all mappings that are eligible now. Does not disturb a window under way.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn huge_pages(
        &mut self,
        member: &mut SampledProcess,
        turn: &mut SliceContext,
    ) -> SliceResult<Vec<RegionSample>>;

    /// Zero-filled base pages of a huge page, counted up to `enough`; `None` if the region is not
    /// huge.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn zero_pages(
        &mut self,
        member: &SampledProcess,
        region: RegionAddr,
        enough: u16,
        calls: &mut TargetCalls,
    ) -> Result<Option<u16>>;
}

#[cfg(test)]
mod tests;
