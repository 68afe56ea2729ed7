//! The simulated machine as the manager sees it.

use crate::machine::SimMachine;
use crate::process::SimProcess;
use hawkeye_manager::{
    Explain, FaultPageSizes, Footprint, Machine, MachineError, OwnCosts, Prefault, Progress,
    Promoted, Recovered, Sampling, Wake, ZeroScan,
};
use hawkeye_policy::{
    BASE_PAGE_BYTES, CoverageSource, Errno, GroupMemory, HUGE_PAGE_BYTES, MAX_SHARED_PAGES,
    MemoryState, MemoryUse, Needs, OutsideRegions, Overhead, OverheadSource, PAGES_PER_REGION,
    PageOrder, ProcessId, ProcessSample, RegionAddr, RegionSample, Scope,
};
use std::time::Duration;

/// What a promotion is refused with when there is a free huge frame, but not for the process's group
/// (`madvise_collapse_errno`, mm/khugepaged.c).
const NOT_FOR_GROUP: Errno = Errno::EBUSY;

impl SimMachine {
    fn alive(&self, id: ProcessId) -> Result<&SimProcess, MachineError> {
        let process = self.process(id).filter(|process| process.is_alive());
        process.ok_or(MachineError::Gone(id))
    }

    /// A call into another process: takes `cpu` and `waiting`; returns the sum.
    fn call(&mut self, cpu: Duration, waiting: Duration) -> Duration {
        self.spend(cpu, waiting);
        self.longest_call = self.longest_call.max(cpu + waiting);
        cpu + waiting
    }

    fn try_promote(
        &mut self,
        id: ProcessId,
        address: RegionAddr,
        expected_present: u16,
    ) -> Result<Promoted, MachineError> {
        let refused = |errno| MachineError::Refused {
            call: "collapse",
            process: id,
            errno,
        };
        let look = self.spec.costs.walk_per_region;
        let waiting = self.faults.waiting();
        let candidate = self.alive(id)?.region(address).is_some_and(|r| !r.huge);
        if !candidate {
            self.call(look, waiting);
            return Ok(Promoted::NotCandidate);
        }
        if let Some(errno) = self.faults.promotion() {
            self.call(look, waiting);
            return Err(refused(errno));
        }
        let took = self.call(self.spec.costs.collapse, waiting);
        // What counts is how things stand when the call comes to it, not when it was made.
        let process = self.alive(id)?;
        let Some(region) = process.region(address).filter(|r| !r.huge) else {
            return Ok(Promoted::NotCandidate);
        };
        if region.present.count() < expected_present {
            return Ok(Promoted::Freed);
        }
        let shared = self.shared.get(&(id, address));
        if let Some(pages) = shared.map(|it| it.shared).filter(|n| *n > MAX_SHARED_PAGES) {
            return Ok(Promoted::Shared { pages });
        }
        // The new frame is there before the old pages are given back.
        if self.room(None) < HUGE_PAGE_BYTES {
            return Err(refused(Errno::ENOMEM));
        }
        if self.room(process.group.as_deref()) < HUGE_PAGE_BYTES {
            return Err(refused(NOT_FOR_GROUP));
        }
        if let Some(process) = self.alive_mut(id) {
            process.change_region(address, |region| i32::from(region.collapse()));
        }
        Ok(Promoted::Done(took))
    }

    fn machine_memory(&self) -> MemoryUse {
        MemoryUse {
            used_bytes: self.used_bytes(),
            total_bytes: self.spec.total_bytes,
        }
    }

    fn group_use(&self, name: &str, limit: u64) -> MemoryUse {
        MemoryUse {
            used_bytes: self.group_used_bytes(name),
            total_bytes: limit,
        }
    }

    fn group_memory(&self) -> Vec<GroupMemory> {
        let groups = self.groups.iter().map(|(name, limit)| GroupMemory {
            name: name.clone(),
            usage: self.group_use(name, *limit),
            pressure_percent: None,
            members: self.there(|p| p.group.as_deref() == Some(name.as_str())),
        });
        groups.filter(|group| !group.members.is_empty()).collect()
    }

