//! A container bloats itself to its memory limit: is it killed or not?

use super::guard_arm::{GuardArm, khugepaged_pace_note};
use super::huge_page_systems::set_empty_page_limit_and_shrinker;
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use super::proc_files::read_vmstat_counter;
use super::running_daemon::RunningDaemon;
use hawkeye_workload::WorkloadProcessError;

/// The limit. The program grows to `GROWS_TO_MIB` and uses 128 MiB of that.
const LIMIT_MIB: u64 = 2048;
const GROWS_TO_MIB: u64 = 4096;
const USED_PAGES: u64 = 16;

/// The conditions of a trial.
#[derive(Clone, Copy)]
struct ContainerTrialSetup {
    name: &'static str,
    /// What faults get.
    enabled: &'static str,
    /// Whether the kernel splits huge pages at the limit by itself (6.12 and later), as it does
    /// with `kernel_split = "on"`. Neither the kernel nor HawkEye sets that by default.
    kernel_splits: bool,
    managed: bool,
}

const NEVER: ContainerTrialSetup = ContainerTrialSetup {
    name: "THP never",
    enabled: "never",
    kernel_splits: false,
    managed: false,
};
const ALWAYS: ContainerTrialSetup =
    ContainerTrialSetup { name: "THP always", enabled: "always", ..NEVER };
/// What an operator can do without HawkEye.
const ALWAYS_AND_SPLIT: ContainerTrialSetup =
    ContainerTrialSetup { name: GuardArm::SHRINKER.name, kernel_splits: true, ..ALWAYS };
const MANAGED: ContainerTrialSetup =
    ContainerTrialSetup { name: "managed without kernel_split", managed: true, ..ALWAYS };
const MANAGED_AND_SPLIT: ContainerTrialSetup =
    ContainerTrialSetup { name: "managed with kernel_split", managed: true, ..ALWAYS_AND_SPLIT };

