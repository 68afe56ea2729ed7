//! Prefault: which memory it fills, which not, and that it harms no contents.

use crate::common::{
    CommandOutput, DEADLINE, HAWKEYE, NO_SWAP_IN_GROUP, TestMachine, WORKLOADS, figure, machine,
    machine_at_speed, machine_with_remap, memory_cgroup, or_skip, read_json, started_by,
    time_limit_factor, until, workload,
};
use hawkeye_bench::live::MemoryCgroup;
use hawkeye_linux::machine_lease::thp_settings::enabled_file;
use hawkeye_linux::memory::system_memory;
use hawkeye_linux::processes::process::rss_bytes;
use hawkeye_live_test_support::settings;
use hawkeye_policy::HUGE_PAGE_BYTES;
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadEvent, WorkloadProcess, WorkloadRequest};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const OPTIONS: &str = "--fault-ahead on --policy none --cpu 100";
/// Work between two regions, in microseconds: longer than a fill takes on any machine.
const WORK_US: u32 = 20_000;
const MIB: u64 = 1 << 20;
/// Memory of a test's streams that is filled at least. It is not all, because the filler leaves a
/// core that other programs need.
const LEAST: u64 = 16 * MIB;
/// Deadline of a warm start on a busy machine, where it pauses for up to 1.6 s after every few
/// regions.
const WARM_START: Duration = Duration::from_secs(600);

/// Runs a workload with these options too. Returns the summary.
fn run(machine: &TestMachine, options: &str, workload: &str) -> Value {
    let (code, summary) = machine.run_workload(&format!("{OPTIONS} {options}"), workload);
    assert_eq!(code, 0, "{options} {workload}: {summary}");
    summary
}

fn filled(summary: &Value) -> u64 {
    figure(summary, "filled_ahead_bytes")
}

/// Tries until a try succeeds; each returns its summary and whether it has. Where other programs
/// want every core none may succeed, but then the filler has paused in each.
fn assert_succeeds_or_pauses(mut try_once: impl FnMut() -> (Value, bool)) {
    let (mut always_paused, mut last) = (true, Value::Null);
    let succeeds = until(DEADLINE, || {
        let (summary, succeeds) = try_once();
        always_paused &= figure(&summary, "prefault_pauses") > 0;
        last = summary;
        succeeds
    });
    assert!(succeeds || always_paused, "{last}");
}

/// Asserts that enough of one or more streams is filled.
fn assert_prefaults(mut summary_of_stream: impl FnMut() -> Value) {
    let mut all = 0;
    assert_succeeds_or_pauses(|| {
        let summary = summary_of_stream();
        all += filled(&summary);
        (summary, all >= LEAST)
    });
}

fn touches_and_ends(mut program: WorkloadProcess) {
    program.send_request(WorkloadRequest::Go).expect("the workload can be started");
    let verified =
        |event: WorkloadEvent| matches!(event, WorkloadEvent::Verified { bad_bytes: 0, .. });
    let mut events = std::iter::repeat_with(|| program.next_event(DEADLINE));
    assert!(events.any(|event| verified(event.expect("the next event arrives"))));
    let status = program.close_input_and_wait().expect("the workload ends");
    assert!(status.success());
}

#[test]
fn a_stream_is_prefaulted_and_settings_are_restored() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let before = settings::read("use_zero_page");
    for order in ["ascending", "descending"] {
        let workload = format!("touch --mib 512 --now --work-us {WORK_US} --order {order}");
        assert_prefaults(|| {
            let summary = run(&machine, "", &workload);
            assert!(filled(&summary) <= 512 * MIB, "{order}: {summary}");
            summary
        });
    }
    assert_eq!(settings::read("use_zero_page"), before);
}

#[test]
fn prefault_works_with_huge_faults_and_these_are_switched_off_again() {
    let machine = or_skip!(machine(this_test!()));
    let before = settings::read("enabled");
    let workload = format!("touch --mib 512 --now --work-us {WORK_US}");
    assert_prefaults(|| run(&machine, "--huge-faults", &workload));
    assert_eq!(settings::read("enabled"), before);
}

