//! Access coverage: what clears access bits, what reads them, and what stands in where neither can.

mod bits;
pub mod damon;
mod member;
mod population;
pub mod run_rate;
mod task;

pub use bits::AccessBits;
pub use member::Member;

use crate::counters::Counters;
use crate::error::LinuxError;
use crate::mappings::{self, Mapping};
use crate::page_tables::{Detail, RegionWalk, Target};
use crate::pagemap;
use crate::process::ProcessHandle;
use crate::target_call::TargetCalls;
use damon::{DamonSampler, Estimates};
use hawkeye_policy::{CoverageSource, ProcessSample, RegionAddr, RegionSample, Terms};
use hawkeye_policy::{Needs, OutsideRegions};
use nix::errno::Errno;
use std::time::{Duration, Instant};
use task::{ASK_AGAIN, Task};

/// How the kernel lets us see accesses here; the probe chooses.
pub enum Sampler {
    /// Cleared by `MADV_COLD`, read from page tables by BPF: exact.
    AccessBits(Box<AccessBits>),
    /// Estimated by DAMON, population from pagemap.
    Damon(Box<DamonSampler>),
    /// Population from pagemap: no accesses at all.
    Population,
}

/// How far something has come.
#[derive(Debug)]
pub(crate) enum Slice<T> {
    /// All of it is done.
    Done(T),
    /// It goes on at the next call, after this time.
    Unfinished(Duration),
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

