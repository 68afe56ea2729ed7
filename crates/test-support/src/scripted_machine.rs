//! A scripted machine, for tests of the manager's loop.
//!
//! It keeps figures and no pages: how many base pages of a region are present, in use and accessed.
//! A program's accesses go to its parts by weight, and within a part to all pages equally. The
//! number of pages they reach is the expected value, so the same script gives the same result.
//! Calls take the times in `costs`, and fail when the script says so.

mod machine_impl;
mod scripted_program;

pub use scripted_program::{ProgramPart, ProgramSpec, ScriptedProgram};

use hawkeye_manager::MachineError;
use hawkeye_policy::{BASE_PAGE_BYTES, Errno, ProcessId, RegionAddr, ReserveState, ReserveTarget};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Duration of accesses and calls, as on the virtual machine of docs/research/measured.md.
mod costs {
    use std::time::Duration;

    /// An access under base pages that needs a page walk, in nanoseconds.
    pub const BASE_ACCESS_NS: f64 = 302.0;
    /// Any other access, in nanoseconds.
    pub const HUGE_ACCESS_NS: f64 = 164.0;
    /// Extra time of the first access to a page after its access bit was cleared.
    pub const FIRST_TOUCH: Duration = Duration::from_nanos(600);
    /// Clearing the access bits of a region of base pages.
    pub const CLEAR: Duration = Duration::from_micros(12);
    /// Reading a region of base pages.
    pub const READ: Duration = Duration::from_micros(1);
    /// Reading a huge page.
    pub const READ_HUGE: Duration = Duration::from_nanos(40);
    /// Making a region huge.
    pub const PROMOTE: Duration = Duration::from_micros(405);
    /// Searching a huge page for zero pages.
    pub const SCAN: Duration = Duration::from_micros(30);
    /// Splitting a huge page.
    pub const SPLIT: Duration = Duration::from_micros(500);
    /// Work of one call before it checks the time: one run of a BPF program.
    pub const CALL: Duration = Duration::from_micros(500);
}

/// A change at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScriptedChange {
    /// From now on a program uses this many base pages (0-512) in each region of the part with this
    /// index. It frees those that it no longer needs, which splits a huge page.
    Use(ProcessId, usize, u16),
    /// A program ends.
    Exit(ProcessId),
    /// Memory pressure (PSI "some avg10"), in per cent.
    Pressure(f64),
    /// Free memory fragmentation index (0-1); `None`: unknown. Promotions succeed as before.
    Fragmentation(Option<f64>),
    /// Memory that other programs use, in bytes.
    OtherMemory(u64),
    /// This many recoveries are refused with this error.
    FailRecoveries(u32, Errno),
    /// The state of memory cannot be read this many times.
    FailMemory(u32),
    /// Processes cannot be sampled this many times.
    FailSamples(u32),
    /// Processes do not answer in time this many times when they are sampled.
    LateSamples(u32),
}

/// Base pages of a region that processes share (each 0-512).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPageCounts {
    /// Write-protected pages, which samples show.
    pub maybe_shared: u16,
    /// Those of them that really are shared, which a promotion finds.
    pub shared: u16,
}

/// Failures still to come: how many, and their error.
#[derive(Clone, Copy, Debug, Default)]
struct PendingFailures {
    promotions: u32,
    promotion_errno: Option<Errno>,
    slow: u32,
    slow_by: Duration,
    recoveries: u32,
    recovery_errno: Option<Errno>,
    memory: u32,
    samples: u32,
    late_samples: u32,
}

/// Takes one off `count`; returns whether one was left.
fn take_one_failure(count: &mut u32) -> bool {
    let taken = *count > 0;
    *count = count.saturating_sub(1);
    taken
}

