//! Workloads on systems: one run, or many at once.

use crate::engine::{Engine, EngineError, EngineFigures, EngineSpec};
use crate::kernel::KernelCosts;
use crate::mmu::{HASWELL, Processor};
use crate::systems::System;
use crate::workloads::Workload;
use hawkeye_manager::{Machine, Manager, Wake};
use hawkeye_policy::policies::{self, UnknownPolicy};
use hawkeye_policy::{Rate, SettingError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thiserror::Error;

/// The machine that workloads run on, the same for every system. The default is the paper's, with one socket's cores.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The processor.
    pub processor: Processor,
    /// What the kernel's work costs.
    pub costs: KernelCosts,
    /// Cores that programs share.
    pub cores: u32,
    /// Chooses everything that is left to chance.
    pub seed: u64,
    /// Free memory fragmentation index at first, by the page cache (0-1).
    pub fragmented: f64,
    /// Promotions per second, for every system alike; `None`: each system's own.
    pub rate: Option<Rate>,
    /// Accesses in a sample.
    pub sample: u32,
    /// Simulated time after which what still runs is left unfinished.
    pub longest: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            memory_bytes: 96 << 30,
            processor: HASWELL,
            costs: KernelCosts::paper(),
            cores: 24,
            seed: 1,
            fragmented: 0.0,
            rate: None,
            sample: EngineSpec::DEFAULT_SAMPLE,
            longest: Duration::from_secs(100_000),
        }
    }
}

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// The system.
    pub system: String,
    /// The workload.
    pub workload: String,
    /// Programs and threads.
    #[serde(flatten)]
    pub figures: EngineFigures,
    /// Regions that the manager promoted.
    pub promoted: u64,
    /// Huge pages that it split.
    pub split: u64,
    /// Memory that it recovered, in bytes.
    pub recovered_bytes: u64,
    /// Its refusals, by the error's name.
    pub errors: BTreeMap<&'static str, u64>,
}

/// A run that could not be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimulateError {
    /// The machine.
    #[error("{workload} on {system}: {source}")]
    Engine {
        /// Which workload.
        workload: String,
        /// On what.
        system: &'static str,
        /// Why.
        source: EngineError,
    },
    /// A setting of a system.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A system's policy.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
}

impl SimulateError {
    fn engine(system: &System, workload: &Workload, source: EngineError) -> Self {
        Self::Engine {
            workload: workload.name.clone(),
            system: system.name,
            source,
        }
    }
}

impl Setup {
    /// This machine under a system.
    pub fn engine(&self, system: &System) -> EngineSpec {
        EngineSpec {
            memory_bytes: self.memory_bytes,
            processor: self.processor,
            // Every processor among the presets prefetches translations of streams in some way.
            next_page_prefetch: true,
            cores: self.cores,
            faults: system.faults(),
            costs: self.costs,
            zeroing: system.zeroing(),
            zeroed_before: true,
            fragmented: self.fragmented,
            seed: self.seed,
            sample: self.sample,
        }
    }
}

/// A machine with a workload on it, before its first moment, under a system's manager.
///
/// # Errors
/// A machine that can't be built, or a setting that its manager refuses.
pub fn manager(
    system: &System,
    workload: &Workload,
    setup: &Setup,
) -> Result<Manager<Engine>, SimulateError> {
    let engine = Engine::new(&setup.engine(system), workload);
    let engine = engine.map_err(|source| SimulateError::engine(system, workload, source))?;
    let (settings, told) = system.settings(setup.rate)?;
    let policy = policies::by_name(system.policy(), &told)?;
    Ok(Manager::new(engine, policy, settings)?)
}

/// Runs a workload on a system.
///
/// # Errors
/// A machine that can't be built, or that contradicts itself.
pub fn simulate(
    system: &System,
    workload: &Workload,
    setup: &Setup,
) -> Result<Simulated, SimulateError> {
    let mut manager = manager(system, workload, setup)?;
    while manager.machine().now() < setup.longest && manager.step() == Wake::Deadline {}
    let (engine, journal) = manager.finish();
    if let Some(error) = engine.broken() {
        return Err(SimulateError::engine(system, workload, error.clone()));
    }
    let totals = journal.totals();
    Ok(Simulated {
        system: system.name.to_owned(),
        workload: workload.name.clone(),
        figures: engine.figures(),
        promoted: totals.promoted,
        split: totals.split,
        recovered_bytes: totals.recovered_bytes,
        errors: totals.errors.clone(),
    })
}

/// One run to be made.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// On what.
    pub system: System,
    /// Of what.
    pub workload: &'a Workload,
    /// With what.
    pub setup: Setup,
}

/// Makes runs on so many threads (1 at the least); results are in the order of the jobs, whatever the threads.
///
/// # Errors
/// The first job's that failed.
pub fn simulate_all(jobs: &[Job], threads: usize) -> Result<Vec<Simulated>, SimulateError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else {
                return done;
            };
            done.push((index, simulate(&job.system, job.workload, &job.setup)));
        }
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