    /// The mappings of a process, as they are now. Not for the loop where there is no BPF: it takes the
    /// process's `mmap_lock`.
    pub(crate) fn mappings(
        &mut self,
        member: &Member,
        calls: &mut TargetCalls,
    ) -> Result<Vec<Mapping>, LinuxError> {
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => bits.mappings(member, target, calls),
            _ => pagemap::mappings(member.handle.id.pid),
        }
    }

    /// Starts a window: clears the access bits where there are any to see, or has DAMON look.
    pub(crate) fn start_window(
        &mut self,
        member: &mut Member,
        needs: Needs,
        calls: &mut TargetCalls,
        deadline: Instant,
    ) -> Result<Slice<()>, LinuxError> {
        if member.thp_disabled {
            return Ok(Slice::Done(()));
        }
        let process = member.handle.id;
        match self {
            Self::AccessBits(bits) => {
                let Some(target) = member.target.take() else {
                    return Ok(Slice::Done(()));
                };
                let started = bits.start(member, &target, needs, calls, deadline);
                member.target = Some(target);
                member.cleared |= matches!(started, Ok(Slice::Done(())));
                started
            }
            Self::Damon(damon) => {
                let estimates = member.estimates.get_or_insert_with(Estimates::default);
                damon.start_window(process, estimates)
            }
            Self::Population => Ok(Slice::Done(())),
        }
    }

    /// Goes on probing a process; how long to wait until the next time, `None` when it is through.
    pub(crate) fn probe(
        &mut self,
        member: &mut Member,
        calls: &mut TargetCalls,
        deadline: Instant,
    ) -> Result<Option<Duration>, LinuxError> {
        let Self::AccessBits(bits) = self else {
            return Ok(None);
        };
        let (Some(target), Some(mut probing)) = (&member.target, member.walks.probing.take())
        else {
            return Ok(None);
        };
        let next = probing.step(&mut bits.tables, member, target, calls, Some(deadline));
        member.walks.probing = Some(probing);
        next
    }

    /// Reads all eligible regions of a process.
    pub(crate) fn sample(
        &mut self,
        member: &mut Member,
        calls: &mut TargetCalls,
        deadline: Instant,
    ) -> Result<Slice<ProcessSample>, LinuxError> {
        let process = member.handle.id;
        if let (Self::Damon(damon), Some(estimates)) = (&mut *self, &mut member.estimates) {
            if let Slice::Unfinished(wait) = damon.end_window(process, estimates)? {
                return Ok(Slice::Unfinished(wait));
            }
        }
        let (regions, by_access_bits) = match (&mut *self, member.target.take()) {
            (Self::AccessBits(bits), Some(target)) => {
                let read = bits.read(member, &target, calls, deadline);
                member.target = Some(target);
                match read? {
                    Slice::Done(regions) => (regions, true),
                    Slice::Unfinished(wait) => return Ok(Slice::Unfinished(wait)),
                }
            }
            _ => match population(member)? {
                Some(regions) => (regions, false),
                None => return Ok(Slice::Unfinished(ASK_AGAIN)),
            },
        };
        let mut regions = regions;
        let mut source = CoverageSource::Population;
        let mut first_touches = 0;
        let mut walks_seen = 1.0;
        match self {
            Self::AccessBits(bits) if by_access_bits => {
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
                if let Some(estimates) = &mut member.estimates {
                    estimates.apply(&mut regions);
                    source = CoverageSource::Estimated;
                }
            }
        }
        Ok(Slice::Done(ProcessSample {
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
        }))
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
    /// `NotAnswering`: the process's `mmap_lock` is taken, and was not let go of while a helper waited for it.
    pub fn still_eligible(
        &mut self,
        member: &Member,
        region: RegionAddr,
        calls: &mut TargetCalls,
    ) -> Result<bool, LinuxError> {
        let (Self::AccessBits(bits), Some(target)) = (self, &member.target) else {
            return Ok(true);
        };
        let start = region.start();
        let found = match bits.tables.mapping_at(target, start) {
            Err(error) if error.errno() == Some(Errno::EBUSY) => {
                let mappings = bits.mappings(member, target, calls)?;
                mappings.into_iter().find(|m| m.range.contains(&start))
            }
            found => found?,
        };
        Ok(found.is_some_and(|m| mappings::region_eligible(&[m], region).is_ok()))
    }

    /// Bytes under huge pages in the mappings that were eligible at the last sample.
    pub(crate) fn huge_bytes(
        &mut self,
        member: &mut Member,
        deadline: Instant,
    ) -> Result<Slice<u64>, LinuxError> {
        let found = match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                let new = || RegionWalk::new(member.eligible.ranges.clone(), Detail::HugeOnly);
                let mut walk = member.measuring.take().unwrap_or_else(new);
                if !bits
                    .tables
                    .walk_until(target, &mut walk, Some(deadline), |_| {})?
                {
                    member.measuring = Some(walk);
                    return Ok(Slice::Unfinished(Duration::ZERO));
                }
                walk.found
            }
            _ => match population(member)? {
                Some(found) => found,
                None => return Ok(Slice::Unfinished(ASK_AGAIN)),
            },
        };
        let huge = found
            .iter()
            .filter(|r| r.is_huge() && r.present > 0)
            .count();
        Ok(Slice::Done(huge as u64 * hawkeye_policy::HUGE_PAGE_BYTES))
    }

    /// The huge pages in all mappings that are eligible now. A window under way is not disturbed.
    pub(crate) fn huge_pages(
        &mut self,
        member: &mut Member,
        calls: &mut TargetCalls,
        deadline: Instant,
    ) -> Result<Slice<Vec<RegionSample>>, LinuxError> {
        let mut found = match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                let mut walk = match member.listing.take() {
                    Some(walk) => walk,
                    None => {
                        if !member.thp_disabled {
                            let mappings = bits.mappings(member, target, calls)?;
                            member.eligible = mappings::eligible(&mappings);
                        }
                        RegionWalk::new(member.eligible.ranges.clone(), Detail::HugeOnly)
                    }
                };
                let timed = |took| calls.note(took);
                if !bits
                    .tables
                    .walk_until(target, &mut walk, Some(deadline), timed)?
                {
                    member.listing = Some(walk);
                    return Ok(Slice::Unfinished(Duration::ZERO));
                }
                walk.found
            }
            _ => match population(member)? {
                Some(found) => found,
                None => return Ok(Slice::Unfinished(ASK_AGAIN)),
            },
        };
        let eligible = &member.eligible;
        found.retain(|r| r.is_huge() && r.present > 0 && !eligible.is_locked(r.region));
        Ok(Slice::Done(found))
    }

    /// Zero-filled base pages of a huge page, counted up to `enough`; `None` if it isn't huge.
    pub(crate) fn zero_pages(
        &mut self,
        member: &Member,
        region: RegionAddr,
        enough: u16,
        calls: &mut TargetCalls,
    ) -> Result<Option<u16>, LinuxError> {
        match (self, &member.target) {
            (Self::AccessBits(bits), Some(target)) => {
                let scan = || bits.tables.scan_zeros(target, region, enough);
                calls.time(scan).0
            }
            _ => {
                let range = region.start()..region.end();
                let found = pagemap::population(member.handle.id.pid, &[range])?.pop();
                // Reading what is not there would have it made.
                if !found.is_some_and(|sample| sample.is_huge() && sample.present > 0) {
                    return Ok(None);
                }
                let zero = calls.zero_pages(&member.handle, region, enough)?;
                Ok(Some(zero.len() as u16))
            }
        }
    }
}

/// All regions of a process with something in them, read by a thread of its own; `None` while it is
/// read. Its eligible mappings are then those of that moment.
fn population(member: &mut Member) -> Result<Option<Vec<RegionSample>>, LinuxError> {
    if member.thp_disabled {
        return Ok(Some(Vec::new()));
    }
    let pid = member.handle.id.pid;
    let begin = || Task::begin(move || population::read(pid));
    let reading = member.population.get_or_insert_with(begin);
    let read = reading.poll(pid, population::PATIENCE);
    if !matches!(read, Ok(None) | Err(LinuxError::NotAnswering(_))) {
        member.population = None;
    }
    let Some(read) = read? else {
        return Ok(None);
    };
    let (eligible, regions) = read?;
    member.eligible = eligible;
    Ok(Some(regions))
}

#[cfg(test)]
mod tests;
