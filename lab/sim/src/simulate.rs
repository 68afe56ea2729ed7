//! Workloads on systems: one run, or many at once.

use super::engine::{Engine, EngineError, EngineFigures, SharedEngine};
use super::kernel::{KernelCosts, SamePageMergingSpec, SwapSpec};
use super::mmu::translation::PageTableLevels;
use super::mmu::{HASWELL, ProcessorSpec};
use super::parallel::map_on_threads;
use super::systems::{SimulatedSystem, SystemOverrides};
use super::workloads::WorkloadSpec;
use hawkeye_manager::{JournalTotals, LoopWakeReason, Machine, Manager};
use hawkeye_policy::policies::UnknownPolicy;
use hawkeye_policy::{Errno, Rate, SettingError, policies};
use serde::Serialize;
use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;
use thiserror::Error;

type Result<T, E = SimulateError> = std::result::Result<T, E>;

/// Results of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationResult {
    /// The system; `HOST/GUESTS` if its virtual machines have another one.
    pub system: String,
    /// The workload.
    pub workload: String,
    /// Figures of programs and threads.
    #[serde(flatten)]
    pub figures: EngineFigures,
    /// Regions that the manager promoted. This and the next counts are sums over all managers.
    pub promoted: u64,
    /// Huge pages that the manager split.
    pub split: u64,
    /// Memory that the manager recovered, in bytes.
    pub recovered_bytes: u64,
    /// Refusals by the kernel, by the error's name.
    pub errors: BTreeMap<Errno, u64>,
}

/// Why a run could not be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimulateError {
    /// The machine cannot be built or simulated.
    #[error("{workload} on {system}: {source}")]
    Engine {
        /// Name of the workload.
        workload: String,
        /// Name of the system.
        system: &'static str,
        /// The reason.
        source: EngineError,
    },
    /// A system's setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A system's policy is unknown.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
}

impl SimulateError {
    fn engine_error(
        system: &SimulatedSystem,
        workload: &WorkloadSpec,
        source: EngineError,
    ) -> Self {
        Self::Engine {
            workload: workload.name.clone(),
            system: system.name,
            source,
        }
    }
}

/// A machine with a workload on it, before its first moment, under a system's manager.
///
/// # Errors
/// A machine that can't be built, or a setting that its manager rejects.
pub fn build_manager(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
) -> Result<Manager<Engine>> {
    run_manager(system, build_engine(system, workload, setup)?, setup)
}

/// Runs a workload on a system.
pub fn simulate(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
) -> Result<SimulationResult> {
    simulate_observed(system, workload, setup, &mut |_| {})
}

/// Like [`simulate`], and calls `stepped` after each step of the manager if there are no guests.
pub fn simulate_observed(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
    stepped: &mut dyn FnMut(&Manager<Engine>),
) -> Result<SimulationResult> {
    let (figures, totals) = if workload.guests.is_empty() {
        run_without_guests(build_manager(system, workload, setup)?, setup, stepped)
    } else {
        run_with_guests(system, workload, setup)?
    };
    let figures = figures.map_err(|e| SimulateError::engine_error(system, workload, e))?;
    let mut errors = BTreeMap::new();
    for (error, count) in totals.iter().flat_map(|totals| &totals.errors) {
        *errors.entry(*error).or_default() += count;
    }
    let sum = |of: fn(&JournalTotals) -> u64| totals.iter().map(of).sum();
    Ok(SimulationResult {
        system: match setup.guest_system {
            Some(inside) if !workload.guests.is_empty() => {
                format!("{}/{}", system.name, inside.name)
            }
            _ => system.name.to_owned(),
        },
        workload: workload.name.clone(),
        figures,
        promoted: sum(|totals| totals.promoted),
        split: sum(|totals| totals.split),
        recovered_bytes: sum(|totals| totals.recovered_bytes),
        errors,
    })
}

type RunResult = (Result<EngineFigures, EngineError>, Vec<JournalTotals>);

fn run_without_guests(
    mut manager: Manager<Engine>,
    setup: &SimulationSetup,
    stepped: &mut dyn FnMut(&Manager<Engine>),
) -> RunResult {
    while manager.machine().now() < setup.longest
        && manager.run_due_work() == LoopWakeReason::Deadline
    {
        stepped(&manager);
    }
    let (engine, journal) = manager.finish();
    (engine.figures_or_error(), vec![journal.totals().clone()])
}

