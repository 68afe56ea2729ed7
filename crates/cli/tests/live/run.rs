//! `hawkeye run`.

use crate::common::{
    CommandOutput, DEADLINE, HAWKEYE, NO_SWAP_IN_GROUP, StartedProcess, TestMachine, WORKLOADS,
    child_ends_ignored, figure, hangup_not_ignored, huge_bytes, interrupted_before_it_begins,
    machine, machine_at_speed, machine_with_remap, memory_cgroup, or_skip, read_json, signal,
    time_limit_factor, until, wait,
};
use hawkeye_live_test_support::settings;
use hawkeye_test_support::this_test;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

#[test]
fn the_exit_status_is_passed_on_and_the_summary_has_every_documented_field() {
    let machine = or_skip!(machine(this_test!()));
    let (code, summary) =
        machine.run_workload("--profile balanced", "exit-after --ms 1500 --mib 64 --status 7");
    assert_eq!(code, 7);
    assert_eq!(summary["exit_status"], 7);
    let promised = "profile policy wall_s exit_status promoted split recovered_bytes \
        filled_ahead_bytes errors manager_cpu_s longest_call_ms";
    for field in promised.split_whitespace() {
        assert!(!summary[field].is_null(), "{field} in {summary}");
    }
    let program = &summary["program"];
    let promised = "user_s system_s minor_faults rss_peak_bytes rss_end_bytes huge_end_bytes";
    for field in promised.split_whitespace() {
        assert!(program[field].is_number(), "{field} in {program}");
    }
    assert!(figure(program, "rss_peak_bytes") >= 64 << 20, "{program}");
    assert!(figure(program, "minor_faults") >= 16_384, "{program}");
}

#[test]
fn the_profile_decides_unless_an_option_overrides_it() {
    let machine = or_skip!(machine(this_test!()));
    for (options, profile, policy, prefault) in [
        ("", "speed", "hawkeye", true),
        ("--profile balanced", "balanced", "hawkeye", false),
        ("--profile guard", "guard", "guard", false),
        ("--profile guard --policy linux", "guard", "linux", false),
        ("--fault-ahead off", "speed", "hawkeye", false),
    ] {
        let before = settings::read("use_zero_page");
        let workload = "touch --mib 64 --now --work-us 20000";
        let (code, summary) = machine.run_workload(options, workload);
        assert_eq!((code, &summary["profile"]), (0, &profile.into()), "{options}");
        assert_eq!(summary["policy"], policy, "{options}");
        let choice = &summary["prefault"];
        assert_eq!(choice.is_object(), prefault, "{options}: {choice}");
        if prefault {
            assert!(choice["on"].is_boolean() && choice["reason"].is_string(), "{choice}");
        }
        if policy == "guard" {
            assert_eq!(summary["promoted"], 0, "{options}");
        }
        assert_eq!(settings::read("use_zero_page"), before);
    }
}

/// Without a spare core it may fill nothing, and says so by its pauses.
#[test]
fn by_default_a_stream_is_prefaulted_or_the_summary_says_why_not() {
    let machine = or_skip!(machine(this_test!()));
    let mut last = Value::Null;
    // The program does not wait for the filler. Where that starts slowly, the next program lives
    // longer.
    let mut work_us = 20_000;
    let filled_or_waited = until(DEADLINE, || {
        let workload = format!("touch --mib 512 --now --work-us {work_us}");
        last = machine.run_workload("", &workload).1;
        work_us *= 2;
        let choice = &last["prefault"];
        let is_off =
            choice["on"] == false && choice["reason"] != "it had not started yet at the end";
        let waited = figure(&last, "prefault_pauses") > 0 || is_off;
        waited || figure(&last, "filled_ahead_bytes") >= 16 << 20
    });
    assert!(filled_or_waited, "{last}");
}

#[test]
fn standard_output_belongs_to_the_program() {
    let machine = or_skip!(machine(this_test!()));
    let CommandOutput { out, err, .. } = machine.output("run -- echo only this");
    assert_eq!(out, "only this\n");
    assert!(err.contains("hawkeye: echo ended with status 0"), "{err}");
}