impl ContainerTrialSetup {
    fn prepare_host(self, host: &mut BenchHost) -> BenchResult<()> {
        host.set_thp_enabled(self.enabled)?;
        set_empty_page_limit_and_shrinker(host, self.kernel_splits)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ContainerTrialResult {
    killed: bool,
    split: u64,
    kernel_split: u64,
    manager_cpu_s: f64,
    grown_s: Option<f64>,
}

/// A program that will grow, in a container.
struct GrowingContainer {
    // Dropped first: the cgroup must be empty then.
    program: WorkloadProcess,
    pid: u32,
    group: MemoryCgroup,
}

impl GrowingContainer {
    /// Starts the program, which has `start_mib` MiB and waits.
    fn start(host: &BenchHost, start_mib: u64, mb_per_s: Option<u64>) -> BenchResult<Self> {
        let group = MemoryCgroup::new("hawkeye-bench-container", LIMIT_MIB << 20)?;
        let mut words =
            format!("grow --mib {GROWS_TO_MIB} --start-mib {start_mib} --used {USED_PAGES}");
        if let Some(rate) = mb_per_s {
            words += &format!(" --mb-per-s {rate}");
        }
        let mut program = group.start_workload(host.workload_program_path(), &words)?;
        let pid = program.wait_ready()?.pid;
        Ok(Self { program, pid, group })
    }

    /// Waits until the program has grown and verified its memory, or was killed.
    fn wait_for_end(&mut self, found: &mut ContainerTrialResult) -> BenchResult<()> {
        loop {
            match self.program.next_event(Duration::from_secs(300)) {
                Ok(WorkloadEvent::Progress { elapsed_s, .. }) => found.grown_s = Some(elapsed_s),
                Ok(WorkloadEvent::Verified { bad_bytes: 0, .. }) => return Ok(()),
                Ok(WorkloadEvent::Verified { bad_bytes, .. }) => {
                    bail!("the program's memory is corrupt: {bad_bytes} bytes are wrong");
                }
                Ok(_) => {}
                Err(WorkloadProcessError::Ended) if self.group.count_oom_kills()? > 0 => {
                    found.killed = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Runs the program once in a new container.
fn run_container_trial(
    host: &BenchHost,
    system: ContainerTrialSetup,
    mb_per_s: Option<u64>,
) -> BenchResult<ContainerTrialResult> {
    let mut container = GrowingContainer::start(host, 0, mb_per_s)?;
    let before = read_kernel_split_count()?;
    let mut found = ContainerTrialResult::default();
    if system.managed {
        let (mut told, mut waiting) = (Ok(()), true);
        let start = |_: &_| {
            if std::mem::take(&mut waiting) {
                told = container.program.send_request(WorkloadRequest::Go);
            }
            told.is_err()
        };
        // Managing ends with the program.
        let (settings, at_most) = (Settings::default(), Duration::from_secs(300));
        let (means, pid) = (host.new_kernel_backend()?, container.pid);
        let managed = manage_processes_until(means, &[pid], "hawkeye-g", settings, at_most, start)?;
        told?;
        found.split = managed.journal.totals().split;
        found.manager_cpu_s = managed.cpu.as_secs_f64();
    } else {
        container.program.send_request(WorkloadRequest::Go)?;
    }
    container.wait_for_end(&mut found)?;
    found.kernel_split = read_kernel_split_count()?.saturating_sub(before);
    Ok(found)
}

/// Memory that the program of [`run_guard_growth`] has before it grows: enough for the daemon to
/// manage it.
const RUNNING_MIB: u64 = 128;
/// How fast it grows.
const GUARD_GROWTH_MB_PER_S: u64 = 4000;

const GUARD_GROWTH_ARMS: [GuardArm; 5] = [
    GuardArm::NEVER,
    GuardArm::ALWAYS,
    GuardArm::SHRINKER,
    GuardArm::GUARD_AND_SHRINKER,
    GuardArm::GUARD_WITHOUT_SHRINKER,
];

/// Runs the program once in a new container beside a daemon that manages the machine, or without
/// one.
fn run_trial_beside_daemon(
    host: &BenchHost,
    daemon: Option<&RunningDaemon>,
) -> BenchResult<ContainerTrialResult> {
    let mut container = GrowingContainer::start(host, RUNNING_MIB, Some(GUARD_GROWTH_MB_PER_S))?;
    let daemon_totals = || -> BenchResult<(u64, Duration)> {
        daemon.map_or(Ok(Default::default()), |daemon| {
            Ok((daemon.fetch_status()?.totals.split, daemon.cpu_time()))
        })
    };
    if let Some(daemon) = daemon {
        daemon.wait_until_managed(container.pid)?;
    }
    // Where a host has to back memory first, the program does not reach its speed.
    host.touch_memory_once(GROWS_TO_MIB << 20)?;
    let (kernel_before, (split_before, cpu_before)) =
        (read_kernel_split_count()?, daemon_totals()?);
    container.program.send_request(WorkloadRequest::Go)?;
    let mut found = ContainerTrialResult::default();
    container.wait_for_end(&mut found)?;
    let (split, cpu) = daemon_totals()?;
    found.split = split - split_before;
    found.manager_cpu_s = cpu.saturating_sub(cpu_before).as_secs_f64();
    found.kernel_split = read_kernel_split_count()?.saturating_sub(kernel_before);
    Ok(found)
}

/// A running program grows to its limit within half a second: the daemon with the profile `guard`
/// beside the kernel alone.
pub fn run_guard_growth(
    host: &mut BenchHost,
    scale: Scale,
    report: &mut LiveReport,
) -> BenchResult<()> {
    // The filler may take nine tenths of what is available.
    require_available_memory(((RUNNING_MIB + GROWS_TO_MIB) << 20) / 9 * 10)?;
    let mut trials = GUARD_GROWTH_ARMS.map(|_| Vec::new());
    for _ in 0..scale.short_or_long(2, 20) {
        for (arm, trials) in GUARD_GROWTH_ARMS.iter().zip(&mut trials) {
            trials.push(arm.run_under_arm(host, run_trial_beside_daemon)?);
        }
    }
    for (arm, trials) in GUARD_GROWTH_ARMS.iter().zip(&trials) {
        add_row_for_trials(arm.name, Some(GUARD_GROWTH_MB_PER_S), trials, report);
    }
    report.add_note(format!(
        "{CONTAINER_NOTE} It has touched {RUNNING_MIB} MiB of huge pages before, and waits until a daemon manages it. Right before it grows, a filler has touched {GROWS_TO_MIB} MiB and has exited. Goal for guard: all live."
    ));
    report.add_note(khugepaged_pace_note());
    Ok(())
}

fn read_kernel_split_count() -> BenchResult<u64> {
    Ok(read_vmstat_counter("thp_underused_split_page")?.unwrap_or(0))
}

fn run_and_report_trials(
    host: &mut BenchHost,
    report: &mut LiveReport,
    system: ContainerTrialSetup,
    mb_per_s: Option<u64>,
    runs: u32,
) -> BenchResult<()> {
    system.prepare_host(host)?;
    let trials = (0..runs).map(|_| run_container_trial(host, system, mb_per_s));
    let trials = trials.collect::<BenchResult<Vec<_>>>()?;
    add_row_for_trials(system.name, mb_per_s, &trials, report);
    Ok(())
}

fn add_row_for_trials(
    name: &str,
    mb_per_s: Option<u64>,
    trials: &[ContainerTrialResult],
    report: &mut LiveReport,
) {
    let lived = trials.iter().filter(|trial| !trial.killed).count();
    let of = |figure: fn(&ContainerTrialResult) -> f64| median_of_mapped(trials, figure);
    let speed = mb_per_s.map_or("unlimited".to_owned(), |rate| format!("{rate} MB/s"));
    let grown: Vec<f64> = trials.iter().filter_map(|trial| trial.grown_s).collect();
    let grown = match grown[..] {
        [] => "never grown".to_owned(),
        _ => format!("grew in {:.2} s", median(&grown)),
    };
    report.add_row(
        format!("{name}, {speed}: survived"),
        lived as f64,
        "runs",
        format!(
            "of {}; {grown}; huge pages split: {} by the manager ({:.1} s of CPU), {} by the kernel at the limit",
            trials.len(),
            of(|trial| trial.split as f64),
            of(|trial| trial.manager_cpu_s),
            of(|trial| trial.kernel_split as f64),
        ),
    );
}

const CONTAINER_NOTE: &str = "The limit is 2 GiB. The program touches 4 GiB of huge pages, 16 base pages of each, and verifies them at the end.";

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    require_available_memory(LIMIT_MIB << 20)?;
    let (runs, sweep) = scale.short_or_long((1, 1), (20, 3));
    let rates = scale.short_or_long(&[][..], &[Some(100), Some(500), Some(1000)]);
    run_and_report_trials(host, report, NEVER, None, sweep)?;
    for setup in [ALWAYS, ALWAYS_AND_SPLIT, MANAGED_AND_SPLIT] {
        run_and_report_trials(host, report, setup, None, runs)?;
    }
    for rate in rates {
        run_and_report_trials(host, report, MANAGED_AND_SPLIT, *rate, sweep)?;
    }
    for rate in rates.iter().chain(&[None]) {
        run_and_report_trials(host, report, MANAGED, *rate, sweep)?;
    }
    host.set_thp_enabled("madvise")?;
    report.add_note(CONTAINER_NOTE);
    report.add_note("MB/s counts the huge pages that are touched; counts are medians. The manager has the policy hawkeye-g, and otherwise default settings: kernel_split is off, except where the name has it. max_ptes_none=63 is what kernel_split sets. With 511, the kernel's default, the kernel splits nothing.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arms_that_name_it_let_the_kernel_split() {
        for setup in [NEVER, ALWAYS, ALWAYS_AND_SPLIT, MANAGED, MANAGED_AND_SPLIT] {
            let named = ["max_ptes_none=63", "with kernel_split"];
            let named = named.iter().any(|part| setup.name.contains(part));
            assert_eq!(setup.kernel_splits, named, "{}", setup.name);
            assert_eq!(setup.managed, setup.name.starts_with("managed"), "{}", setup.name);
        }
    }
}