/// A machine with its programs, and the changes to come.
#[derive(Clone, Debug, Default)]
pub struct ScriptedMachine {
    total_bytes: u64,
    now: Duration,
    /// In the order in which they were added.
    programs: Vec<ScriptedProgram>,
    script: BTreeMap<Duration, Vec<ScriptedChange>>,
    failures: PendingFailures,
    other_bytes: u64,
    pressure_percent: f64,
    fmfi: Option<f64>,
    /// Limits of groups by name, in bytes.
    groups: BTreeMap<String, u64>,
    shared: BTreeMap<(ProcessId, RegionAddr), SharedPageCounts>,
    manager_cpu: Duration,
    longest_call: Duration,
    /// In calls of [`costs::CALL`]; 0: as `costs` says.
    work: Duration,
    work_left: HashMap<(&'static str, ProcessId), Duration>,
    /// Time that each admission of a process takes, and the number of processes admitted.
    joining: Duration,
    joined: usize,
    looks: Vec<Duration>,
    last_listing: Duration,
    abandoned: bool,
    /// Time to get the memory of a huge page, before it is zeroed.
    fill_cost: Duration,
    reserve: ReserveState,
    reserve_target: ReserveTarget,
    /// When the page that is being filled is ready.
    next_fill: Duration,
}

const FIRST_PID: u32 = 1000;

impl ScriptedMachine {
    /// A machine without programs, other memory in use, or pressure.
    pub fn new(total_bytes: u64) -> Self {
        Self { total_bytes, fmfi: Some(0.0), ..Self::default() }
    }

    /// Adds a program, which starts at its time of arrival.
    pub fn add_program(&mut self, spec: ProgramSpec) -> ProcessId {
        let index = u32::try_from(self.programs.len()).expect("few programs");
        let id = ProcessId {
            pid: FIRST_PID + index,
            start_ticks: u64::try_from(spec.arrives.as_millis() / 10).expect("a short script"),
        };
        self.programs.push(ScriptedProgram::new(id, spec));
        self.apply_due_changes();
        id
    }

    /// Schedules a change for this time, or for now if the time is past.
    pub fn schedule_change(&mut self, at: Duration, change: ScriptedChange) {
        self.script.entry(at).or_default().push(change);
    }

    /// Sets the memory limit of a cgroup, in bytes.
    pub fn set_group_limit(&mut self, name: &str, limit_bytes: u64) {
        self.groups.insert(name.to_owned(), limit_bytes);
    }

    /// From now on, `pages` of a region are shared with processes that this machine does not model.
    pub fn share_pages(&mut self, process: ProcessId, region: RegionAddr, pages: SharedPageCounts) {
        self.shared.insert((process, region), pages);
    }

    /// The next `count` promotions are refused.
    pub fn fail_next_promotions(&mut self, count: u32, errno: Errno) {
        (self.failures.promotions, self.failures.promotion_errno) = (count, Some(errno));
    }

    /// From now on, a huge page costs this much more unless the reserve gives it, as on a host that
    /// must back its memory first. An idle core fills the reserve, a page in that time.
    pub fn set_huge_page_fill_cost(&mut self, cost: Duration) {
        self.fill_cost = cost;
    }

    fn begin_reserve_fill(&mut self) {
        let ready_at = self.now + self.fill_cost.max(costs::CALL);
        if self.next_fill <= self.now {
            self.next_fill = ready_at;
        }
    }

    /// Fills the reserve up to its target, as far as there was time since the last call.
    fn fill_reserve_until_now(&mut self) {
        let ReserveTarget { pages, fill } = self.reserve_target;
        while fill && self.reserve.held < pages && self.next_fill <= self.now {
            self.reserve.held += 1;
            self.reserve.filled += 1;
            self.reserve.fill_cpu += self.fill_cost;
            self.next_fill += self.fill_cost.max(costs::CALL);
        }
    }

    /// The next `count` promotions take this much longer, whatever their result.
    pub fn slow_next_promotions(&mut self, count: u32, by: Duration) {
        (self.failures.slow, self.failures.slow_by) = (count, by);
    }

    /// From now on, admitting a process takes `joining`, and clearing, reading or listing it takes
    /// `work`, whatever its size. That is done in short calls and costs no CPU time.
    pub fn set_call_durations(&mut self, work: Duration, joining: Duration) {
        (self.work, self.joining) = (work, joining);
    }

    /// Number of processes admitted.
    pub fn count_admitted_processes(&self) -> usize {
        self.joined
    }

    /// Number of programs with access bits that were cleared.
    pub fn count_programs_with_cleared_bits(&self) -> usize {
        self.programs.iter().filter(|p| p.cleared).count()
    }

    /// The longest time between two reads of memory.
    pub fn longest_gap_between_memory_reads(&self) -> Duration {
        let gaps = self.looks.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }

    /// When huge pages were last listed.
    pub fn last_huge_page_listing_time(&self) -> Duration {
        self.last_listing
    }

