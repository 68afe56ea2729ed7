//! Workloads on systems: one run, or many at once.

use crate::engine::{Engine, EngineError, EngineFigures, EngineSharedByManagers};
use crate::parallel::map_on_threads;
pub use crate::simulation_setup::SimulationSetup;
use crate::systems::SimulatedSystem;
use crate::workloads::WorkloadSpec;
use hawkeye_manager::{JournalTotals, LoopWakeReason, Machine, Manager};
use hawkeye_policy::policies::{self, UnknownPolicy};
use hawkeye_policy::{Errno, SettingError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::iter;
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
        Self::Engine { workload: workload.name.clone(), system: system.name, source }
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
    attach_manager(system, build_engine(system, workload, setup)?, setup)
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
        && manager.run_due_work_and_wait() == LoopWakeReason::Deadline
    {
        stepped(&manager);
    }
    let (engine, journal) = manager.into_machine_and_journal();
    (engine.figures_or_error(), vec![journal.totals().clone()])
}

/// Runs a workload with virtual machines: the manager that is due first goes next.
fn run_with_guests(
    system: &SimulatedSystem,
    workload: &WorkloadSpec,
    setup: &SimulationSetup,
) -> Result<RunResult> {
    let machine = EngineSharedByManagers::new(build_engine(system, workload, setup)?);
    let inside = setup.guest_system.as_ref().unwrap_or(system);
    let systems = iter::once(system).chain(iter::repeat(inside));
    let managers = machine.manager_views().zip(systems);
    let managers = managers.map(|(seat, system)| attach_manager(system, seat, setup));
    let mut managers = managers.collect::<Result<Vec<_>, _>>()?;
    while let Some(next) = managers.iter_mut().min_by_key(|m| m.machine().manager_due_time()) {
        let at = next.machine().manager_due_time();
        if at >= setup.longest || !machine.advance_to(at) {
            break;
        }
        next.run_due_work_and_wait();
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

fn attach_manager<M: Machine>(
    system: &SimulatedSystem,
    machine: M,
    setup: &SimulationSetup,
) -> Result<Manager<M>> {
    let (settings, told) = system.manager_settings(setup.rate)?;
    let (settings, told) = setup.tuning.override_settings(settings, told)?;
    let policy = policies::make_policy_by_name(system.policy, &told)?;
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

/// Makes runs on `threads` threads (at least 1). Results are in the order of the jobs.
/// The thread that ends a job calls `done` with the job's index.
pub fn simulate_all(
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