#[test]
fn huge_faults_stay_off_from_the_start_while_memory_is_short() {
    let machine = or_skip!(machine(this_test!()));
    let enabled = enabled_file().display().to_string();
    let shown = |watermarks: &str, program: &str| {
        let options = format!("run {OPTIONS} --huge-faults --watermarks {watermarks} --");
        let mut command = machine.hawkeye(&options);
        command.args(["sh", "-c", program]);
        settings::chosen(&CommandOutput::of(&mut command).assert_success().out)
    };
    assert_ne!(shown("0.02,0.01", &format!("cat {enabled}")), "always");
    // Memory pressure of other programs may keep them off for a moment.
    let wait =
        format!("for n in $(seq 600); do grep -qF '[always]' {enabled} && break; sleep 0.1; done");
    assert_eq!(shown("85,70", &format!("{wait}; cat {enabled}")), "always");
}

#[test]
fn scattered_touches_are_hardly_prefaulted() {
    let machine = or_skip!(machine(this_test!()));
    let sparse = "touch --mib 4096 --now --pages-per-region 1 --work-us 500";
    for (options, workload) in
        [("", "touch --mib 1024 --now --order random"), ("", sparse), ("--huge-faults", sparse)]
    {
        let filled = filled(&run(&machine, options, workload));
        assert!(filled <= 64 * MIB, "{workload}: {filled}");
    }
}

#[test]
fn a_stream_after_random_touches_is_prefaulted() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let json = machine.state.join("summary.json");
    // While all touches are random, the trace of faults is off for two seconds at most.
    let random = format!("{WORKLOADS} workload touch --mib 1024 --now --order random");
    let stream = format!("{WORKLOADS} workload touch --mib 1024 --now --work-us {WORK_US}");
    let both = format!("{random} >&2; {stream} >&2");
    assert_prefaults(|| {
        let mut command = machine.hawkeye(&format!("run {OPTIONS} --json {} --", json.display()));
        CommandOutput::of(command.args(["sh", "-c", &both])).assert_success();
        read_json(&json).expect("a summary")
    });
}

#[test]
fn a_warm_start_needs_no_page_fault_and_stops_at_the_requested_size() {
    let machine = or_skip!(machine(this_test!()));
    for threads in [1, 2] {
        warm_start(&machine, threads);
    }
}

fn warm_start(machine: &TestMachine, threads: u32) {
    // The program waits for `go` and exits at the end of its input: it touches nothing.
    let options = format!("{OPTIONS} --fill-threads {threads} --warm 256MiB");
    let touch = "workload touch --mib 128 --mapped-mib 512 --pages huge";
    let command = machine.hawkeye(&format!("run {options} -- {WORKLOADS} {touch}"));
    let (program, ready) = started_by(command);
    let resident = || rss_bytes(ready.pid).unwrap_or_default();
    let warm = until(WARM_START, || resident() >= 256 * MIB);
    assert!(warm, "{} bytes", resident());
    std::thread::sleep(Duration::from_millis(500));
    assert!(resident() < 300 * MIB, "{} bytes", resident());
    touches_and_ends(program);
}

#[test]
fn a_warm_start_stops_at_the_low_watermark_of_a_cgroup() {
    let machine = or_skip!(machine_with_remap(this_test!(), NO_SWAP_IN_GROUP));
    let group = or_skip!(memory_cgroup(this_test!(), "hawkeye-live-warm", 256 * MIB));
    warm_start_in_cgroup(&group, machine.hawkeye(WARM_START_OF_1_GIB));
}

/// As in a container with the machine's own `/sys/fs/cgroup`: other cgroups are shown as `/../x`.
#[test]
fn limits_of_cgroups_hold_for_a_manager_in_a_cgroup_namespace() {
    let machine = or_skip!(machine_with_remap(this_test!(), NO_SWAP_IN_GROUP));
    let group = or_skip!(memory_cgroup(this_test!(), "hawkeye-live-namespace", 256 * MIB));
    let own = or_skip!(memory_cgroup(this_test!(), "hawkeye-live-manager", 4096 * MIB));
    let options = format!("--cgroup {HAWKEYE} {WARM_START_OF_1_GIB}");
    // By its path, because busybox's shell prefers its own, which has no `--cgroup`.
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join("unshare"));
    let unshare = files.find(|file| file.exists()).expect("util-linux is installed");
    let mut manager = own.program_command_in_cgroup(&unshare, &options);
    machine.set_up(&mut manager);
    warm_start_in_cgroup(&group, manager);
}

