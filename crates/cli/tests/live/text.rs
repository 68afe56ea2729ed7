//! `hawkeye text`: program text that a trial keeps or puts back, and text that has no trial.

use crate::common::{
    CommandOutput, DEADLINE, StartedProcess, TestMachine, assert_unharmed, hangup_not_ignored,
    machine, machine_at_speed, or_skip, signal, until, wait, workload, workload_without_thp,
};
use hawkeye_linux::processes::huge_page_context::ThpSettings;
use hawkeye_linux::processes::program_text::{KernelTextRule, TextSupport};
use hawkeye_live_test_support::workloads::{children, rollup_kib};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadProcess;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const MIB: u64 = 8;
const REGIONS: u64 = MIB / 2;
/// The count of a huge window, a hundred times that of others: the time of a command differs by
/// less.
const GAINS: u64 = 100_000;

fn huge_kib(pid: u32) -> u64 {
    rollup_kib(pid, "ShmemPmdMapped") + rollup_kib(pid, "FilePmdMapped")
}

/// The type and the options of the file system with a folder, by the longest mount point.
fn mount_of(folder: &Path) -> Option<(String, String)> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let around = fields.filter(|f| f.len() > 3 && folder.starts_with(f[1]));
    // Of two at one place, the later one is seen.
    let found = around.max_by_key(|f| f[1].len())?;
    Some((found[2].to_owned(), found[3].to_owned()))
}

/// A folder on a tmpfs that allows programs, in base pages. Without one the test counts as skipped.
fn tmpfs(test: TestName) -> Option<TempDir> {
    let mount = mount_of(Path::new("/dev/shm"));
    let is_usable = mount.is_some_and(|(kind, options)| {
        let mut options = options.split(',');
        kind == "tmpfs" && !options.any(|it| it == "noexec" || it.starts_with("huge="))
    });
    let setting = ThpSettings::read().shmem_enabled;
    if !is_usable || setting.is_some_and(|it| it == "deny" || it == "force") {
        test.skip("/dev/shm is no tmpfs that allows programs and gives them base pages");
        return None;
    }
    Some(tempfile::tempdir_in("/dev/shm").expect("a folder"))
}

fn program(folder: &TempDir, options: &str) -> (WorkloadProcess, u32) {
    let file = folder.path().join("text");
    workload(&format!("text --quiet --mib {MIB} --path {} {options}", file.display()))
}

/// A command that prints a growing number. Each call adds 1000 under base pages, and `if_huge`
/// under huge pages.
fn rate_command(folder: &TempDir, pid: u32, if_huge: u64) -> String {
    let (script, count) = (folder.path().join("rate.sh"), folder.path().join("count"));
    fs::write(&count, "0").expect("the file can be written");
    let count = count.display();
    let text = format!(
        "n=$(cat {count})\n\
         huge=$(awk '/^(Shmem|File)PmdMapped/ {{kib += $2}} END {{print kib + 0}}' /proc/{pid}/smaps)\n\
         if [ \"$huge\" -gt 0 ]; then n=$((n + {if_huge})); else n=$((n + 1000)); fi\n\
         echo $n > {count}\n\
         echo $n\n"
    );
    fs::write(&script, text).expect("the file can be written");
    format!("sh {}", script.display())
}

fn text(machine: &TestMachine, words: &str, rate: Option<&str>, pid: u32) -> Command {
    let mut command = machine.hawkeye(&format!("text {words} {pid}"));
    if let Some(rate) = rate {
        command.args(["--rate-command", rate]);
    }
    command
}

fn left_alone(report: &Value) -> Vec<&str> {
    let left = report["left_alone"].as_array().expect("a list").iter();
    left.filter_map(|left| left["why"].as_str()).collect()
}

#[test]
fn a_trial_keeps_huge_text_that_gains_and_puts_back_text_that_does_not() {
    // Pauses between calls double where each takes long.
    let machine = or_skip!(machine_at_speed(this_test!()));
    let folder = or_skip!(tmpfs(this_test!()));
    let (mut running, pid) = program(&folder, "");
    for (if_huge, outcome, kib) in [(10, "reverted", 0), (GAINS, "kept", MIB << 10)] {
        let rate = rate_command(&folder, pid, if_huge);
        let mut command = text(&machine, "--seconds 3 --json", Some(&rate), pid);
        let report = CommandOutput::of(&mut command).assert_success().json();
        assert_eq!(report["outcome"], outcome, "{report:#}");
        assert_eq!(report["promoted"].as_u64(), Some(kib >> 11), "{report:#}");
        assert_eq!(huge_kib(pid), kib, "{report:#}");
        assert_eq!(report["regions"].as_u64(), Some(REGIONS), "{report:#}");
        let trial = &report["trial"];
        assert_eq!(trial["rates"].as_array().map(Vec::len), Some(19), "{report:#}");
        assert_eq!(trial["pairs"].as_u64(), Some(9), "{report:#}");
        let gains = trial["median_percent"].as_f64() > Some(0.0);
        assert_eq!(gains, outcome == "kept", "{report:#}");
        assert_unharmed(&mut running);
    }
    let rate = rate_command(&folder, pid, GAINS);
    let again = CommandOutput::of(&mut text(&machine, "", Some(&rate), pid)).assert_success();
    assert!(again.out.contains("is huge already"), "{again:?}");
}

