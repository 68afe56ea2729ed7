//! A container bloats itself to its memory limit: is it killed or not?

use super::huge_page_systems::set_empty_page_limit_and_shrinker;
use super::memory_cgroup::MemoryCgroup;
use super::prelude::*;
use hawkeye_linux::stop_signals::unblock_signals_in_child;
use hawkeye_workload::WorkloadProcessError;
use std::fs;

/// The limit. The program grows to `GROWS_TO_MIB` and uses 128 MiB of that.
const LIMIT_MIB: u64 = 2048;
const GROWS_TO_MIB: u64 = 4096;
const USED_PAGES: u64 = 16;

/// The conditions of a trial: what faults get, whether the kernel splits at the limit by itself
/// (6.12 and later), and whether the program is managed.
#[derive(Clone, Copy)]
struct ContainerTrialSetup(&'static str, &'static str, bool, bool);

const NEVER: ContainerTrialSetup = ContainerTrialSetup("THP never", "never", true, false);
const ALWAYS: ContainerTrialSetup = ContainerTrialSetup("THP always", "always", true, false);
const MANAGED: ContainerTrialSetup = ContainerTrialSetup("managed", "always", true, true);
const MANAGED_ALONE: ContainerTrialSetup =
    ContainerTrialSetup("managed, no kernel split", "always", false, true);

impl ContainerTrialSetup {
    fn prepare_host(self, host: &mut BenchHost) -> BenchResult<()> {
        let Self(_, enabled, shrinks, managed) = self;
        host.set_thp_enabled(enabled)?;
        set_empty_page_limit_and_shrinker(host, managed && shrinks, shrinks)
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

/// Runs the program once in a new container.
fn run_container_trial(
    host: &BenchHost,
    system: ContainerTrialSetup,
    mb_per_s: Option<u64>,
) -> BenchResult<ContainerTrialResult> {
    let group = MemoryCgroup::new("hawkeye-bench-container", LIMIT_MIB << 20)?;
    let mut words = format!("workload grow --mib {GROWS_TO_MIB} --used {USED_PAGES}");
    if let Some(rate) = mb_per_s {
        words += &format!(" --mb-per-s {rate}");
    }
    let mut command = group.program_command_in_cgroup(host.workload_program_path(), &words);
    unblock_signals_in_child(&mut command);
    let mut program = WorkloadProcess::spawn_command(command)?;
    let pid = program.wait_ready()?.pid;
    let before = read_kernel_split_count();
    let mut found = ContainerTrialResult::default();
    let ContainerTrialSetup(.., managed) = system;
    if managed {
        let (mut told, mut waiting) = (Ok(()), true);
        let start = |_: &_| {
            if std::mem::take(&mut waiting) {
                told = program.send_request(WorkloadRequest::Go);
            }
            told.is_err()
        };
        // Managing ends with the program.
        let (settings, at_most) = (Settings::default(), Duration::from_secs(300));
        let means = host.new_kernel_backend()?;
        let managed = manage_process_until(means, pid, "hawkeye-g", settings, at_most, start)?;
        told?;
        found.split = managed.journal.totals().split;
        found.manager_cpu_s = managed.cpu.as_secs_f64();
    } else {
        program.send_request(WorkloadRequest::Go)?;
    }
    found.kernel_split = read_kernel_split_count().saturating_sub(before);
    loop {
        match program.next_event(Duration::from_secs(300)) {
            Ok(WorkloadEvent::Progress { elapsed_s, .. }) => found.grown_s = Some(elapsed_s),
            Ok(WorkloadEvent::Verified { bad_bytes: 0, .. }) => return Ok(found),
            Ok(WorkloadEvent::Verified { bad_bytes, .. }) => {
                bail!("the program's memory is corrupt: {bad_bytes} bytes are wrong");
            }
            Ok(_) => {}
            Err(WorkloadProcessError::Ended) => {
                found.killed = true;
                return Ok(found);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_kernel_split_count() -> u64 {
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let prefix = "thp_underused_split_page ";
    let count = vmstat.lines().find_map(|line| line.strip_prefix(prefix));
    count.map_or(0, |count| count.trim().parse().unwrap_or(0))
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
    let lived = trials.iter().filter(|trial| !trial.killed).count();
    let of = |figure: fn(&ContainerTrialResult) -> f64| median_of_mapped(&trials, figure);
    let speed = mb_per_s.map_or("unlimited".to_owned(), |rate| format!("{rate} MB/s"));
    let grown: Vec<f64> = trials.iter().filter_map(|trial| trial.grown_s).collect();
    report.add_row(
        format!("{}, {speed}: survived", system.0),
        lived as f64,
        "runs",
        format!(
            "of {runs}; grew in {:.1} s; huge pages split: {} by the manager ({:.1} s of CPU), {} by the kernel at the limit",
            median(&grown),
            of(|trial| trial.split as f64),
            of(|trial| trial.manager_cpu_s),
            of(|trial| trial.kernel_split as f64),
        ),
    );
    Ok(())
}

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    require_available_memory(LIMIT_MIB << 20)?;
    let (runs, sweep) = scale.short_or_long((1, 1), (20, 3));
    let rates = scale.short_or_long(&[][..], &[Some(100), Some(500), Some(1000)]);
    run_and_report_trials(host, report, NEVER, None, sweep)?;
    run_and_report_trials(host, report, ALWAYS, None, runs)?;
    run_and_report_trials(host, report, MANAGED, None, runs)?;
    for rate in rates {
        run_and_report_trials(host, report, MANAGED, *rate, sweep)?;
    }
    for rate in rates.iter().chain(&[None]) {
        run_and_report_trials(host, report, MANAGED_ALONE, *rate, sweep)?;
    }
    host.set_thp_enabled("madvise")?;
    report.add_note("The limit is 2 GiB. The program touches 4 GiB of huge pages, 16 base pages of each, and verifies them at the end.");
    report.add_note("MB/s counts the huge pages that are touched. The manager has default settings; counts are medians.");
    Ok(())
}
