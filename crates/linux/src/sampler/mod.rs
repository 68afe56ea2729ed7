//! Access coverage: what clears access bits, what reads them, and what stands in where neither can.

mod bits;
pub mod damon;
mod member;
pub mod run_rate;

pub use bits::AccessBits;
pub use member::Member;

use crate::counters::Counters;
use crate::error::LinuxError;
use crate::mappings::{self, Mapping};
use crate::page_tables::{Detail, Target};
use crate::pagemap;
use crate::process::ProcessHandle;
use damon::{DamonSampler, Estimates};
use hawkeye_policy::{CoverageSource, ProcessSample, RegionAddr, RegionSample, Terms};
use hawkeye_policy::{Needs, OutsideRegions};
use std::time::{Duration, Instant};

/// How the kernel lets us see accesses here; the probe chooses.
pub enum Sampler {
    /// Clear by advice or `clear_refs`, read page tables by BPF: exact.
    AccessBits(Box<AccessBits>),
    /// Estimated by DAMON, population from pagemap.
    Damon(Box<DamonSampler>),
    /// Population from pagemap: no accesses at all.
    Population,
}

/// How long calls into other processes took.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTimes {
    /// The longest so far.
    pub longest: Duration,
    /// How many took longer than `SLOW`.
    pub slow: u64,
}

/// After calls that take longer the manager backs off.
const SLOW: Duration = Duration::from_millis(30);

impl CallTimes {
    /// Takes note of one call.
    pub fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        self.slow += u64::from(took > SLOW);
    }

    /// Runs one call and takes note of it.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        let begun = Instant::now();
        let result = call();
        let took = begun.elapsed();
        self.note(took);
        (result, took)
    }
}

impl Sampler {
    /// File descriptors that a member takes, its handle included.
    pub fn descriptors(&self) -> usize {
        let own = match self {
            Self::AccessBits(bits) => {
                Target::DESCRIPTORS + bits.counters.as_ref().map_or(0, Counters::descriptors)
            }
            Self::Damon(_) | Self::Population => 0,
        };
        ProcessHandle::DESCRIPTORS + own
    }

    /// Prepares for sampling a process.
    pub fn bind(&self, member: &mut Member) -> Result<(), LinuxError> {
        if let Self::AccessBits(bits) = self {
            member.target = Some(bits.tables.bind(member.handle.id.pid)?);
        }
        Ok(())
    }

