//! The machine: its parts, and the programs that it is given.

use super::EngineError;
use super::figures::{EngineFigures, seconds};
use super::filler::Filler;
use super::guests::{Guest, Turn};
use super::neighbour::Neighbour;
use super::program::{Life, Program};
use super::running::Measuring;
use crate::kernel::fault_policies::FaultPolicy;
use crate::kernel::{
    Kernel, KernelCosts, KernelSpec, KernelThread, MergeSpec, SwapSpec, ZeroingSpec,
};
use crate::mmu::translation::Levels;
use crate::mmu::{Groups, Processor};
use crate::workloads::{Process, Workload};
use hawkeye_policy::{HUGE_PAGE_BYTES, PageOrders, ProcessId};
use std::time::Duration;

/// Specification of a machine to simulate.
#[derive(Clone, Copy, Debug)]
pub struct EngineSpec {
    /// Its memory, in bytes (2 MiB to 1 TiB).
    pub memory_bytes: u64,
    /// Its processor.
    pub processor: Processor,
    /// Whether the processor walks ahead for the next page after walks for two pages in a row.
    /// Intel's processors do so since Ivy Bridge (optimization manual, "next-page prefetcher").
    pub next_page_prefetch: bool,
    /// Levels of page tables, for the machine and its virtual machines.
    pub page_table_levels: Levels,
    /// Cores that programs share; the manager and the kernel's threads have others.
    pub cores: u32,
    /// The behaviour of the kernel at page faults.
    pub faults: FaultPolicy,
    /// Page sizes that a promotion can have.
    pub promotable: PageOrders,
    /// Costs of the kernel's operations.
    pub costs: KernelCosts,
    /// The thread that zeroes free memory, if there is one.
    pub zeroing: Option<ZeroingSpec>,
    /// Whether all free memory was zeroed before anything starts, where there is such a thread.
    /// This stands for a machine that was idle for long enough.
    pub zeroed_before: bool,
    /// Initial fragmentation of memory, by pages of files in it (free memory fragmentation index,
    /// 0-1).
    pub fragmented: f64,
    /// The swap device, if there is one.
    pub swap: Option<SwapSpec>,
    /// Same-page merging of the memory of virtual machines, if enabled.
    pub merging: Option<MergeSpec>,
    /// Whether a filler, on a core of its own, prefaults memory for programs.
    pub fault_ahead: bool,
    /// The kernels of virtual machines.
    pub guests: GuestSpec,
    /// Seed of all random choices.
    pub seed: u64,
    /// Accesses in a sample (at least 64).
    pub sample: u32,
}

/// The kernels of virtual machines: the same for all of them.
#[derive(Clone, Copy, Debug)]
pub struct GuestSpec {
    /// Their behaviour at page faults.
    pub faults: FaultPolicy,
    /// Page sizes that promotions in them can have.
    pub promotable: PageOrders,
    /// Their threads that zero free memory, if there are any.
    pub zeroing: Option<ZeroingSpec>,
    /// Whether memory is prefaulted for their programs.
    pub fault_ahead: bool,
    /// Initial fragmentation of their memory (0-1).
    pub fragmented: f64,
}

impl EngineSpec {
    /// Accesses in a sample unless set: with them a share of walks of one half is off by 0.4 %.
    pub const DEFAULT_SAMPLE: u32 = 20_000;
}

/// A simulated machine and its programs; see the module's documentation.
#[derive(Debug)]
pub struct Engine {
    pub(super) kernel: Kernel,
    pub(super) cores: u32,
    /// Sizes that a TLB entry can have beside that of a base page.
    pub(super) entries: PageOrders,
    pub(super) promotable: PageOrders,
    pub(super) measuring: Measuring,
    pub(super) now: Duration,
    pub(super) programs: Vec<Program>,
    pub(super) guests: Vec<Guest>,
    pub(super) filler: Option<Filler>,
    pub(super) turn: Option<Turn>,
    /// When accessed pages were last reported to reclaim.
    pub(super) marked: Duration,
    pub(super) manager_cpu: Duration,
    pub(super) longest_call: Duration,
    /// The error that stopped it, if it can't go on.
    pub(super) broken: Option<EngineError>,
}

/// Pid of the first process.
pub(super) const FIRST_PID: u32 = 1000;
/// Clock ticks per second in `/proc/PID/stat`.
const TICKS_PER_S: f64 = 100.0;

impl Engine {
    /// A machine after boot, and programs that start when the workload says.
    ///
    /// # Errors
    /// The machine or one of its programs can't be built.
    pub fn new(spec: &EngineSpec, workload: &Workload) -> Result<Self, EngineError> {
        let mut engine = Self::with(spec, &workload.processes, false)?;
        for guest in &workload.guests {
            for _ in 0..guest.count {
                engine.add_guest(spec, guest)?;
            }
        }
        engine.settle_guests();
        Ok(engine)
    }

