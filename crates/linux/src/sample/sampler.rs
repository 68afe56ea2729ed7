//! Access coverage: what clears access bits, what reads them, and what stands in where neither can.
//!
//! ```text
//!  probe chooses --> Seeing --> Box<dyn Sampler>
//!                      AccessBits   access_bits.rs  exact: MADV_COLD clears, BPF reads; run_rate.rs probes
//!                      Damon        damon.rs        estimated
//!                      Population   population.rs   what is present, no accesses
//! ```
//!
//! A new way of seeing is one file with a [`Sampler`], a variant of [`Seeing`], and a case in the
//! probe that chooses it. Each keeps what it knows of every process itself.

mod access_bits;
pub mod damon;
mod member;
mod population;
pub mod run_rate;
mod slice;
mod task;

pub use access_bits::{AccessBits, estimate, probe_once};
pub use member::Member;
pub use slice::{Slice, Sliced, Turn};

use crate::error::Result;
use crate::processes::mappings::Mapping;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::TargetCalls;
use access_bits::AccessBitsSampler;
use damon::DamonSampler;
use hawkeye_policy::{Needs, ProcessId, ProcessSample, RegionAddr, RegionSample};
use population::PopulationSampler;
use std::time::{Duration, Instant};

/// How the kernel lets us see accesses here; the probe chooses.
pub enum Seeing {
    /// Cleared by `MADV_COLD`, read from page tables by BPF: exact.
    AccessBits(Box<AccessBits>),
    /// Estimated by DAMON, population from pagemap.
    Damon,
    /// Population from pagemap: no accesses at all.
    Population,
}

impl Seeing {
    /// A sampler that knows no process yet.
    pub fn sampler(self) -> Box<dyn Sampler> {
        match self {
            Self::AccessBits(bits) => Box::new(AccessBitsSampler::new(*bits)),
            Self::Damon => Box::<DamonSampler>::default(),
            Self::Population => Box::<PopulationSampler>::default(),
        }
    }
}

/// Sees accesses of the processes that it was bound to.
pub trait Sampler: Send {
    /// File descriptors that a process takes, its handle included.
    fn descriptors(&self) -> usize {
        ProcessHandle::DESCRIPTORS
    }

    /// Prepares for sampling a process.
    ///
    /// # Errors
    /// It is gone.
    fn bind(&mut self, _process: ProcessId) -> Result<()> {
        Ok(())
    }

    /// Forgets the processes for which `there` is false.
    fn retain(&mut self, there: &dyn Fn(ProcessId) -> bool);

    /// The mappings of a process, as they are now. Not for the loop where there is no BPF: it takes
    /// the process's `mmap_lock`.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn mappings(&mut self, member: &Member, calls: &mut TargetCalls) -> Result<Vec<Mapping>>;

    /// Starts a window: clears the access bits where there are any to see, or has DAMON look.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn start_window(
        &mut self,
        _member: &mut Member,
        _needs: Needs,
        _turn: &mut Turn,
    ) -> Sliced<()> {
        Ok(Slice::Done(()))
    }

    /// What is unfinished of a window is not gone on with.
    fn abandon_window(&mut self) {}

    /// Goes on probing a process; how long to wait until the next time, `None` when it is through.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn probe(&mut self, _member: &Member, _turn: &mut Turn) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Reads all eligible regions of a process.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn sample(&mut self, member: &mut Member, turn: &mut Turn) -> Sliced<ProcessSample>;

    /// One region as it is now; `None` where nothing is mapped.
    ///
    /// # Errors
    /// The process is gone.
    fn look(&mut self, member: &Member, region: RegionAddr) -> Result<Option<RegionSample>>;

    /// Whether a region may be managed by the mapping that is there at this moment; one that was
    /// registered with userfaultfd since the last sample may not.
    ///
    /// Without BPF a mapping can't be looked up alone, and the answer is that of the last sample: the
    /// kernel itself refuses to collapse what userfaultfd would miss, and splits are used only where
    /// they keep its marks.
    ///
    /// # Errors
    /// `NotAnswering`: the process's `mmap_lock` is taken, and was not let go of while a helper waited
    /// for it.
    fn still_eligible(
        &mut self,
        _member: &Member,
        _region: RegionAddr,
        _calls: &mut TargetCalls,
    ) -> Result<bool> {
        Ok(true)
    }

    /// Bytes under huge pages in the mappings that were eligible at the last sample.
    ///
    /// # Errors
    /// The process is gone.
    fn huge_bytes(&mut self, member: &mut Member, deadline: Instant) -> Sliced<u64>;

    /// The huge pages in all mappings that are eligible now. A window under way is not disturbed.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn huge_pages(&mut self, member: &mut Member, turn: &mut Turn) -> Sliced<Vec<RegionSample>>;

    /// Zero-filled base pages of a huge page, counted up to `enough`; `None` if it isn't huge.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    fn zero_pages(
        &mut self,
        member: &Member,
        region: RegionAddr,
        enough: u16,
        calls: &mut TargetCalls,
    ) -> Result<Option<u16>>;
}

#[cfg(test)]
mod tests;
