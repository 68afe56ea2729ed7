//! Workloads on systems: one run, or many at once.

use crate::engine::{Engine, EngineError, EngineFigures, EngineSpec};
use crate::kernel::KernelCosts;
use crate::mmu::{HASWELL, Processor};
use crate::systems::System;
use crate::timeline::{Timeline, TimelinePoint};
use crate::tuning::Tuning;
use crate::workloads::Workload;
use hawkeye_manager::{Machine, Manager, Wake};
use hawkeye_policy::policies::{self, UnknownPolicy};
use hawkeye_policy::{ProcessSample, Rate, SettingError};
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
    /// What is set otherwise than each system's own, for every system alike.
    pub tuning: Tuning,
    /// Whether programs are looked at over time too ([`Simulated::timeline`]).
    pub timeline: bool,
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
            tuning: Tuning::default(),
            timeline: false,
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
    /// Programs over time, in order of time, within it of programs; empty unless [`Setup::timeline`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelinePoint>,
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

/// Is shown each process's sample as the manager takes it: when its window ended, how long it was, the process's
/// command.
pub trait SampleObserver {
    /// One sample.
    fn sampled(&mut self, at: Duration, window: Duration, command: &str, sample: &ProcessSample);
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
    run(system, workload, setup, None)
}

/// The same, with every sample that the manager takes shown to `observer`.
///
/// # Errors
/// The same.
pub fn simulate_observed(
    system: &System,
    workload: &Workload,
    setup: &Setup,
    observer: &mut dyn SampleObserver,
) -> Result<Simulated, SimulateError> {
    run(system, workload, setup, Some(observer))
}

fn run(
    system: &System,
    workload: &Workload,
    setup: &Setup,
    mut observer: Option<&mut dyn SampleObserver>,
) -> Result<Simulated, SimulateError> {
    let failed = |source| SimulateError::Engine {
        workload: workload.name.clone(),
        system: system.name,
        source,
    };
    let spec = EngineSpec {
        memory_bytes: setup.memory_bytes,
        processor: setup.processor,
        // Every processor among the presets prefetches translations of streams in some way.
        next_page_prefetch: true,
        cores: setup.cores,
        faults: system.faults(),
        costs: setup.costs,
        zeroing: setup.tuning.zeroing(system.zeroing()),
        zeroed_before: true,
        fragmented: setup.fragmented,
        seed: setup.seed,
        sample: setup.sample,
    };
    let engine = Engine::new(&spec, workload).map_err(failed)?;
    let (settings, told) = system.settings(setup.rate)?;
    let (settings, told) = setup.tuning.apply(settings, told)?;
    let window = settings.window;
    let policy = policies::by_name(system.policy(), &told)?;
    let mut manager = Manager::new(engine, policy, settings)?;
    let mut timeline = Timeline::default();
    let mut shown = Duration::ZERO;
    loop {
        let over = manager.machine().now() >= setup.longest || manager.step() != Wake::Deadline;
        if setup.timeline {
            timeline.note(manager.machine(), over);
        }
        if let Some(observer) = &mut observer {
            for (at, sample) in manager.samples_after(shown) {
                let command = manager.machine().describe(sample.process).name;
                observer.sampled(at, window, &command, sample);
                shown = at;
            }
        }
        if over {
            break;
        }
    }
    let (engine, journal) = manager.finish();
    if let Some(error) = engine.broken() {
        return Err(failed(error.clone()));
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
        timeline: timeline.into_points(),
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
    simulate_each(jobs, threads, &|_| {})
}

/// The same; `done` is told of each job's place as it is done, by whichever thread did it.
///
/// # Errors
/// The same.
pub fn simulate_each(
    jobs: &[Job],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Simulated>, SimulateError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else {
                return results;
            };
            results.push((index, simulate(&job.system, job.workload, &job.setup)));
            done(index);
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
