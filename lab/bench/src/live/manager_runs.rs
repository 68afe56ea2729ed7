//! Manages processes within an experiment.

use super::bench_host::BenchHost;
use super::programs::MeasuredProgram;
use super::scale::TurnSettings;
use crate::error::{BenchError, BenchResult};
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{ChosenKernelMethods, LinuxMachine, ManagedTarget};
use hawkeye_manager::{Event, Journal, LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::policies;
use hawkeye_policy::{CpuBudget, RatePerSecond, SamplingCostLimits};
use std::time::Duration;

/// What management cost and did.
pub struct ManagementRecord {
    /// All events.
    pub journal: Journal,
    pub(super) cpu: Duration,
    pub(super) wall: Duration,
    pub(super) longest_call: Duration,
}

impl ManagementRecord {
    /// CPU time in per cent of a core.
    pub fn cpu_percent_of_core(&self) -> f64 {
        self.cpu.as_secs_f64() * 100.0 / self.wall.as_secs_f64()
    }

    /// Regions of a process that were promoted.
    pub fn count_promoted_regions(&self, pid: u32) -> u64 {
        let promoted = self.journal.entries().filter(
            |entry| matches!(&entry.event, Event::Promoted { process, .. } if process.pid == pid),
        );
        promoted.count() as u64
    }
}

/// The policies to compare, the most promising first.
pub(super) const POLICIES: [&str; 5] = ["hawkeye", "hawkeye-g", "hawkeye-pmu", "ingens", "linux"];

/// Period of [`promote_one_programs_worth`], shorter than the default: a run lasts seconds.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

/// Period of [`dense_sampling_settings`], shorter than the default, so that a turn of seconds holds
/// several windows.
pub(super) const DENSE_SAMPLING_PERIOD: Duration = Duration::from_millis(250);

/// Settings for sampling regardless of the cost, with the CPU time of a whole core.
pub(super) fn dense_sampling_settings() -> BenchResult<Settings> {
    Ok(Settings {
        period: DENSE_SAMPLING_PERIOD,
        window: Duration::from_millis(100),
        cpu: CpuBudget::new(100.0)?,
        pace: SamplingCostLimits::new(100.0, 100.0)?,
        ..Settings::default()
    })
}

/// Promotes as many regions as one of two programs of this size has, in seconds, without CPU limit.
pub(super) fn promote_one_programs_worth<'a>(
    host: &BenchHost,
    policy: &str,
    programs: impl IntoIterator<Item = &'a mut Box<dyn MeasuredProgram>>,
    sizes: TurnSettings,
) -> BenchResult<ManagementRecord> {
    let mut programs: Vec<_> = programs.into_iter().collect();
    let pids: Vec<u32> = programs.iter().map(|program| program.pid()).collect();
    let budget = sizes.mib / 2;
    let settings = Settings {
        period: PERIOD,
        max_promotions: Some(budget),
        cpu: CpuBudget::new(100.0)?,
        // khugepaged's pace would take minutes for the same regions.
        rate: (policy == "linux").then_some(RatePerSecond::new(1e6)?),
        ..Settings::default()
    };
    let means = host.new_kernel_backend()?;
    programs.iter_mut().try_for_each(|program| program.start_work())?;
    let done = manage_processes_until(means, &pids, policy, settings, sizes.at_most, |journal| {
        journal.totals().promoted >= budget
    });
    programs.iter_mut().try_for_each(|program| program.pause_work())?;
    done
}

/// Manages several processes, which arrive in the order given, until `enough` returns true, for at
/// most `at_most`. Nothing is managed while `enough` runs.
pub fn manage_processes_until(
    means: ChosenKernelMethods,
    pids: &[u32],
    policy: &str,
    settings: Settings,
    at_most: Duration,
    enough: impl FnMut(&Journal) -> bool,
) -> BenchResult<ManagementRecord> {
    let memory = ManagedMemoryKind::Private;
    manage_memory_of_processes_until(means, pids, memory, policy, settings, at_most, enough)
}

/// The memory of managed processes that is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedMemoryKind {
    Private,
    /// Shared memory, too.
    Shared,
}

/// As [`manage_processes_until`], for one kind of memory.
pub(super) fn manage_memory_of_processes_until(
    means: ChosenKernelMethods,
    pids: &[u32],
    memory: ManagedMemoryKind,
    policy: &str,
    settings: Settings,
    at_most: Duration,
    mut enough: impl FnMut(&Journal) -> bool,
) -> BenchResult<ManagementRecord> {
    let policy = policies::make_policy_by_name(policy, &settings.policy_settings())
        .map_err(|error| BenchError::Impossible(error.to_string()))?;
    let handles: BenchResult<Vec<_>, _> =
        pids.iter().map(|pid| ProcessHandle::open(*pid)).collect();
    let scope = ManagedTarget::Processes(handles?);
    let before = hawkeye_linux::processes::process::own_cpu_time();
    let mut machine = LinuxMachine::new(means, scope, StopSignals::disabled());
    if memory == ManagedMemoryKind::Shared {
        machine.promote_shared_memory();
    }
    let mut manager = Manager::new(machine, policy, settings)?;
    while manager.run_due_work_and_wait() != LoopWakeReason::Stop {
        if enough(manager.journal()) || manager.machine().now() >= at_most {
            break;
        }
    }
    let (machine, journal) = manager.into_machine_and_journal();
    Ok(ManagementRecord {
        cpu: machine.management_costs().cpu.saturating_sub(before),
        wall: machine.now(),
        longest_call: machine.management_costs().longest_call,
        journal,
    })
}