#[test]
fn text_of_several_processes_is_promoted_only_for_good() {
    let machine = or_skip!(machine(this_test!()));
    let folder = or_skip!(tmpfs(this_test!()));
    let (mut running, pid) = program(&folder, "--workers 1");
    let worker = children(pid)[0];
    assert!(until(DEADLINE, || rollup_kib(worker, "Rss") >= MIB << 10));
    let rate = rate_command(&folder, pid, GAINS);
    let refused = CommandOutput::of(&mut text(&machine, "--seconds 3 --json", Some(&rate), pid));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let report = refused.json();
    assert_eq!(report["outcome"], "nothing-to-promote", "{report:#}");
    assert!(left_alone(&report).contains(&"several-mappers"), "{report:#}");
    assert_eq!(huge_kib(pid), 0);
    let said = CommandOutput::of(&mut text(&machine, "--seconds 3", Some(&rate), pid));
    let said = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("2 processes map the file") && said.contains("--keep"), "{said}");
    let kept = CommandOutput::of(&mut text(&machine, "--keep --json", None, pid));
    let report = kept.assert_success().json();
    assert_eq!(report["outcome"], "kept", "{report:#}");
    assert_eq!(huge_kib(pid), MIB << 10, "{report:#}");
    assert_unharmed(&mut running);
}

#[test]
fn a_signal_puts_the_text_back() {
    let machine = or_skip!(machine(this_test!()));
    let folder = or_skip!(tmpfs(this_test!()));
    let (mut running, pid) = program(&folder, "");
    let rate = rate_command(&folder, pid, GAINS);
    for number in [libc::SIGINT, libc::SIGTERM] {
        let mut command = text(&machine, "--seconds 30", Some(&rate), pid);
        let mut trial = StartedProcess::quietly(hangup_not_ignored(&mut command));
        let was_huge = until(DEADLINE, || huge_kib(pid) == MIB << 10);
        signal(trial.id(), number);
        let code = wait(&mut trial, DEADLINE);
        assert!(was_huge);
        assert_eq!(code, Some(128 + number));
        assert_eq!(huge_kib(pid), 0);
        assert_unharmed(&mut running);
    }
}

#[test]
fn a_process_that_ends_ends_the_trial() {
    let machine = or_skip!(machine(this_test!()));
    let folder = or_skip!(tmpfs(this_test!()));
    let (running, pid) = program(&folder, "");
    let mut command = text(&machine, "--seconds 600", Some("echo 1"), pid);
    let trial = std::thread::spawn(move || CommandOutput::of(&mut command));
    assert!(until(DEADLINE, || huge_kib(pid) > 0));
    drop(running);
    let ended = trial.join().expect("the trial ends");
    ended.assert_refused(1, &format!("process {pid} ended during the trial"));
}

#[test]
fn without_a_rate_or_with_huge_pages_disabled_nothing_is_changed() {
    let machine = or_skip!(machine(this_test!()));
    let folder = or_skip!(tmpfs(this_test!()));
    let (_running, pid) = program(&folder, "");
    // The costs of the tests replace hardware counters.
    let no_rate = machine.output(&format!("text {pid}"));
    no_rate.assert_refused(1, "--rate-command CMD");
    no_rate.assert_refused(1, "--keep promotes without a trial");
    let bad_rate = CommandOutput::of(&mut text(&machine, "--seconds 3", Some("echo many"), pid));
    bad_rate.assert_refused(1, "printed \"many\"");
    machine.output(&format!("text --keep --seconds 9 {pid}")).assert_refused(2, "cannot be used");
    assert_eq!(huge_kib(pid), 0);
    let file = folder.path().join("other");
    let options = format!("text --quiet --mib {MIB} --path {}", file.display());
    let (_disabled, disabled_pid) = workload_without_thp(&options);
    let refused = machine.output(&format!("text --keep {disabled_pid}"));
    refused.assert_refused(1, "PR_SET_THP_DISABLE");
    assert_eq!(huge_kib(disabled_pid), 0);
}

#[test]
fn text_is_left_alone_while_a_manager_runs() {
    let machine = or_skip!(machine(this_test!()));
    let folder = or_skip!(tmpfs(this_test!()));
    let (_running, pid) = program(&folder, "");
    let manager = machine.attach("", pid);
    let claimed = machine.state.join("manager.lock");
    assert!(until(DEADLINE, || fs::read_to_string(&claimed).is_ok_and(|it| it.contains("attach"))));
    let refused = machine.output(&format!("text --keep {pid}"));
    manager.interrupt();
    refused.assert_refused(1, "already managed");
    assert_eq!(huge_kib(pid), 0);
}

/// A folder on a file system of which this kernel makes no text huge, as far as is known.
fn folder_without_huge_text() -> Option<TempDir> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (kind, _) = mount_of(&folder)?;
    let support = TextSupport::of_file_system(Some(&kind), KernelTextRule::of_running_kernel());
    let is_without = kind == "ext4" && support == TextSupport::NoOption;
    is_without.then(|| tempfile::tempdir_in(&folder).ok())?
}

#[test]
fn a_refusal_of_the_file_system_is_explained() {
    let machine = or_skip!(machine(this_test!()));
    let Some(folder) = folder_without_huge_text() else {
        return this_test!().skip("this kernel makes text on ext4 huge, or there is no ext4");
    };
    let (mut running, pid) = program(&folder, "");
    let refused = machine.output(&format!("text --keep {pid}"));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let said = refused.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let counted = format!("Refused: {REGIONS} regions of");
    assert!(said.contains("text can't be huge here") && said.contains(&counted), "{said}");
    assert!(said.contains("file system ext4; EINVAL"), "{said}");
    assert!(said.contains("CONFIG_READ_ONLY_THP_FOR_FS"), "{said}");
    assert_eq!(huge_kib(pid), 0);
    assert_unharmed(&mut running);
}
