//! The simulated machine: memory, processes, and what a test wants to know of them.

use crate::change::{Change, Faults};
use crate::costs::Costs;
use crate::error::SimError;
use crate::process::{End, SimProcess};
use crate::spec::{MachineSpec, ProcessSpec};
use hawkeye_policy::{BASE_PAGE_BYTES, ProcessId, RegionAddr};
use std::collections::BTreeMap;
use std::time::Duration;

/// A simulated machine under management.
#[derive(Clone, Debug)]
pub struct SimMachine {
    pub(crate) spec: MachineSpec,
    pub(crate) now: Duration,
    /// In the order in which they were given.
    pub(crate) processes: Vec<SimProcess>,
    pub(crate) scheduled: BTreeMap<Duration, Vec<Change>>,
    pub(crate) faults: Faults,
    pub(crate) other_bytes: u64,
    pub(crate) pressure_percent: Option<f64>,
    pub(crate) fmfi: Option<f64>,
    /// Limits by name, in bytes.
    pub(crate) groups: BTreeMap<String, u64>,
    /// Pages that are shared with processes which the machine does not simulate.
    pub(crate) shared: BTreeMap<(ProcessId, RegionAddr), SharedPages>,
    pub(crate) manager_cpu: Duration,
    pub(crate) longest_call: Duration,
}

/// Base pages of a region that processes share (each 0-512).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPages {
    /// Write-protected: what samples show.
    pub maybe_shared: u16,
    /// Of these, shared indeed: what a promotion finds.
    pub shared: u16,
}

/// Pid of the first process.
const FIRST_PID: u32 = 1000;
/// Clock ticks per second in `/proc/PID/stat`.
const TICKS_PER_S: u128 = 100;

impl SimMachine {
    /// A machine without processes, without other memory in use, and without pressure.
    ///
    /// # Errors
    /// An access that takes no time.
    pub fn new(spec: MachineSpec) -> Result<Self, SimError> {
        spec.costs.check()?;
        Ok(Self {
            spec,
            now: Duration::ZERO,
            processes: Vec::new(),
            scheduled: BTreeMap::new(),
            faults: Faults::default(),
            other_bytes: 0,
            pressure_percent: Some(0.0),
            fmfi: Some(0.0),
            groups: BTreeMap::new(),
            shared: BTreeMap::new(),
            manager_cpu: Duration::ZERO,
            longest_call: Duration::ZERO,
        })
    }

    /// Sets the memory limit of a cgroup, in bytes. Groups without one don't count.
    ///
    /// # Errors
    /// A limit under what the group's processes hold already.
    pub fn limit_group(&mut self, name: &str, limit_bytes: u64) -> Result<(), SimError> {
        let used_bytes = self.group_used_bytes(name);
        if used_bytes > limit_bytes {
            return Err(SimError::Limit {
                limit_bytes,
                used_bytes,
            });
        }
        self.groups.insert(name.to_owned(), limit_bytes);
        Ok(())
    }

    /// From now on so many pages of a region of a process are shared with others. They share their memory with processes outside of
    /// the simulation: figures of memory stay.
    pub fn share(&mut self, process: ProcessId, region: RegionAddr, pages: SharedPages) {
        self.shared.insert((process, region), pages);
    }

    /// Gives the machine a process, which starts when it arrives (at once, if that is past). One that
    /// finds too little memory later on is killed as it starts.
    ///
    /// # Errors
    /// A specification that makes no sense, or too little memory for a process that starts at once.
    pub fn start(&mut self, mut spec: ProcessSpec) -> Result<ProcessId, SimError> {
        spec.check()?;
        spec.arrives = spec.arrives.max(self.now);
        let id = ProcessId {
            pid: FIRST_PID + self.processes.len() as u32,
            start_ticks: (spec.arrives.as_millis() * TICKS_PER_S / 1000) as u64,
        };
        let mut process = SimProcess::new(id, spec, self.spec.seed);
        if process.arrives <= self.now {
            let needed_bytes = process.first_pages() * BASE_PAGE_BYTES;
            let free_bytes = self.room(process.group.as_deref());
            if needed_bytes > free_bytes {
                return Err(SimError::Memory {
                    needed_bytes,
                    free_bytes,
                });
            }
            process.arrive();
        }
        self.processes.push(process);
        Ok(id)
    }

    /// A process, also before it arrives and after its end.
    pub fn process(&self, id: ProcessId) -> Option<&SimProcess> {
        self.processes.iter().find(|process| process.id == id)
    }

    /// How many accesses a process has done; 0 for one that was never there.
    pub fn accesses_done(&self, id: ProcessId) -> u64 {
        self.process(id).map_or(0, SimProcess::accesses_done)
    }

    /// What things cost.
    pub fn costs(&self) -> &Costs {
        &self.spec.costs
    }

    /// Memory in use, in bytes: that of the processes and all other.
    pub fn used_bytes(&self) -> u64 {
        let processes = self.processes.iter();
        self.other_bytes + processes.map(SimProcess::rss_bytes).sum::<u64>()
    }

    /// Memory in use by a group's processes, in bytes.
    pub fn group_used_bytes(&self, name: &str) -> u64 {
        let members = self.processes.iter();
        members
            .filter(|process| process.group.as_deref() == Some(name))
            .map(SimProcess::rss_bytes)
            .sum()
    }

    /// Memory that a process of this group can still have, in bytes.
    pub(crate) fn room(&self, group: Option<&str>) -> u64 {
        let machine = self.spec.total_bytes.saturating_sub(self.used_bytes());
        let limit = group.and_then(|name| Some((name, self.groups.get(name)?)));
        limit.map_or(machine, |(name, limit)| {
            machine.min(limit.saturating_sub(self.group_used_bytes(name)))
        })
    }

    pub(crate) fn alive_mut(&mut self, id: ProcessId) -> Option<&mut SimProcess> {
        let mut processes = self.processes.iter_mut();
        processes.find(|process| process.id == id && process.is_alive())
    }

    pub(crate) fn exit(&mut self, id: ProcessId) {
        let now = self.now;
        if let Some(process) = self.alive_mut(id) {
            process.end(now, End::Exited);
        }
    }

    pub(crate) fn use_pages(&mut self, id: ProcessId, part: usize, pages: u16) {
        let Some(process) = self.process(id).filter(|process| process.is_alive()) else {
            return;
        };
        let needed = process.pages_needed(part, pages) * BASE_PAGE_BYTES;
        let fits = needed <= self.room(process.group.as_deref());
        let (now, fault) = (self.now, self.spec.costs.base_fault.as_nanos() as f64);
        if let Some(process) = self.alive_mut(id) {
            if fits {
                process.stalled_ns += process.use_pages(part, pages) as f64 * fault;
            } else {
                process.end(now, End::OutOfMemory);
            }
        }
    }
}