/// Runs a workload with virtual machines: the manager that is due first goes next.
fn run_with_guests(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
) -> Result<RunResult> {
    let machine = SharedEngine::new(build_engine(system, workload, setup)?);
    let inside = setup.guest_system.as_ref().unwrap_or(system);
    let systems = iter::once(system).chain(iter::repeat(inside));
    let managers = machine.manager_views().zip(systems);
    let managers = managers.map(|(seat, system)| run_manager(system, seat, setup));
    let mut managers = managers.collect::<Result<Vec<_>, _>>()?;
    while let Some(next) = managers
        .iter_mut()
        .min_by_key(|m| m.machine().manager_due_time())
    {
        let at = next.machine().manager_due_time();
        if at >= setup.longest || !machine.advance_to(at) {
            break;
        }
        next.run_due_work();
    }
    let totals = managers.iter().map(|m| m.journal().totals().clone());
    Ok((machine.figures(), totals.collect()))
}

fn build_engine(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
) -> Result<Engine> {
    let engine = Engine::new(setup, system, workload);
    engine.map_err(|source| SimulateError::engine_error(system, workload, source))
}

fn run_manager<M: Machine>(
    system: &SimulatedSystem,
    machine: M,
    setup: &SimulationSetup,
) -> Result<Manager<M>> {
    let (settings, told) = system.manager_settings(setup.rate)?;
    let (settings, told) = setup.tuning.override_settings(settings, told)?;
    let policy = policies::by_name(system.policy, &told)?;
    Ok(Manager::new(machine, policy, settings)?)
}

/// One run to make.
#[derive(Clone, Copy, Debug)]
pub struct SimulationJob<'a> {
    /// The system.
    pub system: SimulatedSystem,
    /// The workload.
    pub workload: &'a WorkloadSpec,
    /// The machine and its settings.
    pub setup: SimulationSetup,
}

/// Makes runs on `threads` threads (at least 1). Results are in the order of the jobs, or the error
/// of the first one that failed. The thread that ends a job calls `done` with the job's index.
pub fn simulate_each(
    jobs: &[SimulationJob],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<SimulationResult>> {
    let results = map_on_threads(jobs, threads, |index, job| {
        let result = simulate(&job.system, job.workload, &job.setup);
        done(index);
        result
    });
    results.into_iter().collect()
}

/// The machine that workloads run on, the same for every system. The default is the paper's
/// machine, with the cores of one socket.
#[derive(Clone, Copy, Debug)]
pub struct SimulationSetup {
    /// Size of memory, in bytes (2 MiB to 1 TiB).
    pub memory_bytes: u64,
    /// The processor.
    pub processor: ProcessorSpec,
    /// Levels of page tables, of the machine and of its virtual machines.
    pub page_table_levels: PageTableLevels,
    /// Whether the processor walks ahead for the next page after walks for two pages in a row.
    /// Every preset processor does so in some way: Intel's since Ivy Bridge (optimization manual,
    /// "next-page prefetcher").
    pub next_page_prefetch: bool,
    /// Costs of the kernel's work.
    pub costs: KernelCosts,
    /// Cores that programs share; the manager and the kernel's threads have others.
    pub cores: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Free memory fragmentation index at the start, caused by the page cache (0-1).
    pub fragmented: f64,
    /// Promotions per second, the same for every system; `None`: each system's own rate.
    pub rate: Option<Rate>,
    /// Settings that override each system's own, the same for every system.
    pub tuning: SystemOverrides,
    /// Accesses in a sample (at least 64). With 20,000, the default, a share of walks of one half
    /// is off by 0.4 %.
    pub sample: u32,
    /// The system of virtual machines, if the workload has any; `None`: the same as the machine's.
    pub guest_system: Option<SimulatedSystem>,
    /// Fragmentation of the memory of virtual machines at the start (0-1).
    pub guest_fragmented: f64,
    /// Swap device, if there is one.
    pub swap: Option<SwapSpec>,
    /// Same-page merging of the memory of virtual machines, if it is on.
    pub merging: Option<SamePageMergingSpec>,
    /// Whether systems that zero free memory had time to zero all of it before the start.
    pub zeroed_before: bool,
    /// Whether systems that can prefault do so instead of zeroing memory, as on a live machine.
    pub fault_ahead: bool,
    /// Simulated time after which the run ends, with its programs unfinished.
    pub longest: Duration,
}

impl Default for SimulationSetup {
    fn default() -> Self {
        Self {
            memory_bytes: 96 << 30,
            processor: HASWELL,
            page_table_levels: PageTableLevels::Four,
            next_page_prefetch: true,
            costs: KernelCosts::paper(),
            cores: 24,
            seed: 1,
            fragmented: 0.0,
            rate: None,
            tuning: SystemOverrides::default(),
            sample: 20_000,
            guest_system: None,
            guest_fragmented: 0.0,
            swap: None,
            merging: None,
            zeroed_before: true,
            fault_ahead: false,
            longest: Duration::from_secs(100_000),
        }
    }
}
