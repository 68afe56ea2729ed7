//! A machine by script, for tests of the manager's loop.
//!
//! It keeps figures and no pages: how many base pages of a region are there, in use and accessed. A
//! program's accesses go to its parts by weight, and within a part to all pages alike; how many pages
//! they reach is the expected number, so that the same script gives the same result. Calls take the
//! time that [`Costs`] says, and fail when the script says so.

mod managed;
mod program;

pub use program::{Backing, Ends, Part, Program, ProgramSpec};

use hawkeye_policy::{BASE_PAGE_BYTES, Errno, ProcessId, RegionAddr};
use std::collections::BTreeMap;
use std::time::Duration;

/// What accesses and calls take.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// An access under base pages that needs a page walk, in nanoseconds.
    pub base_access_ns: f64,
    /// Any other access, in nanoseconds.
    pub huge_access_ns: f64,
    /// What the first access to a page adds after its access bit was cleared.
    pub first_touch: Duration,
    /// Clearing the access bits of a region of base pages.
    pub clear: Duration,
    /// Reading a region of base pages.
    pub read: Duration,
    /// Reading a huge page.
    pub read_huge: Duration,
    /// Making a region huge.
    pub promote: Duration,
    /// Searching a huge page for zero pages.
    pub scan: Duration,
    /// Splitting a huge page.
    pub split: Duration,
}

impl Default for Costs {
    /// Those of the virtual machine of `kernel-facts.md`.
    fn default() -> Self {
        Self {
            base_access_ns: 302.0,
            huge_access_ns: 164.0,
            first_touch: Duration::from_nanos(600),
            clear: Duration::from_micros(12),
            read: Duration::from_micros(1),
            read_huge: Duration::from_nanos(40),
            promote: Duration::from_micros(405),
            scan: Duration::from_micros(30),
            split: Duration::from_micros(500),
        }
    }
}

/// Something that happens at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// A program uses so many base pages (0-512) in each region of a part from now on. It frees
    /// those that it needs no more, which splits a huge page.
    Use {
        /// Whose.
        process: ProcessId,
        /// Index of the part.
        part: usize,
        /// Base pages in use per region.
        pages: u16,
    },
    /// A program ends.
    Exit {
        /// Which.
        process: ProcessId,
    },
    /// Memory pressure (PSI "some avg10"), in per cent.
    Pressure {
        /// In per cent.
        percent: f64,
    },
    /// Free memory fragmentation index (0-1); `None`: unknown. Promotions succeed as before.
    Fragmentation {
        /// The index.
        fmfi: Option<f64>,
    },
    /// Memory that is used by others, in bytes.
    OtherMemory {
        /// In bytes.
        bytes: u64,
    },
    /// The next recoveries are refused.
    FailRecoveries {
        /// How many.
        count: u32,
        /// With which error.
        errno: Errno,
    },
    /// The state of memory can't be read the next times.
    FailMemory {
        /// How many.
        count: u32,
    },
    /// No process can be sampled the next times.
    FailSamples {
        /// How many.
        count: u32,
    },
}

/// Base pages of a region that processes share (each 0-512).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPages {
    /// Write-protected: what samples show.
    pub maybe_shared: u16,
    /// Of these, shared indeed: what a promotion finds.
    pub shared: u16,
}

/// Failures that wait for their call.
#[derive(Clone, Copy, Debug)]
struct Failures {
    promotions: u32,
    promotion_errno: Errno,
    slow: u32,
    slow_by: Duration,
    recoveries: u32,
    recovery_errno: Errno,
    memory: u32,
    samples: u32,
}

/// Whether one of `count` is left; it is taken.
fn take(count: &mut u32) -> bool {
    let taken = *count > 0;
    *count = count.saturating_sub(1);
    taken
}

/// A machine with its programs, and what is to happen to them.
#[derive(Clone, Debug)]
pub struct ScriptedMachine {
    costs: Costs,
    total_bytes: u64,
    now: Duration,
    /// In the order in which they were given.
    programs: Vec<Program>,
    script: BTreeMap<Duration, Vec<Change>>,
    failures: Failures,
    other_bytes: u64,
    pressure_percent: f64,
    fmfi: Option<f64>,
    /// Limits by name, in bytes.
    groups: BTreeMap<String, u64>,
    shared: BTreeMap<(ProcessId, RegionAddr), SharedPages>,
    manager_cpu: Duration,
    longest_call: Duration,
}

/// Pid of the first program.
const FIRST_PID: u32 = 1000;

impl ScriptedMachine {
    /// A machine without programs, other memory in use, or pressure.
    pub fn new(total_bytes: u64) -> Self {
        Self {
            costs: Costs::default(),
            total_bytes,
            now: Duration::ZERO,
            programs: Vec::new(),
            script: BTreeMap::new(),
            failures: Failures {
                promotions: 0,
                promotion_errno: Errno::ENOMEM,
                slow: 0,
                slow_by: Duration::ZERO,
                recoveries: 0,
                recovery_errno: Errno::EBUSY,
                memory: 0,
                samples: 0,
            },
            other_bytes: 0,
            pressure_percent: 0.0,
            fmfi: Some(0.0),
            groups: BTreeMap::new(),
            shared: BTreeMap::new(),
            manager_cpu: Duration::ZERO,
            longest_call: Duration::ZERO,
        }
    }