    /// The mappings of a process, as they are now.
    pub fn mappings(&mut self, member: &Member) -> Result<Vec<Mapping>, LinuxError> {
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => bits.tables.mappings(target),
            _ => pagemap::mappings(member.handle.id.pid),
        }
    }

    /// Starts a window: clears the access bits where there are any to see, or has DAMON look.
    pub fn start_window(
        &mut self,
        member: &mut Member,
        needs: Needs,
        calls: &mut CallTimes,
    ) -> Result<(), LinuxError> {
        if member.thp_disabled {
            return Ok(());
        }
        let process = member.handle.id;
        match self {
            Self::AccessBits(bits) => {
                let Some(target) = member.target.take() else {
                    return Ok(());
                };
                let started = bits.start(member, &target, needs, calls);
                member.target = Some(target);
                member.cleared |= started.is_ok();
                started
            }
            Self::Damon(damon) => {
                let estimates = member.estimates.get_or_insert_with(Estimates::default);
                damon.start_window(process, estimates, || populated(process.pid))
            }
            Self::Population => Ok(()),
        }
    }

    /// Goes on probing a process; how long to wait until the next time, `None` when it is through.
    pub fn probe(
        &mut self,
        member: &mut Member,
        calls: &mut CallTimes,
    ) -> Result<Option<Duration>, LinuxError> {
        let Self::AccessBits(bits) = self else {
            return Ok(None);
        };
        let (Some(target), Some(mut probing)) = (&member.target, member.walks.probing.take())
        else {
            return Ok(None);
        };
        let next = probing.step(&mut bits.tables, member, target, calls);
        member.walks.probing = Some(probing);
        next
    }

    /// Reads all eligible regions of a process.
    pub fn sample(
        &mut self,
        member: &mut Member,
        calls: &mut CallTimes,
    ) -> Result<ProcessSample, LinuxError> {
        let process = member.handle.id;
        if let (Self::Damon(damon), Some(estimates)) = (&mut *self, &mut member.estimates) {
            damon.end_window(process, estimates)?;
        }
        // Told to do without huge pages: there is nothing in it for us.
        if !member.thp_disabled {
            member.eligible = mappings::eligible(&self.mappings(member)?);
        }
        if let Self::AccessBits(bits) = &*self {
            bits.end_window(member)?;
        }
        let ranges = &member.eligible.ranges;
        let mut regions = Vec::new();
        let mut source = CoverageSource::Population;
        let mut first_touches = 0;
        let mut walks_seen = 1.0;
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                let timed = |took| calls.note(took);
                let tables = &mut bits.tables;
                tables.walk(target, ranges, Detail::Regions, &mut regions, timed)?;
                member.eligible.forget_accesses_of_locked(&mut regions);
                if member.cleared {
                    source = CoverageSource::AccessBits;
                    first_touches = regions.iter().map(run_rate::first_touches_of).sum();
                }
                if bits.walk_costs.is_some() {
                    let known = member.walks.apply(&mut regions);
                    walks_seen = known.seen;
                    // Nothing but the probed regions was ever cleared.
                    if !member.all_cleared {
                        first_touches = known.first_touches;
                    }
                }
            }
            _ => {
                regions = calls.time(|| pagemap::population(process.pid, ranges)).0?;
                if let Some(estimates) = &mut member.estimates {
                    estimates.apply(&mut regions);
                    source = CoverageSource::Estimated;
                }
            }
        }
        Ok(ProcessSample {
            outside: OutsideRegions::default(),
            faults: None,
            process,
            source,
            regions,
            first_touches,
            overhead: member.walks.overhead,
            walks_seen,
            cpu_cores: member.walks.cpu_cores.unwrap_or(1.0),
            age: crate::process::age(process),
            terms: Terms::default(),
        })
    }

    /// One region as it is now; `None` where nothing is mapped.
    pub fn look(
        &mut self,
        member: &Member,
        region: RegionAddr,
    ) -> Result<Option<RegionSample>, LinuxError> {
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => bits.tables.region(target, region),
            _ => {
                let range = region.start()..region.end();
                Ok(pagemap::population(member.handle.id.pid, &[range])?.pop())
            }
        }
    }

    /// Whether a region may be managed by the mapping that is there at this moment; one that was registered with userfaultfd
    /// since the last sample may not.
    ///
    /// Without BPF a mapping can't be looked up alone, and the answer is that of the last sample: the kernel itself refuses to
    /// collapse what userfaultfd would miss, and splits are used only where they keep its marks.
    ///
    /// # Errors
    /// `EBUSY`: the process's `mmap_lock` is taken at the moment.
    pub fn still_eligible(
        &mut self,
        member: &Member,
        region: RegionAddr,
    ) -> Result<bool, LinuxError> {
        let (Self::AccessBits(bits), Some(target)) = (self, &member.target) else {
            return Ok(true);
        };
        let found = bits.tables.mapping_at(target, region.start())?;
        Ok(found.is_some_and(|m| mappings::region_eligible(&[m], region).is_ok()))
    }

    /// Bytes under huge pages in the mappings that were eligible at the last sample.
    pub fn huge_bytes(&mut self, member: &Member) -> Result<u64, LinuxError> {
        let ranges = &member.eligible.ranges;
        let mut found = Vec::new();
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                bits.tables
                    .walk(target, ranges, Detail::HugeOnly, &mut found, |_| {})?;
            }
            _ => found = pagemap::population(member.handle.id.pid, ranges)?,
        }
        let huge = found
            .iter()
            .filter(|r| r.is_huge() && r.present > 0)
            .count();
        Ok(huge as u64 * hawkeye_policy::HUGE_PAGE_BYTES)
    }

    /// The huge pages in all mappings that are eligible now. A window under way is not disturbed.
    pub fn huge_pages(
        &mut self,
        member: &mut Member,
        calls: &mut CallTimes,
    ) -> Result<Vec<RegionSample>, LinuxError> {
        if !member.thp_disabled {
            member.eligible = mappings::eligible(&self.mappings(member)?);
        }
        let ranges = &member.eligible.ranges;
        let mut found = Vec::new();
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                let timed = |took| calls.note(took);
                bits.tables
                    .walk(target, ranges, Detail::HugeOnly, &mut found, timed)?;
            }
            _ => {
                let pid = member.handle.id.pid;
                found = calls.time(|| pagemap::population(pid, ranges)).0?;
            }
        }
        let eligible = &member.eligible;
        found.retain(|r| r.is_huge() && r.present > 0 && !eligible.is_locked(r.region));
        Ok(found)
    }

    /// Zero-filled base pages of a huge page, counted up to `enough`; `None` if it isn't huge.
    pub fn zero_pages(
        &mut self,
        member: &Member,
        region: RegionAddr,
        enough: u16,
    ) -> Result<Option<u16>, LinuxError> {
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                bits.tables.scan_zeros(target, region, enough)
            }
            _ => {
                let range = region.start()..region.end();
                let found = pagemap::population(member.handle.id.pid, &[range])?.pop();
                // Reading what is not there would have it made.
                if !found.is_some_and(|sample| sample.is_huge() && sample.present > 0) {
                    return Ok(None);
                }
                let zero = pagemap::zero_pages(&member.handle, region, enough)?;
                Ok(Some(zero.len() as u16))
            }
        }
    }
}

/// Regions of a process with memory in them.
fn populated(pid: u32) -> Result<Vec<RegionAddr>, LinuxError> {
    let ranges = mappings::eligible(&pagemap::mappings(pid)?).ranges;
    let found = pagemap::population(pid, &ranges)?;
    Ok(found
        .iter()
        .filter(|sample| sample.present > 0)
        .map(|sample| sample.region)
        .collect())
}