    /// Processes that are there, first come first.
    fn there(&self, which: impl Fn(&SimProcess) -> bool) -> Vec<ProcessId> {
        let alive = self.processes.iter().filter(|p| p.is_alive() && which(p));
        let mut there: Vec<&SimProcess> = alive.collect();
        there.sort_by_key(|process| process.arrives);
        there.iter().map(|process| process.id).collect()
    }
}

impl Machine for SimMachine {
    fn now(&self) -> Duration {
        self.now
    }

    fn wait_until(&mut self, deadline: Duration) -> Wake {
        self.advance_to(deadline, true);
        self.debug_check();
        if self.is_over() {
            Wake::Stop
        } else {
            Wake::Deadline
        }
    }

    fn processes(&mut self, _until: Duration) -> Progress<Vec<ProcessId>> {
        Progress::Done(self.there(|_| true))
    }

    fn memory(&mut self) -> Result<MemoryState, MachineError> {
        if self.faults.memory() {
            let message = "the state of memory can't be read (injected)";
            return Err(MachineError::Other(message.to_owned()));
        }
        Ok(MemoryState {
            machine: self.machine_memory(),
            groups: self.group_memory(),
            pressure_percent: self.pressure_percent,
            fmfi: self.fmfi,
        })
    }

    fn memory_use(&mut self, scope: &Scope) -> Result<MemoryUse, MachineError> {
        match scope {
            Scope::Machine => Ok(self.machine_memory()),
            Scope::Group(name) => self
                .groups
                .get(name)
                .map(|limit| self.group_use(name, *limit))
                .ok_or_else(|| MachineError::Other(format!("there is no group {name}"))),
        }
    }

    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        expected_present: u16,
    ) -> Result<Promoted, MachineError> {
        if order != PageOrder::HUGE {
            return Err(MachineError::PageSize(order));
        }
        let outcome = self.try_promote(process, region, expected_present);
        self.debug_check();
        outcome
    }

    fn scan_zeros(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScan, MachineError> {
        let costs = self.spec.costs;
        let (mut zero_pages, mut used_pages) = (0, 0);
        let scanned = self.alive(process)?.region(region).filter(|r| r.huge);
        if let Some(scanned) = scanned {
            let pages = (0..PAGES_PER_REGION).map(|page| scanned.nonzero.contains(page));
            for nonzero in pages {
                if zero_pages >= enough {
                    break;
                }
                if nonzero {
                    used_pages += 1;
                } else {
                    zero_pages += 1;
                }
            }
        }
        let took = costs.scan_used_page * used_pages + costs.scan_zero_page * u32::from(zero_pages);
        self.spend(took, Duration::ZERO);
        self.debug_check();
        Ok(ZeroScan { zero_pages, took })
    }

    fn recover(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Result<Recovered, MachineError> {
        self.alive(process)?;
        if let Some(errno) = self.faults.recovery() {
            self.call(self.spec.costs.walk_per_region, Duration::ZERO);
            return Err(MachineError::Refused {
                call: "split",
                process,
                errno,
            });
        }
        let took = self.call(self.spec.costs.split, Duration::ZERO);
        let mut freed = 0;
        let split = self.alive_mut(process).ok_or(MachineError::Gone(process))?;
        split.change_region(region, |region| {
            freed = region.split_zeros();
            -i32::from(freed)
        });
        let left_present = split.region(region).map_or(0, |r| r.present.count());
        self.debug_check();
        Ok(Recovered {
            bytes: u64::from(freed) * BASE_PAGE_BYTES,
            left_present,
            took,
            longest_call: took,
        })
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        _until: Duration,
    ) -> Result<Progress<Footprint>, MachineError> {
        let process = self.alive(process)?;
        Ok(Progress::Done(Footprint {
            rss_bytes: process.rss_bytes(),
            huge_bytes: process.huge_bytes(),
        }))
    }

    fn own_costs(&self) -> OwnCosts {
        OwnCosts {
            cpu: self.manager_cpu,
            longest_call: self.longest_call,
        }
    }
}

impl Sampling for SimMachine {
    fn start_window(
        &mut self,
        process: ProcessId,
        _: Needs,
        _until: Duration,
    ) -> Result<Progress<()>, MachineError> {
        let costs = self.spec.costs;
        let cleared = self.alive_mut(process).ok_or(MachineError::Gone(process))?;
        cleared.clear_bits();
        let huge_pages = cleared.huge_bytes() / HUGE_PAGE_BYTES;
        let base_pages = cleared.present_pages - huge_pages * u64::from(PAGES_PER_REGION);
        let cpu = times(costs.clear_per_page, base_pages) + times(costs.clear_per_huge, huge_pages);
        self.call(cpu, Duration::ZERO);
        self.debug_check();
        Ok(Progress::Done(()))
    }

    fn sample(
        &mut self,
        process: ProcessId,
        _until: Duration,
    ) -> Result<Progress<ProcessSample>, MachineError> {
        if self.faults.sample() {
            let message = format!("process {process} can't be sampled (injected)");
            return Err(MachineError::Other(message));
        }
        let costs = self.spec.costs;
        let sampled = self.alive_mut(process).ok_or(MachineError::Gone(process))?;
        sampled.update_bits();
        let mut regions = sampled.walk(sampled.cleared);
        let overhead = sampled.overhead_percent(&costs);
        let overhead = overhead.map(|percent| Overhead::exact(percent, OverheadSource::Counters));
        let (terms, arrived) = (sampled.terms, sampled.arrives);
        let source = if sampled.cleared {
            CoverageSource::AccessBits
        } else {
            CoverageSource::Population
        };
        for region in &mut regions {
            let pages = self.shared.get(&(process, region.region));
            region.maybe_shared = pages.map_or(0, |pages| pages.maybe_shared);
        }
        let huge = regions.iter().filter(|region| region.is_huge()).count() as u64;
        let base = regions.len() as u64 - huge;
        // Done in short slices: not one long call.
        let cpu = times(costs.walk_per_region, base) + times(costs.walk_per_huge, huge);
        self.spend(cpu, Duration::ZERO);
        self.debug_check();
        Ok(Progress::Done(ProcessSample {
            outside: OutsideRegions::default(),
            faults: None,
            process,
            source,
            first_touches: touches(source, &regions),
            regions,
            overhead,
            walks_seen: 1.0,
            cpu_cores: 1.0,
            age: self.now.saturating_sub(arrived),
            terms,
        }))
    }

    fn huge_pages(
        &mut self,
        process: ProcessId,
        _until: Duration,
    ) -> Result<Progress<Vec<RegionSample>>, MachineError> {
        let regions = self.alive(process)?.walk(false);
        let huge: Vec<_> = regions
            .into_iter()
            .filter(|region| region.is_huge())
            .collect();
        let cpu = times(self.spec.costs.walk_per_huge, huge.len() as u64);
        self.spend(cpu, Duration::ZERO);
        Ok(Progress::Done(huge))
    }

    fn first_touch_cost(&self) -> Duration {
        self.spec.costs.first_touch
    }
}

impl FaultPageSizes for SimMachine {}

impl Prefault for SimMachine {}

impl Explain for SimMachine {}

fn times(cost: Duration, count: u64) -> Duration {
    Duration::from_nanos(cost.as_nanos() as u64 * count)
}

/// Touches that set an access bit: one for each base page, one for a huge page.
fn touches(source: CoverageSource, regions: &[RegionSample]) -> u64 {
    if source == CoverageSource::Population {
        return 0;
    }
    let of = |r: &RegionSample| {
        if r.is_huge() {
            u64::from(r.accessed > 0)
        } else {
            u64::from(r.accessed)
        }
    };
    regions.iter().map(of).sum()
}