    /// Gives the machine a program, which starts when it arrives.
    pub fn start(&mut self, spec: ProgramSpec) -> ProcessId {
        let index = u32::try_from(self.programs.len()).expect("few programs");
        let id = ProcessId {
            pid: FIRST_PID + index,
            start_ticks: u64::try_from(spec.arrives.as_millis() / 10).expect("a short script"),
        };
        self.programs.push(Program::new(id, spec));
        self.happen();
        id
    }

    /// Has something happen at this time, or at once if that is past.
    pub fn schedule(&mut self, at: Duration, change: Change) {
        self.script.entry(at).or_default().push(change);
    }

    /// Sets the memory limit of a cgroup, in bytes.
    pub fn limit_group(&mut self, name: &str, limit_bytes: u64) {
        self.groups.insert(name.to_owned(), limit_bytes);
    }

    /// From now on so many pages of a region are shared with processes that the machine does not have.
    pub fn share(&mut self, process: ProcessId, region: RegionAddr, pages: SharedPages) {
        self.shared.insert((process, region), pages);
    }

    /// The next `count` promotions are refused.
    pub fn fail_next_promotions(&mut self, count: u32, errno: Errno) {
        (self.failures.promotions, self.failures.promotion_errno) = (count, errno);
    }

    /// The next `count` promotions wait so much longer, whatever comes of them.
    pub fn slow_next_promotions(&mut self, count: u32, by: Duration) {
        (self.failures.slow, self.failures.slow_by) = (count, by);
    }

    /// A program, also before it arrives and after its end.
    pub fn process(&self, id: ProcessId) -> Option<&Program> {
        self.programs.iter().find(|program| program.id == id)
    }

    /// How many accesses a program has done.
    pub fn accesses_done(&self, id: ProcessId) -> f64 {
        self.process(id).map_or(0.0, |program| program.accesses)
    }

    /// What things take.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Memory in use, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let programs = self.programs.iter().map(Program::rss_bytes);
        self.other_bytes + programs.sum::<u64>()
    }

    /// Memory in use by a group's programs, in bytes.
    pub fn group_used_bytes(&self, name: &str) -> u64 {
        let members = self.programs.iter().filter(|p| p.is_in(name));
        members.map(Program::rss_bytes).sum()
    }

    /// Memory that a program can still have, in bytes.
    fn room(&self, group: Option<&str>) -> u64 {
        let machine = self.total_bytes.saturating_sub(self.used_bytes());
        let limit = group.and_then(|name| Some((name, self.groups.get(name)?)));
        limit.map_or(machine, |(name, limit)| {
            machine.min(limit.saturating_sub(self.group_used_bytes(name)))
        })
    }

    fn alive_mut(&mut self, id: ProcessId) -> Option<&mut Program> {
        let mut alive = self.programs.iter_mut().filter(|p| p.is_alive());
        alive.find(|program| program.id == id)
    }

    /// A call that takes the manager `cpu` and waits for `waiting` besides. Programs run meanwhile.
    fn spend(&mut self, cpu: Duration, waiting: Duration) -> Duration {
        self.manager_cpu += cpu;
        self.longest_call = self.longest_call.max(cpu + waiting);
        self.advance_to(self.now + cpu + waiting, false);
        cpu + waiting
    }

    /// Lets all programs run until `target`, or, if so asked, until all have ended.
    fn advance_to(&mut self, target: Duration, stop_when_over: bool) {
        loop {
            self.happen();
            if self.now >= target || (stop_when_over && self.is_over()) {
                return;
            }
            let programs = self.programs.iter();
            let ends = programs.filter_map(|p| p.next_event(self.now, &self.costs));
            let next = ends.chain(self.script.keys().next().copied()).min();
            let next = next.map_or(target, |at| at.min(target));
            let next = next.max(self.now + Duration::from_nanos(1));
            let elapsed = next - self.now;
            for program in self.programs.iter_mut().filter(|p| p.is_alive()) {
                program.run(elapsed, &self.costs);
            }
            self.now = next;
        }
    }

    fn is_over(&self) -> bool {
        self.programs.iter().all(Program::has_ended)
    }

    /// Does all that is due.
    fn happen(&mut self) {
        for program in &mut self.programs {
            program.live(self.now);
        }
        while let Some(due) = self.script.first_entry() {
            if *due.key() > self.now {
                break;
            }
            for change in due.remove() {
                self.apply(change);
            }
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Use {
                process,
                part,
                pages,
            } => {
                if let Some(program) = self.alive_mut(process) {
                    program.use_pages(part, pages);
                }
            }
            Change::Exit { process } => {
                if let Some(program) = self.alive_mut(process) {
                    program.end();
                }
            }
            Change::Pressure { percent } => self.pressure_percent = percent,
            Change::Fragmentation { fmfi } => self.fmfi = fmfi,
            Change::OtherMemory { bytes } => self.other_bytes = bytes,
            Change::FailRecoveries { count, errno } => {
                (self.failures.recoveries, self.failures.recovery_errno) = (count, errno);
            }
            Change::FailMemory { count } => self.failures.memory = count,
            Change::FailSamples { count } => self.failures.samples = count,
        }
    }
}

/// Base pages as bytes.
fn bytes(pages: u64) -> u64 {
    pages * BASE_PAGE_BYTES
}