    /// Whether a window was given up.
    pub fn has_abandoned_window(&self) -> bool {
        self.abandoned
    }

    /// A program, even before it arrives and after it ends.
    pub fn program_of_process(&self, id: ProcessId) -> Option<&ScriptedProgram> {
        self.programs.iter().find(|program| program.id == id)
    }

    /// Number of accesses that a program has done.
    pub fn accesses_done(&self, id: ProcessId) -> f64 {
        self.program_of_process(id).map_or(0.0, |program| program.accesses)
    }

    /// Memory in use, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let programs = self.programs.iter().map(ScriptedProgram::rss_bytes);
        self.other_bytes + programs.sum::<u64>()
    }

    /// Memory in use by a group's programs, in bytes.
    pub fn group_used_bytes(&self, name: &str) -> u64 {
        let members = self.programs.iter().filter(|p| p.is_in_group(name));
        members.map(ScriptedProgram::rss_bytes).sum()
    }

    /// Memory that a program can still get, in bytes.
    fn memory_left_bytes(&self, group: Option<&str>) -> u64 {
        let machine = self.total_bytes.saturating_sub(self.used_bytes());
        let limit = group.and_then(|name| Some((name, self.groups.get(name)?)));
        limit.map_or(machine, |(name, limit)| {
            machine.min(limit.saturating_sub(self.group_used_bytes(name)))
        })
    }

    fn alive_program_mut(&mut self, id: ProcessId) -> Result<&mut ScriptedProgram, MachineError> {
        let mut alive = self.programs.iter_mut().filter(|p| p.is_alive());
        let found = alive.find(|program| program.id == id);
        found.ok_or(MachineError::Gone(id))
    }

    /// Takes `cpu` of the manager's time and also waits for `waiting`, while programs run.
    fn spend_manager_time(&mut self, cpu: Duration, waiting: Duration) -> Duration {
        self.manager_cpu += cpu;
        self.longest_call = self.longest_call.max(cpu + waiting);
        self.advance_to(self.now + cpu + waiting, false);
        cpu + waiting
    }

    fn advance_to(&mut self, target: Duration, stop_when_over: bool) {
        loop {
            self.apply_due_changes();
            if self.now >= target || (stop_when_over && self.have_all_programs_ended()) {
                return;
            }
            let programs = self.programs.iter();
            let ends = programs.filter_map(|p| p.next_start_or_end_time(self.now));
            let next = ends.chain(self.script.keys().next().copied()).min();
            let next = next.map_or(target, |at| at.min(target));
            let next = next.max(self.now + Duration::from_nanos(1));
            let elapsed = next - self.now;
            for program in self.programs.iter_mut().filter(|p| p.is_alive()) {
                program.run_for(elapsed);
            }
            self.now = next;
        }
    }

    fn have_all_programs_ended(&self) -> bool {
        self.programs.iter().all(ScriptedProgram::has_ended)
    }

    fn apply_due_changes(&mut self) {
        for program in &mut self.programs {
            program.start_or_end_if_due(self.now);
        }
        while let Some(due) = self.script.first_entry() {
            if *due.key() > self.now {
                break;
            }
            for change in due.remove() {
                self.apply_change(change);
            }
        }
    }

    fn apply_change(&mut self, change: ScriptedChange) {
        match change {
            ScriptedChange::Use(process, part, pages) => {
                if let Ok(program) = self.alive_program_mut(process) {
                    program.set_used_pages(part, pages);
                }
            }
            ScriptedChange::Exit(process) => {
                if let Ok(program) = self.alive_program_mut(process) {
                    program.end_program();
                }
            }
            ScriptedChange::Pressure(percent) => self.pressure_percent = percent,
            ScriptedChange::Fragmentation(fmfi) => self.fmfi = fmfi,
            ScriptedChange::OtherMemory(bytes) => self.other_bytes = bytes,
            ScriptedChange::FailRecoveries(count, errno) => {
                (self.failures.recoveries, self.failures.recovery_errno) = (count, Some(errno));
            }
            ScriptedChange::FailMemory(count) => self.failures.memory = count,
            ScriptedChange::FailSamples(count) => self.failures.samples = count,
            ScriptedChange::LateSamples(count) => self.failures.late_samples = count,
        }
    }
}

fn pages_to_bytes(pages: u64) -> u64 {
    pages * BASE_PAGE_BYTES
}
