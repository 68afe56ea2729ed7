//! Forecasts of memory with huge pages for every program: `advise --cgroup`, `advise --all` and
//! `status --forecast`.

use crate::common::{
    CommandOutput, DEADLINE, TestMachine, WORKLOADS, figure, machine, machine_with_remap, memory,
    memory_cgroup, or_skip, started_by, workload, workload_without_thp,
};
use crate::daemon::RunningDaemon;
use hawkeye_bench::live::MemoryCgroup;
use hawkeye_live_test_support::settings::{self, Changed};
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadEvent, WorkloadRequest};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const GROUP: &str = "hawkeye-test-forecast";
const MIB: u64 = 1 << 20;
const NO_SWAP: &str = "this kernel gives nothing back without swap";

fn forecast(machine: &TestMachine, words: &str) -> Vec<Value> {
    let report = machine.output(&format!("advise {words} --json")).assert_success().json();
    assert!(figure(&report, "processes_read") > 0, "{report}");
    report["cgroups"].as_array().expect("a list").clone()
}

fn forecast_of_group(machine: &TestMachine) -> Value {
    forecast(machine, &format!("--cgroup /{GROUP}")).swap_remove(0)
}

/// Resident memory of a workload in the cgroup, and what `look` returns meanwhile.
fn run_in_group<T>(group: &MemoryCgroup, words: &str, look: impl FnOnce() -> T) -> (u64, T) {
    let words = format!("workload {words}");
    let command = group.program_command_in_cgroup(Path::new(WORKLOADS), &words);
    let (mut program, _) = started_by(command);
    let (rss_bytes, _) = memory(&mut program);
    (rss_bytes, look())
}

fn set_enabled(value: &str) -> Changed {
    Changed::to([(settings::file("enabled"), value)]).expect("root can change the setting")
}

#[test]
fn a_program_grows_under_always_as_it_was_forecast_under_madvise_and_never() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let group = or_skip!(memory_cgroup(test, GROUP, 1 << 30));
    for words in [
        "bloat --mib 64 --pages default --used 1",
        "bloat --mib 128 --pages default --used 100",
        "bloat --mib 128 --pages default --used 440",
        "bloat --mib 128 --pages default --used 512",
    ] {
        let always = set_enabled("always");
        let (then, ()) = run_in_group(&group, words, || ());
        drop(always);
        for enabled in ["madvise", "never"] {
            let before = set_enabled(enabled);
            let (now, found) = run_in_group(&group, words, || forecast_of_group(&machine));
            drop(before);
            let added = figure(&found, "always_added_bytes");
            let expected = now + added;
            assert!(expected.abs_diff(then) * 10 <= then, "{words}: {now} + {added}, {then} then");
            assert_eq!(figure(&found, "processes"), 1, "{found}");
            assert!(figure(&found, "anonymous_bytes") > 0, "{found}");
        }
    }
}

#[test]
fn the_limit_of_a_cgroup_decides_what_stays_under_guard() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let _madvise = set_enabled("madvise");
    let group = or_skip!(memory_cgroup(test, GROUP, 100 * MIB));
    let words = "bloat --mib 128 --pages default --used 100";
    let without_bpf = || {
        let mut command = machine.hawkeye(&format!("advise --cgroup /{GROUP} --json"));
        let read = CommandOutput::of(command.env("HAWKEYE_SAMPLER", "population"));
        figure(&read.assert_success().json()["cgroups"][0], "always_added_bytes")
    };
    let look = || (forecast_of_group(&machine), without_bpf());
    let (_, (found, added_without_bpf)) = run_in_group(&group, words, look);
    assert_eq!(figure(&found, "limit_bytes"), 100 * MIB, "{found}");
    let added = figure(&found, "always_added_bytes");
    let full = 64 * 412 * 4096;
    assert!(added >= full && added <= full + 8 * MIB, "{found}");
    assert!(added.abs_diff(added_without_bpf) <= MIB, "{added_without_bpf}: {found}");
    let percent = |name: &str| found[name].as_f64().expect("a number");
    assert!(percent("always_percent_of_limit") > 110.0, "{found}");
    let guard = percent("guard_percent_of_limit");
    let recovers = hawkeye_live_test_support::test_machine::remaps();
    assert_eq!(recovers, (84.0..=86.0).contains(&guard), "{found}");
    let text = machine.output(&format!("advise --cgroup /{GROUP}")).assert_success().out;
    assert!(text.contains("enabled=always; now madvise"), "{text}");
}

#[test]
fn what_a_program_gave_back_itself_need_not_stay_under_guard() {
    let test = this_test!();
    let machine = or_skip!(machine_with_remap(test, NO_SWAP));
    let _madvise = set_enabled("madvise");
    let group = or_skip!(memory_cgroup(test, GROUP, 1 << 30));
    let start = |words: &str| {
        let words = format!("workload bloat --mib 128 --pages default {words}");
        started_by(group.program_command_in_cgroup(Path::new(WORKLOADS), &words)).0
    };
    let least_and_most_mib = || {
        let found = forecast_of_group(&machine);
        ["guard_least_added_bytes", "guard_added_bytes"].map(|name| figure(&found, name) / MIB)
    };
    // The same holes, of memory that was never touched.
    let at_its_peak = start("--used 256");
    let [least, most] = least_and_most_mib();
    assert!(most <= least + 4 && (62..=68).contains(&most), "{least} to {most} MiB");
    drop(at_its_peak);
    let mut program = start("--used 512");
    let given_back = program.request_and_wait(WorkloadRequest::DontNeed(50), DEADLINE);
    assert!(matches!(given_back, Ok(WorkloadEvent::Freed { .. })), "{given_back:?}");
    let [least, most] = least_and_most_mib();
    assert!(least <= 4 && (62..=68).contains(&most), "{least} to {most} MiB");
    let text = machine.output(&format!("advise --cgroup /{GROUP}")).assert_success().out;
    let is_range = |word: &str| word.starts_with('+') && word.contains('-');
    assert!(text.split_whitespace().any(is_range), "{text}");
}

