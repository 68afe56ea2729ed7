//! The machine: its parts, and the programs that it is given.

use super::EngineError;
use super::figures::EngineFigures;
use super::guests::{GuestMachine, ManagerSchedule};
use super::program::{Program, ProgramStatus};
use super::program_run::MeasurementSettings;
use super::shared_files_by_name::SharedFilesByName;
use super::simulated_prefaulter::SimulatedPrefaulter;
use super::zeroing_neighbour::ZeroingNeighbour;
use crate::kernel::SimulatedKernel;
use crate::mmu::CoalescedPageGroups;
use crate::simulation_setup::SimulationSetup;
use crate::systems::SimulatedSystem;
use crate::workloads::{Process, WorkloadSpec};
use hawkeye_policy::{HUGE_PAGE_BYTES, PageOrderSet, ProcessId};
use std::time::Duration;

/// A simulated machine and its programs; see the module's documentation.
#[derive(Debug)]
pub struct Engine {
    pub(super) kernel: SimulatedKernel,
    pub(super) cores: u32,
    /// Sizes that a TLB entry can have beside that of a base page.
    pub(super) entries: PageOrderSet,
    pub(super) promotable: PageOrderSet,
    pub(super) measuring: MeasurementSettings,
    pub(super) now: Duration,
    pub(super) programs: Vec<Program>,
    pub(super) guests: Vec<GuestMachine>,
    pub(super) filler: Option<SimulatedPrefaulter>,
    pub(super) turn: Option<ManagerSchedule>,
    /// When accessed pages were last reported to reclaim.
    pub(super) marked: Duration,
    pub(super) manager_cpu: Duration,
    pub(super) longest_call: Duration,
    pub(super) shared_file_peak_bytes: u64,
    pub(super) broken: Option<EngineError>,
}

pub(super) const FIRST_PID: u32 = 1000;
/// Clock ticks per second in `/proc/PID/stat`.
const TICKS_PER_S: f64 = 100.0;

impl Engine {
    /// A machine after boot under a system, and programs that start when the workload says.
    pub fn new(
        setup: &SimulationSetup,
        system: &SimulatedSystem,
        workload: &WorkloadSpec,
    ) -> Result<Self, EngineError> {
        let mut engine = Self::new_without_guests(setup, system, &workload.processes, false)?;
        let inside = setup.guest_system.as_ref().unwrap_or(system);
        for guest in &workload.guests {
            for _ in 0..guest.count {
                engine.add_guest(setup, inside, guest)?;
            }
        }
        engine.apply_all_guest_effects_at_host();
        Ok(engine)
    }

    /// A machine without virtual machines of its own; `hosted` if it is a virtual machine itself.
    pub(super) fn new_without_guests(
        setup: &SimulationSetup,
        system: &SimulatedSystem,
        processes: &[Process],
        hosted: bool,
    ) -> Result<Self, EngineError> {
        let require = |holds: bool, what, allowed, value: String| {
            let refused = EngineError::Value { what, allowed, value };
            holds.then_some(()).ok_or(refused)
        };
        require(setup.cores > 0, "cores", "1 or more", "0".to_owned())?;
        let share = (0.0..=1.0).contains(&setup.fragmented);
        let value = setup.fragmented.to_string();
        require(share, "the fragmentation index", "0 to 1", value)?;
        let fits = (64..=100_000_000).contains(&setup.sample);
        let value = setup.sample.to_string();
        require(fits, "accesses in a sample", "64 to 100 million", value)?;
        let prefault = setup.prefault && system.fills_ahead;
        let zeroing = system.background_zeroing_spec().filter(|_| !prefault);
        let mut kernel = SimulatedKernel::new(setup.memory_bytes, system.faults, setup.costs)?;
        kernel.set_swap(setup.swap);
        kernel.set_zeroing(setup.tuning.override_zeroing_spec(zeroing));
        if setup.zeroed_before && zeroing.is_some() {
            kernel.zero_all_free_memory();
        }
        if hosted {
            // Recording starts here: frames that a guest zeroed before are ones that its host never
            // gave it.
            kernel.start_recording_frame_content_changes();
        }
        if setup.fragmented > 0.0 {
            kernel.fragment_free_memory(setup.fragmented, setup.seed);
        }
        kernel.set_merging(setup.merging);
        kernel.start_recording_remaps(setup.processor.groups != CoalescedPageGroups::NONE);
        let mut files = SharedFilesByName::new();
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
                    setup,
                    hosted,
                    (&mut kernel, &mut files),
                )?);
            }
        }
        if prefault {
            for program in &programs {
                kernel.watch_first_touches(program.space);
            }
        }
        Ok(Self {
            kernel,
            cores: setup.cores,
            entries: setup.processor.entry_orders(),
            promotable: system.promotable_sizes(&setup.processor),
            measuring: MeasurementSettings {
                accesses: setup.sample,
                ghz: setup.processor.ghz,
                neighbour: ZeroingNeighbour::new(&setup.processor),
            },
            now: Duration::ZERO,
            programs,
            guests: Vec::new(),
            filler: prefault.then(SimulatedPrefaulter::default),
            turn: None,
            marked: Duration::ZERO,
            manager_cpu: Duration::ZERO,
            longest_call: Duration::ZERO,
            shared_file_peak_bytes: 0,
            broken: None,
        })
    }

    /// The kernel.
    pub fn kernel(&self) -> &SimulatedKernel {
        &self.kernel
    }

    /// The error that stopped it, if it can't go on.
    pub fn stopping_error(&self) -> Option<&EngineError> {
        self.broken.as_ref()
    }

    /// Whether all programs have ended. Background programs count only if there are no others.
    pub fn is_over(&self) -> bool {
        let all = || self.all_programs();
        let only_background = all().all(|p| p.spec.background);
        let mut waited_for = all().filter(|p| only_background || !p.spec.background);
        waited_for.all(|p| matches!(p.life, ProgramStatus::Ended(..)))
    }

    fn all_programs(&self) -> impl Iterator<Item = &Program> {
        let guests = self.guests.iter().flat_map(|guest| &guest.machine.programs);
        self.programs.iter().chain(guests)
    }

    pub(crate) fn figures_or_error(&self) -> Result<EngineFigures, EngineError> {
        self.broken.clone().map_or_else(|| Ok(self.figures()), Err)
    }

    /// The results so far.
    pub fn figures(&self) -> EngineFigures {
        let ends = self.all_programs().map(|p| match p.life {
            ProgramStatus::Ended(_, at) => at,
            ProgramStatus::ToCome | ProgramStatus::Alive => self.now,
        });
        let filler = self.filler.as_ref();
        let threads = self.kernel.kernel_thread_times();
        EngineFigures {
            wall_s: ends.max().unwrap_or_default().as_secs_f64(),
            programs: self.programs.iter().map(|p| p.figures(self.now)).collect(),
            guests: self.guests.iter().map(GuestMachine::figures).collect(),
            shared_file_peak_bytes: self.shared_file_peak_bytes,
            manager_cpu_s: self.manager_cpu.as_secs_f64(),
            filled_ahead_bytes: filler.map_or(0, |f| f.regions * HUGE_PAGE_BYTES),
            filling_cpu_s: filler.map_or(0.0, |f| f.cpu.as_secs_f64()),
            zeroing_cpu_s: threads.zeroing.as_secs_f64(),
            kswapd_cpu_s: threads.kswapd.as_secs_f64(),
            merging_cpu_s: threads.merging.as_secs_f64(),
        }
    }
}