#[test]
fn signals_are_forwarded_and_a_killed_program_gives_128_and_the_signal() {
    let machine = or_skip!(machine(this_test!()));
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        signal_is_forwarded(&machine, signal);
    }
}

/// The terminal sends SIGQUIT to both. A JVM prints its threads then, and goes on.
#[test]
fn at_a_quit_the_manager_waits_for_the_programs_end() {
    let machine = or_skip!(machine(this_test!()));
    let mut command = machine.hawkeye("run -- sh -c");
    let ended = CommandOutput::of(command.arg("kill -QUIT $PPID; exit 3"));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("ended with status 3"), "{ended:?}");
}

/// Each managed process takes descriptors of the manager. The program's limit is its own affair.
#[test]
fn the_manager_raises_its_limit_of_open_files_and_not_the_programs() {
    const SOFT_LIMIT: u64 = 1000;
    let machine = or_skip!(machine(this_test!()));
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit can be read");
    let mut command = machine.hawkeye("run -- sleep 600");
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_NOFILE, SOFT_LIMIT, hard)?));
    }
    let mut child = StartedProcess::quietly(&mut command);
    let soft_limit = |pid: u32| -> Option<u64> {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
        line.split_whitespace().nth(3)?.parse().ok()
    };
    let raised = until(DEADLINE, || soft_limit(child.id()) == Some(hard));
    let of_program = program_of(child.id(), "sleep").and_then(soft_limit);
    signal(child.id(), libc::SIGTERM);
    assert_eq!(wait(&mut child, DEADLINE), Some(128 + libc::SIGTERM));
    assert!(raised);
    assert_eq!(of_program, Some(SOFT_LIMIT));
}

/// The terminal sends SIGINT to the programs that there are.
#[test]
fn a_signal_before_the_program_is_started_starts_none() {
    let machine = or_skip!(machine(this_test!()));
    let started = machine.state.join("started");
    let mut command = machine.hawkeye(&format!("run -- touch {}", started.display()));
    interrupted_before_it_begins(&mut command);
    let mut child = StartedProcess::quietly(&mut command);
    assert_eq!(wait(&mut child, DEADLINE), Some(128 + libc::SIGINT));
    assert!(!started.exists());
}

#[test]
fn the_exit_status_is_passed_on_where_ends_of_children_were_ignored() {
    let machine = or_skip!(machine(this_test!()));
    let mut command = machine.hawkeye("run -- sh -c");
    let mut child = StartedProcess::quietly(child_ends_ignored(command.arg("exit 3")));
    assert_eq!(wait(&mut child, DEADLINE), Some(3));
}

/// As where a terminal was closed, or `tee` has ended.
#[test]
fn results_are_written_where_standard_error_is_closed() {
    let machine = or_skip!(machine(this_test!()));
    let json = machine.state.join("closed.json");
    let words = format!("run --json {} -- sh -c", json.display());
    let mut command = machine.hawkeye(&words);
    let (reader, writer) = UnixStream::pair().expect("a socket pair");
    drop(reader);
    command.arg("exit 3").stderr(OwnedFd::from(writer));
    let mut child = StartedProcess(command.spawn().expect("the program starts"));
    assert_eq!(wait(&mut child, DEADLINE), Some(3));
    assert_eq!(read_json(&json).expect("the summary")["exit_status"], 3);
}

/// The program with this name that a manager has started.
fn program_of(manager: u32, name: &str) -> Option<u32> {
    let mut family = hawkeye_linux::processes::process::pids_of_process_and_descendants(manager);
    family.find(|pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    })
}

fn signal_is_forwarded(machine: &TestMachine, number: i32) {
    let mut command = machine.hawkeye("run -- sleep 60");
    let mut child = StartedProcess::quietly(hangup_not_ignored(&mut command));
    assert!(until(DEADLINE, || program_of(child.id(), "sleep").is_some()), "sleep is started");
    signal(child.id(), number);
    assert_eq!(wait(&mut child, DEADLINE), Some(128 + number));
}