#[test]
fn memory_that_a_program_has_filled_with_zeros_may_be_taken_back() {
    let test = this_test!();
    let machine = or_skip!(machine_with_remap(test, NO_SWAP));
    let _madvise = set_enabled("madvise");
    let group = or_skip!(memory_cgroup(test, GROUP, 1 << 30));
    let script = r#"-e $n=128<<20;$x="\0"x$n;$|=1;print("ready\n");sleep(600)"#;
    let mut command = group.program_command_in_cgroup(Path::new("perl"), script);
    let mut program = command.stdout(Stdio::piped()).spawn().expect("perl starts");
    let output = program.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut String::new()).expect("perl is ready");
    let least_mib = |limit: u64| {
        group.set_limit(limit).expect("the limit can be set");
        let found = forecast_of_group(&machine);
        let least = found["guard_least_added_bytes"].as_i64().expect("a number");
        (least / MIB as i64, figure(&found, "used_bytes") / MIB)
    };
    // There is room.
    let (least, used) = least_mib(1 << 30);
    assert!((0..=4).contains(&least) && (128..=160).contains(&used), "{least} of {used} MiB");
    // Over 85 % of the limit are in use, so recovery goes on to 70 %.
    let limit_mib = used * 100 / 90;
    let (least, used) = least_mib(limit_mib * MIB);
    let excess = (used - limit_mib * 70 / 100) as i64;
    assert!((-excess - 3..=-excess + 3).contains(&least), "{least} of {used} MiB");
    let text = machine.output(&format!("advise --cgroup /{GROUP}")).assert_success().out;
    let is_loss = |pair: &[&str]| pair[0].starts_with('-') && pair[1] == "to";
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.windows(2).any(is_loss), "{text}");
    program.kill().and_then(|()| program.wait()).expect("perl ends");
}

#[test]
fn nothing_is_taken_back_from_what_a_rule_excludes() {
    let test = this_test!();
    let machine = or_skip!(machine_with_remap(test, NO_SWAP));
    let _madvise = set_enabled("madvise");
    let group = or_skip!(memory_cgroup(test, GROUP, 100 * MIB));
    let guarded_share = |rules: &str| {
        let daemon = RunningDaemon::start_by(&machine, &format!("policy = \"none\"\n{rules}"));
        let words = "bloat --mib 128 --pages default --used 100";
        let (_, status) = run_in_group(&group, words, || daemon.json("status --forecast"));
        daemon.end();
        let rows = status["forecast"]["cgroups"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["cgroup"] == format!("/{GROUP}"));
        let row = row.unwrap_or_else(|| panic!("no row of the cgroup in {status}"));
        figure(row, "guard_added_bytes") * 100 / figure(row, "always_added_bytes")
    };
    assert!(guarded_share("") < 80);
    let rule = format!("match.cgroup = \"/{GROUP}\"\naction = \"exclude\"\n");
    assert_eq!(guarded_share(&format!("[[rule]]\nname = \"one\"\n{rule}")), 100);
}

#[test]
fn a_program_with_huge_pages_disabled_or_in_use_does_not_grow() {
    let machine = or_skip!(machine(this_test!()));
    let _madvise = set_enabled("madvise");
    let (_disabled, disabled) = workload_without_thp("bloat --mib 64 --pages default --used 100");
    let (_huge, huge) = workload("bloat --mib 64 --pages huge --used 100");
    let (_base, base) = workload("bloat --mib 64 --pages default --used 100");
    let added = |pid: u32| {
        let advice = machine.output(&format!("advise --seconds 1 --json {pid}"));
        let advice = advice.assert_success().json();
        let mut findings = advice["findings"].as_array().expect("a list").iter();
        let found = findings.find(|finding| finding["finding"] == "forecast");
        figure(found.unwrap_or_else(|| panic!("no forecast in {advice}")), "added_bytes")
    };
    assert_eq!(added(disabled), 0);
    assert!(added(huge) < 8 * MIB);
    assert!(added(base) >= 32 * 412 * 4096);
}

#[test]
fn the_machine_comes_first_and_a_daemon_adds_the_forecast_to_its_status() {
    let machine = or_skip!(machine(this_test!()));
    let _madvise = set_enabled("madvise");
    let (_program, _) = workload("bloat --mib 64 --pages default --used 100");
    let rows = forecast(&machine, "--all");
    assert_eq!(rows[0]["cgroup"], "/");
    assert!(figure(&rows[0], "always_added_bytes") >= 32 * 412 * 4096, "{rows:?}");
    let daemon = RunningDaemon::start(&machine, "");
    assert!(daemon.status().get("forecast").is_none());
    let status = daemon.json("status --forecast");
    assert_eq!(status["forecast"]["cgroups"][0]["cgroup"], "/", "{status}");
    assert_eq!(status["forecast"]["enabled"], "madvise");
    assert!(status["managed"].is_u64());
    let text = machine.output("status --forecast").assert_success().out;
    assert!(text.contains("CGROUP") && text.contains("  the machine\n"), "{text}");
    daemon.end();
    let missing = machine.output("advise --cgroup /hawkeye-test-missing");
    missing.assert_refused(1, "there is no cgroup /hawkeye-test-missing");
    machine.output("advise").assert_refused(2, "required");
    machine.output("advise --all 1").assert_refused(2, "cannot be used with");
}
