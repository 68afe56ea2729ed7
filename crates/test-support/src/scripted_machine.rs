//! A scripted machine, for tests of the manager's loop.
//!
//! It keeps figures and no pages: how many base pages of a region are in use and accessed, and
//! whether it is huge. A program's accesses go to its parts by weight, and within a part to all
//! pages equally. The number of pages they reach is the expected value, so the same script gives
//! the same result. Calls take the times in `costs`. A test sets the other results of calls in
//! advance, and changes at given times ([`ScriptedMachine::schedule`]).

mod machine_impl;
mod scripted_program;

pub use scripted_program::{ProgramPart, ScriptedProgram};

use hawkeye_manager::{BudgetWait, MachineError};
use hawkeye_policy::{Errno, FileRegion, MemoryUse, ProcessId, RegionAddr, ReserveState};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Duration of accesses and calls, as on the virtual machine of docs/research/measured.md.
mod costs {
    use std::time::Duration;

    /// An access under base pages that needs a page walk, and any other.
    pub const BASE_ACCESS_NS: f64 = 302.0;
    pub const HUGE_ACCESS_NS: f64 = 164.0;
    /// Extra time of the first access to a page after its access bit was cleared.
    pub const FIRST_TOUCH: Duration = Duration::from_nanos(600);
    /// One region: clearing the access bits of base pages, reading them, making it huge, searching
    /// it for zero pages, splitting it.
    pub const CLEAR: Duration = Duration::from_micros(12);
    pub const READ: Duration = Duration::from_micros(1);
    pub const PROMOTE: Duration = Duration::from_micros(405);
    pub const SCAN: Duration = Duration::from_micros(30);
    pub const SPLIT: Duration = Duration::from_micros(500);
    /// Work of one call before it checks the time: one run of a BPF program.
    pub const CALL: Duration = Duration::from_micros(500);
}

type ScriptedChange = Rc<dyn Fn(&mut ScriptedMachine)>;