#[test]
fn children_of_the_program_are_managed_too() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let script = format!("{WORKLOADS} workload sequential --mib 64 >/dev/null; exit 3");
    let options = "--profile balanced --policy hawkeye-g --period 1 --window 0.1 --cpu 100";
    let huge = |pid| huge_bytes(pid) >= 60 << 20;
    let (code, summary) = machine.run_until(options, &["sh", "-c", &script], huge);
    assert_eq!(code, 3, "{summary}");
    assert!(summary["promoted"].as_u64() >= Some(30), "{summary}");
}

#[test]
fn by_default_only_programs_that_gain_are_promoted() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let options = "--profile balanced --period 2 --window 0.2 --cpu 100";
    let huge = |pid| huge_bytes(pid) >= 100 << 20;
    let (_, random) = machine.run_workload_until(options, "random --mib 512 --pages base", huge);
    assert!(figure(&random, "promoted") >= 50, "{random}");
    let (_, sequential) =
        machine.run_workload(options, "sequential --mib 256 --pages base --seconds 10");
    assert_eq!(sequential["promoted"], 0, "{sequential}");
    assert!(figure(&sequential, "samples") > 0, "{sequential}");
}

/// A container's own manager: program and manager share a cgroup, which memory that the program
/// does not use nearly fills.
#[test]
fn inside_a_cgroup_memory_is_recovered_before_the_limit() {
    let machine = or_skip!(machine_with_remap(this_test!(), NO_SWAP_IN_GROUP));
    let group = or_skip!(memory_cgroup(this_test!(), "hawkeye-live-run", 200 << 20));
    let json = machine.state.join("inside.json");
    // More than the limit; the program uses a fifth of it.
    let growth = 50 / time_limit_factor();
    let workload = format!("workload grow --mib 300 --used 100 --pages huge --mb-per-s {growth}");
    let words = format!(
        "run --profile guard --cpu 100 --json {} -- {WORKLOADS} {workload}",
        json.display()
    );
    let mut manager = group.program_command_in_cgroup(Path::new(HAWKEYE), &words);
    machine.set_up(&mut manager);
    manager.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut manager = manager.spawn().expect("the program starts");
    let mut input = manager.stdin.take().expect("the stream is a pipe");
    let go = input.write_all(b"go\n");
    go.expect("the workload can be started");
    // A wrong byte would change the exit code, and the limit would end it by a signal.
    assert_eq!(wait(&mut manager, DEADLINE), Some(0));
    let summary = read_json(&json).expect("a summary");
    let recovered = figure(&summary, "recovered_bytes");
    assert!(recovered >= 80 << 20, "{summary}");
}

#[test]
fn a_dry_run_shows_what_would_be_set_and_starts_nothing() {
    let machine = or_skip!(machine(this_test!()));
    let mark = machine.state.join("started");
    let shown = machine.output(&format!("run --dry-run -- touch {}", mark.display()));
    let shown = shown.assert_success();
    let text = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1: the C library's malloc requests huge pages";
    let left = "first touch  nothing is set:";
    assert!(shown.out.contains(text) || shown.out.contains(left), "{shown:?}");
    assert!(!mark.exists());
    let missing = machine.output("run --dry-run -- /nowhere/program");
    missing.assert_refused(1, "can't start /nowhere/program");
}

#[test]
fn a_programs_allocator_requests_huge_pages_with_the_profile_speed() {
    let machine = or_skip!(machine(this_test!()));
    let set = |options: &str| {
        let command = format!("run {options} -- sh -c");
        let mut command = machine.hawkeye(&command);
        CommandOutput::of(command.arg("echo ${GLIBC_TUNABLES-unset}")).out
    };
    let enabled = hawkeye_linux::machine_lease::thp_settings::enabled_file();
    let enabled = hawkeye_linux::machine_lease::thp_settings::read_setting(&enabled);
    // A shell of busybox has another malloc.
    let is_dynamic = std::fs::canonicalize("/bin/sh").is_ok_and(|sh| !sh.ends_with("busybox"));
    if is_dynamic && enabled.is_ok_and(|setting| setting == "madvise") {
        let tunables = set("");
        assert!(tunables.contains("glibc.malloc.hugetlb=1"), "{tunables}");
    }
    for options in ["--first-touch off", "--profile balanced"] {
        assert_eq!(set(options), "unset\n");
    }
}