    /// A machine without virtual machines of its own; `hosted` if it is a virtual machine itself.
    pub(super) fn with(
        spec: &EngineSpec,
        processes: &[Process],
        hosted: bool,
    ) -> Result<Self, EngineError> {
        let refuse = |what, allowed, value: String| EngineError::Value {
            what,
            allowed,
            value,
        };
        if spec.cores == 0 {
            return Err(refuse("cores", "1 or more", "0".to_owned()));
        }
        if !(0.0..=1.0).contains(&spec.fragmented) {
            let value = spec.fragmented.to_string();
            return Err(refuse("the fragmentation index", "0 to 1", value));
        }
        if !(64..=100_000_000).contains(&spec.sample) {
            let value = spec.sample.to_string();
            return Err(refuse("accesses in a sample", "64 to 100 million", value));
        }
        let mut kernel = Kernel::new(KernelSpec {
            memory_bytes: spec.memory_bytes,
            faults: spec.faults,
            costs: spec.costs,
            swap: spec.swap,
        })?;
        kernel.set_zeroing(spec.zeroing);
        if spec.zeroed_before && spec.zeroing.is_some() {
            kernel.zero_all();
        }
        if hosted {
            // Recording starts here: frames that a guest zeroed before are ones that its host never
            // gave it.
            kernel.record_frame_touches();
        }
        if spec.fragmented > 0.0 {
            kernel.fragment(spec.fragmented, spec.seed);
        }
        kernel.set_merging(spec.merging);
        kernel.record_remapped(spec.processor.groups != Groups::NONE);
        let mut programs = Vec::new();
        for process in processes {
            for _ in 0..process.count {
                let id = ProcessId {
                    pid: FIRST_PID + programs.len() as u32,
                    start_ticks: (process.start_s * TICKS_PER_S) as u64,
                };
                let arrives = Duration::from_secs_f64(process.start_s);
                programs.push(Program::new(
                    id,
                    process.clone(),
                    arrives,
                    spec,
                    hosted,
                    &mut kernel,
                )?);
            }
        }
        if spec.fault_ahead {
            for program in &programs {
                kernel.watch_first_touches(program.space);
            }
        }
        Ok(Self {
            kernel,
            cores: spec.cores,
            entries: spec.processor.entry_orders(),
            promotable: spec.promotable,
            measuring: Measuring {
                accesses: spec.sample,
                ghz: spec.processor.ghz,
                neighbour: Neighbour::new(&spec.processor),
            },
            now: Duration::ZERO,
            programs,
            guests: Vec::new(),
            filler: spec.fault_ahead.then(Filler::new),
            turn: None,
            marked: Duration::ZERO,
            manager_cpu: Duration::ZERO,
            longest_call: Duration::ZERO,
            broken: None,
        })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The error that stopped it, if it can't go on.
    pub fn broken(&self) -> Option<&EngineError> {
        self.broken.as_ref()
    }

    /// Whether all programs have ended. Background programs count only if there are no others.
    pub fn is_over(&self) -> bool {
        let all = || self.all_programs();
        let only_background = all().all(|p| p.spec.background);
        let mut waited_for = all().filter(|p| only_background || !p.spec.background);
        waited_for.all(|p| matches!(p.life, Life::Ended(..)))
    }

    /// Its own, and those in its virtual machines.
    fn all_programs(&self) -> impl Iterator<Item = &Program> {
        let guests = self.guests.iter().flat_map(|guest| &guest.machine.programs);
        self.programs.iter().chain(guests)
    }

    /// The results so far.
    pub fn figures(&self) -> EngineFigures {
        let ends = self.all_programs().map(|p| match p.life {
            Life::Ended(_, at) => at,
            Life::ToCome | Life::Alive => self.now,
        });
        let filler = self.filler.as_ref();
        let thread = |thread| seconds(self.kernel.thread_time(thread));
        EngineFigures {
            wall_s: seconds(ends.max().unwrap_or_default()),
            programs: self.programs.iter().map(|p| p.figures(self.now)).collect(),
            guests: self.guests.iter().map(Guest::figures).collect(),
            manager_cpu_s: seconds(self.manager_cpu),
            filled_ahead_bytes: filler.map_or(0, |f| f.regions * HUGE_PAGE_BYTES),
            filling_cpu_s: filler.map_or(0.0, |f| seconds(f.cpu)),
            zeroing_cpu_s: thread(KernelThread::Zeroing),
            kswapd_cpu_s: thread(KernelThread::Kswapd),
            merging_cpu_s: thread(KernelThread::Merging),
        }
    }
}