/// A machine with its programs, and the changes to come.
#[derive(Clone, Default)]
pub struct ScriptedMachine {
    total_bytes: u64,
    now: Duration,
    /// Running programs, in order of arrival.
    programs: Vec<(ProcessId, ScriptedProgram)>,
    last_pid: u32,
    script: BTreeMap<Duration, Vec<ScriptedChange>>,
    manager_cpu: Duration,
    /// Work left in unfinished calls.
    work_left: HashMap<(&'static str, ProcessId), Duration>,
    calls: Vec<(&'static str, Duration)>,
    reserve: ReserveState,
    reserve_filled_at: Duration,

    /// Memory that other programs use, in bytes.
    pub other_bytes: u64,
    /// Memory pressure (PSI "some avg10"), in per cent.
    pub pressure_percent: f64,
    /// Free memory fragmentation index (0-1); `None`: unknown. Promotions succeed as before.
    pub fmfi: Option<f64>,
    /// Memory limits of cgroups by name, in bytes.
    pub groups: BTreeMap<&'static str, u64>,
    /// Base pages of regions (0-512): write-protected ones, which samples show, and those of them
    /// that really are shared with other processes, which a promotion finds.
    pub shared: BTreeMap<(ProcessId, RegionAddr), (u16, u16)>,
    /// Regions of shared memory. The group of the process through which one becomes huge pays for
    /// the huge page.
    pub files: BTreeMap<(ProcessId, RegionAddr), FileRegion>,
    /// Base pages that programs gave back of huge pages (1-511), in regions that are not huge any
    /// more. A listing shows them.
    pub freed_parts: BTreeMap<(ProcessId, RegionAddr), u16>,
    /// Regions that lost their huge page since the last listing of the program.
    pub lost_huge_pages: BTreeSet<ProcessId>,
    /// Bytes that groups paid for huge pages of shared memory.
    file_charges: BTreeMap<&'static str, u64>,
    /// The state of memory cannot be read.
    pub memory_unreadable: bool,
    /// Errors of the next samples.
    pub sample_errors: VecDeque<fn(ProcessId) -> MachineError>,
    /// How much longer the next promotions take, and the errors with which they are refused.
    pub promotion_answers: VecDeque<(Duration, Option<Errno>)>,
    /// No helper process can be started, so neither promotions nor recoveries are called.
    pub without_helpers: bool,
    /// Huge pages that are split together in danger; 0 and 1: one by one.
    pub splits_per_call: usize,
    /// Recovery does not work at all.
    pub recovery_impossible: bool,
    /// Processes for which there is no swap, although recovery needs it.
    pub without_swap: BTreeSet<ProcessId>,
    /// Errors with which the next recoveries are refused.
    pub recovery_errors: VecDeque<Errno>,
    /// A huge page costs this much more unless the reserve gives it, as on a host that must back
    /// its memory first. An idle core fills the reserve, a page in that time.
    pub huge_page_fill_cost: Duration,
    /// During each promotion, prefault takes all pages of the reserve.
    pub prefault_empties_reserve: bool,
    /// Clearing, reading or listing a process takes this much longer, whatever its size. That is
    /// done in short calls and costs no CPU time.
    pub call_duration: Duration,
    /// Pause after each such call, before the work goes on.
    pub call_pause: Duration,
    /// CPU time that programs have used, where the machine shows it.
    pub cpu_times: BTreeMap<ProcessId, Duration>,
    /// CPU time of a look at a process's size.
    pub footprint_cpu: Duration,
    /// Time that the admission of a process takes.
    pub admission_duration: Duration,
    /// Number of processes admitted.
    pub admitted: usize,
    /// Bytes that were prefaulted and that the manager does not know of yet.
    pub prefaulted_bytes: BTreeMap<ProcessId, u64>,
    /// Bytes that may be prefaulted for each process, as last set.
    pub prefault_rooms: BTreeMap<ProcessId, u64>,
    /// What holds prefault back.
    pub prefault_wait: Option<BudgetWait>,
}

impl ScriptedMachine {
    /// A machine without programs, other memory in use, or pressure.
    pub fn new(total_bytes: u64) -> Self {
        Self { total_bytes, last_pid: 1000, fmfi: Some(0.0), ..Self::default() }
    }

    /// Starts a program.
    pub fn add_program(&mut self, program: ScriptedProgram) -> ProcessId {
        self.add_program_at(self.now, program)
    }

    /// Starts a program at this time.
    pub fn add_program_at(&mut self, at: Duration, program: ScriptedProgram) -> ProcessId {
        self.last_pid += 1;
        let id = ProcessId { pid: self.last_pid, start_ticks: 1 };
        self.schedule(at, move |machine| {
            let started = ScriptedProgram { started: machine.now, ..program.clone() };
            machine.programs.push((id, started));
        });
        id
    }

    /// Ends a program.
    pub fn end_program(&mut self, process: ProcessId) {
        self.programs.retain(|(id, _)| *id != process);
    }

    /// Schedules a change for this time. Makes it at once if the time is past.
    pub fn schedule(&mut self, at: Duration, change: impl Fn(&mut Self) + 'static) {
        if at <= self.now {
            change(self);
        } else {
            self.script.entry(at).or_default().push(Rc::new(change));
        }
    }

    /// From now on a program uses this many base pages (0-512) in each region of the part with this
    /// index. It frees those that it no longer needs, which splits a huge page.
    pub fn set_used_pages(&mut self, process: ProcessId, part: usize, pages: u16) {
        if let Ok(program) = self.program_mut(process) {
            let part = &mut program.parts[part];
            if pages < part.used_pages {
                part.huge.fill(false);
            }
            part.used_pages = pages;
        }
    }

    /// From now on a program has this many regions in the part with this index. New ones are huge.
    pub fn set_regions(&mut self, process: ProcessId, part: usize, regions: usize) {
        if let Ok(program) = self.program_mut(process) {
            program.parts[part].huge.resize(regions, true);
        }
    }

    /// A running program.
    pub fn program(&self, process: ProcessId) -> Option<&ScriptedProgram> {
        self.programs.iter().find_map(|(id, program)| (*id == process).then_some(program))
    }

    /// When calls with this name were made: `memory` for reads of memory, `footprint`, `clear` for
    /// windows that were opened, `read` for samples, `list` for slices of listings of huge pages,
    /// `recover`, `abandon`.
    pub fn call_times(&self, name: &str) -> impl Iterator<Item = Duration> {
        self.calls.iter().filter(move |call| call.0 == name).map(|(_, at)| *at)
    }

    /// Memory of this machine, or of one cgroup.
    pub fn memory_use(&self, group: Option<&str>) -> MemoryUse {
        let programs = self.programs.iter().map(|(_, program)| program);
        let counted = programs.filter(|program| group.is_none() || program.group == group);
        let used_bytes: u64 = counted.map(ScriptedProgram::rss_bytes).sum();
        let (other_bytes, total_bytes) = match group {
            None => (self.other_bytes, self.total_bytes),
            Some(name) => (self.file_charges.get(name).copied().unwrap_or(0), self.groups[name]),
        };
        MemoryUse { used_bytes: used_bytes + other_bytes, total_bytes }
    }

    fn program_mut(&mut self, process: ProcessId) -> Result<&mut ScriptedProgram, MachineError> {
        let found = self.programs.iter_mut().find(|(id, _)| *id == process);
        found.map(|(_, program)| program).ok_or(MachineError::Gone(process))
    }

    /// Takes `cpu` of the manager's time.
    fn spend(&mut self, cpu: Duration) -> Duration {
        self.manager_cpu += cpu;
        self.advance_to(self.now + cpu);
        cpu
    }

    fn advance_to(&mut self, target: Duration) {
        while self.now < target && !self.is_over() {
            let next = self.script.keys().next().map_or(target, |at| target.min(*at));
            self.now = next;
            while let Some(due) = self.script.first_entry().filter(|due| *due.key() <= next) {
                due.remove().iter().for_each(|change| change(self));
            }
        }
    }

    /// Whether no program runs, and none is to come.
    fn is_over(&self) -> bool {
        self.programs.is_empty() && self.script.is_empty()
    }
}
