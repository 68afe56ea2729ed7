//! CPU time of managing a whole machine while processes start and end.

use super::PrefixedRowWriter;
use super::prelude::*;
use hawkeye_linux::processes::proc_scanner::ProcScanner;
use hawkeye_linux::processes::process::{calling_thread_cpu_time, own_cpu_time};
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{LinuxMachine, ManagedTarget};
use hawkeye_manager::{LoopWakeReason, Machine, Manager};
use hawkeye_policy::policies::AccessMapPolicy;
use hawkeye_policy::{
    ProcessSelectionSettings, ProcessSettings, Rule, RuleAction, RuleConditions, Rules,
    UnmatchedAction,
};

/// First small processes, a tenth of which end and are replaced each second; then larger ones, all
/// managed.
pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let (small, managed) = scale.short_or_long((200, 50), (2000, 500));
    let length = scale.short_or_long(Duration::from_secs(4), Duration::from_secs(60));
    require_available_memory(2 << 30)?;
    let per_s = small / 10;
    let words = format!("crowd --processes {small} --per-s {per_s} --mib 4");
    let rows =
        report.prefixed_row_writer(format!("{small} small processes, {per_s} replaced a second"));
    let goal = "goal: at most 2";
    let selection = ProcessSelectionSettings::default();
    let interval = selection.scan_interval();
    manage_and_report_crowd(host, &words, selection, length, rows, goal)?;
    // Little memory each, so that their number is what counts.
    let selection = ProcessSelectionSettings::new(2 << 20, interval, managed)?;
    let words = format!("crowd --processes {managed} --per-s 0 --each-kib 3072 --mib 4");
    let rows = report.prefixed_row_writer(format!("{managed} managed processes"));
    manage_and_report_crowd(host, &words, selection, length, rows, "")?;
    report.add_note(
        "The manager's CPU time includes all of its work: sweeps, memory checks and sampling.",
    );
    Ok(())
}

/// Rules that keep the figures independent of what else runs on this machine.
fn rules_for_crowd_only(host: &BenchHost) -> BenchResult<Rules> {
    let name = host.workload_program_path().file_name().unwrap_or_default();
    let command = name.to_string_lossy().parse();
    let command = command
        .map_err(|error| impossible!("this program's name is not a valid pattern: {error}"))?;
    let rule = Rule {
        name: "crowd".into(),
        conditions: RuleConditions { command: Some(command), ..RuleConditions::default() },
        action: RuleAction::Include(ProcessSettings::default()),
    };
    Ok(Rules::new(vec![rule], UnmatchedAction::Exclude))
}

fn manage_and_report_crowd(
    host: &BenchHost,
    words: &str,
    selection: ProcessSelectionSettings,
    length: Duration,
    mut rows: PrefixedRowWriter,
    goal: &str,
) -> BenchResult<()> {
    let mut crowd = host.start_workload(words)?;
    crowd.wait_ready()?;
    // The manager does not consider a process in its first second.
    std::thread::sleep(Duration::from_secs(2));
    let (scope, _waker) =
        ManagedTarget::whole_machine_with_waker(rules_for_crowd_only(host)?, selection)?;
    let machine = LinuxMachine::new(host.new_kernel_backend()?, scope, StopSignals::disabled());
    let settings = Settings::default();
    let policy = Box::new(AccessMapPolicy::hawkeye_g(settings.average));
    let mut manager = Manager::new(machine, policy, settings)?;
    let (cpu_before, began) = (own_cpu_time(), manager.machine().now());
    let mut first_step = None;
    while manager.run_due_work_and_wait() != LoopWakeReason::Stop
        && manager.machine().now() < began + length
    {
        first_step.get_or_insert_with(|| own_cpu_time().saturating_sub(cpu_before));
    }
    let machine = manager.machine();
    let cpu = own_cpu_time().saturating_sub(cpu_before).as_secs_f64();
    let wall = machine.now().saturating_sub(began).as_secs_f64();
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    rows.add_row("manager", cpu * 100.0 / wall, "% core", goal);
    let (scan, processes) = measure_process_scan(selection)?;
    let scan_ms = scan.as_secs_f64() * 1e3;
    rows.add_row("one sweep", scan_ms, "ms", format!("{processes} processes"));
    // The time until every process had joined.
    let joining = first_step.unwrap_or_default().as_secs_f64() * 1e3;
    let members = format!("{} managed at the end", machine.managed_processes().len());
    rows.add_row("first step", joining, "ms", members);
    rows.add_row("open files", descriptors as f64, "", "");
    Ok(())
}

/// Mean CPU time of a scan for processes as the manager makes it, and how many there are.
fn measure_process_scan(selection: ProcessSelectionSettings) -> BenchResult<(Duration, usize)> {
    const SCANS: u32 = 10;
    let mut scanner = ProcScanner::open()?;
    let (before, mut processes) = (calling_thread_cpu_time(), 0);
    for _ in 0..SCANS {
        let deadline = Instant::now() + Duration::from_secs(60);
        let scan = scanner.scan_large_processes(selection.min_bytes_to_stay(), deadline)?;
        processes = scan.map_or(0, |scan| scan.processes);
    }
    Ok((calling_thread_cpu_time().saturating_sub(before) / SCANS, processes))
}