const WARM_START_OF_1_GIB: &str = "run --fault-ahead on --policy none --cpu 100 --warm 1GiB --";

/// Runs a program in the cgroup under a manager, which fills memory ahead of it.
fn warm_start_in_cgroup(group: &MemoryCgroup, mut manager: Command) {
    // It touches from the start, the warm start fills from the end: both must fit into the limit.
    let touch = "workload touch --mib 32 --mapped-mib 1024 --pages huge";
    let inside = group.program_command_in_cgroup(Path::new(WORKLOADS), touch);
    manager.arg(inside.get_program()).args(inside.get_args());
    let (program, ready) = started_by(manager);
    let resident = || rss_bytes(ready.pid).unwrap_or_default();
    let filled = until(WARM_START, || resident() > 128 * MIB);
    assert!(filled, "{} bytes", resident());
    std::thread::sleep(Duration::from_secs(3));
    // The low watermark is at 70 % of the limit. Up to 8 regions may be filled before the program's
    // move is seen.
    assert!(resident() < 210 * MIB, "{} bytes", resident());
    touches_and_ends(program);
}

#[test]
fn unused_prefaulted_memory_is_at_most_one_window_and_is_recovered() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    assert_succeeds_or_pauses(|| end_stream_and_recover(&machine));
}

/// Returns the summary, and whether memory was filled ahead of a stream when it ended.
fn end_stream_and_recover(machine: &TestMachine) -> (Value, bool) {
    const WINDOW: u64 = 128 * MIB;
    let (mut program, pid) =
        workload(&format!("touch --mib 512 --mapped-mib 2048 --work-us {WORK_US} --stay"));
    let resident = || rss_bytes(pid).expect("the resident memory can be read");
    let before = resident();
    let state = system_memory::machine_memory_use().expect("the memory use can be read");
    let used = state.used_percent();
    // Prefault stays below the low watermark; the neighbour goes beyond the high one.
    let watermarks = format!("--watermarks {:.2},{:.2}", used + 10.0, used + 9.5);
    let attached = machine.attach(&format!("{OPTIONS} {watermarks}"), pid);
    // Set just before the manager follows the process.
    let listens = || settings::read("use_zero_page") == "0";
    assert!(until(DEADLINE, listens), "the filler has begun");
    std::thread::sleep(Duration::from_secs(2) * time_limit_factor());
    program.send_request(WorkloadRequest::Go).expect("the workload can be started");
    let mut events = std::iter::repeat_with(|| program.next_event(DEADLINE));
    assert!(events.any(|event| matches!(
        event.expect("the next event arrives"),
        WorkloadEvent::Verified { .. }
    )));
    let touched = before + 512 * MIB;
    let ahead = resident().saturating_sub(touched);
    if ahead < HUGE_PAGE_BYTES {
        return (attached.interrupt(), false);
    }
    assert!(ahead <= WINDOW, "{ahead} bytes are too much ahead");
    let mib = state.total_bytes / 8 / MIB;
    let (_neighbour, _) = workload(&format!("burner --mib {mib}"));
    let gone = || resident() <= touched + 4 * MIB;
    let recovered = until(DEADLINE, gone);
    let summary = attached.interrupt();
    assert!(recovered, "{summary}");
    assert!(filled(&summary) >= HUGE_PAGE_BYTES, "{summary}");
    (summary, true)
}

#[test]
fn no_byte_changes_while_torture_is_prefaulted() {
    let machine = or_skip!(machine(this_test!()));
    for (threads, workload) in [
        (1, "torture --mib 512 --threads 4 --seconds 4"),
        (2, "torture --mib 512 --threads 4 --seconds 4"),
        (2, "fork-storm --children 4 --mib 256 --seconds 4"),
        (2, "exec-self --ms 200 --times 10 --mib 256 --seconds 2"),
    ] {
        let options = format!("--fill-threads {threads} --huge-faults --warm 1GiB");
        run(&machine, &options, workload);
    }
}
