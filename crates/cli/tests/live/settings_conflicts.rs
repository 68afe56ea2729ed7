//! Settings that a manager and another program change at the same time, and the kernel's rules for
//! excluded programs.

use crate::common::{
    TestMachine, WORKLOADS, machine, memory, memory_cgroup, or_skip, signal, started_by, until,
    wait, workload,
};
use crate::daemon::{CONFIG, RunningDaemon};
use hawkeye_linux::machine_lease::thp_settings::{THP_DIR, enabled_file};
use hawkeye_live_test_support::settings::{chosen, file, read};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const OPTIONS: &str = "--policy hawkeye-g --kernel-split --huge-faults";

fn enabled() -> String {
    let path = enabled_file();
    let name = path.strip_prefix(THP_DIR).expect("the setting is in the folder");
    name.to_str().expect("the name is UTF-8").to_owned()
}

/// Every setting that a manager with these options changes permanently. Each has a value that
/// neither the manager nor the kernel chooses.
fn unusual_settings() -> Vec<(String, &'static str)> {
    [
        ("khugepaged/alloc_sleep_millisecs", "12345"),
        ("khugepaged/max_ptes_none", "200"),
        ("khugepaged/pages_to_scan", "123"),
        ("khugepaged/scan_sleep_millisecs", "23456"),
        ("defrag", "never"),
        (enabled().as_str(), "never"),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn set(name: &str, value: &str) {
    fs::write(file(name), value).expect("root can write the setting");
}

fn all_settings() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(THP_DIR)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            let counts = ["stats", "full_scans", "pages_collapsed"];
            if counts.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.clone(), fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}

/// Starts a manager, runs a function, and ends the manager. Returns its messages at the end.
type ManageAndEnd = fn(&TestMachine, &mut dyn FnMut()) -> String;

const ENDS: [(&str, ManageAndEnd); 4] = [
    ("interrupt", |machine, meanwhile| {
        let (_program, pid) = workload("burner --mib 4");
        let attached = machine.attach(OPTIONS, pid);
        wait_for_change(machine);
        meanwhile();
        attached.interrupt();
        String::new()
    }),
    ("daemon", |machine, meanwhile| {
        let first = "policy = \"hawkeye-g\"\nkernel_split = \"on\"\n";
        let last = "[fault_ahead]\nhuge_faults = \"on\"\n";
        let daemon = RunningDaemon::start_by(machine, &format!("{first}{CONFIG}{last}"));
        wait_for_change(machine);
        meanwhile();
        daemon.end();
        String::new()
    }),
    ("kill, restore", |machine, meanwhile| {
        kill(machine, meanwhile);
        let said = machine.output("restore").assert_success().out;
        let again = machine.output("restore").out;
        assert!(again.contains("Nothing to restore"), "{again}");
        said
    }),
    ("kill, next start", |machine, meanwhile| {
        kill(machine, meanwhile);
        machine.output("run --policy hawkeye-g -- true").assert_success().err
    }),
];

fn kill(machine: &TestMachine, meanwhile: &mut dyn FnMut()) {
    let (_program, pid) = workload("burner --mib 4");
    let mut attached = machine.attach(OPTIONS, pid);
    wait_for_change(machine);
    signal(attached.child.id(), libc::SIGKILL);
    let _ = wait(&mut attached.child, Duration::from_secs(10));
    meanwhile();
}

/// Waits until khugepaged is slowed down and page faults bring huge pages: the first and the last
/// change.
fn wait_for_change(machine: &TestMachine) {
    let saved = machine.state.join("settings.json");
    let changed = until(Duration::from_secs(30), || {
        saved.exists() && read("khugepaged/pages_to_scan") == "1" && read(&enabled()) == "always"
    });
    assert!(changed, "the manager changes settings");
}

#[test]
fn settings_changed_by_another_program_are_kept_and_all_others_restored() {
    let machine = or_skip!(machine(this_test!()));
    set(&enabled(), "madvise");
    set("defrag", "madvise");
    let before = all_settings();
    for (end, manage) in ENDS {
        for parity in [0, 1] {
            let theirs: Vec<_> = unusual_settings().into_iter().skip(parity).step_by(2).collect();
            let said = manage(&machine, &mut || {
                for (name, value) in &theirs {
                    set(name, value);
                }
            });
            for (name, value) in &theirs {
                assert_eq!(read(name), *value, "{end}: {name}");
                let told = said.is_empty() || said.contains(&format!("{name} stays {value}"));
                assert!(told, "{end}: {said}");
            }
            for (name, _) in &theirs {
                let path = file(name);
                let found = before.iter().find(|(before, _)| *before == path);
                let (_, text) = found.expect("the setting existed before");
                set(name, &chosen(text));
            }
            assert_eq!(all_settings(), before, "{end}");
        }
    }
}

/// Of the two files one decides about page faults: the one for huge pages, unless it says
/// `inherit`.
#[test]
fn a_setting_changed_by_another_program_is_not_changed_again() {
    let machine = or_skip!(machine(this_test!()));
    let deciding = enabled();
    set(&deciding, "madvise");
    let first = "policy = \"hawkeye-g\"\n";
    let last = "[fault_ahead]\nhuge_faults = \"on\"\n";
    let files = ["enabled", "hugepages-2048kB/enabled"];
    for theirs in files.into_iter().filter(|name| file(name).exists()) {
        let before = read(theirs);
        let daemon = RunningDaemon::start_by(&machine, &format!("{first}{CONFIG}{last}"));
        wait_for_change(&machine);
        // Restored while paused, and then changed by another program.
        machine.output("pause").assert_success();
        assert!(until(Duration::from_secs(10), || read(&deciding) == "madvise"));
        set(theirs, "never");
        let now = || files.map(|name| file(name).exists().then(|| read(name)));
        let left = now();
        machine.output("resume").assert_success();
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(now(), left, "{theirs}");
        daemon.end();
        assert_eq!(now(), left, "{theirs}");
        set(theirs, &before);
    }
}

#[test]
fn a_restore_without_a_usable_record_fails() {
    let machine = or_skip!(machine(this_test!()));
    let saved = machine.state.join("settings.json");
    fs::write(&saved, r#"{"version":3}"#).expect("the file can be written");
    for _ in 0..2 {
        let said = machine.output("restore");
        said.assert_refused(1, "then remove that file");
        assert_eq!(said.out, "");
        // It reports all the same, and leaves the record.
        machine.output("doctor").assert_success();
    }
    fs::remove_file(&saved).expect("the file is still there");
    assert!(machine.output("restore").assert_success().out.contains("Nothing to restore"));
}

/// Makes the kernel reclaim all that it can from the cgroup of a process.
fn reclaim(pid: u32) {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the file can be read");
    let group = |of: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.strip_prefix(of)?.strip_prefix(":/").map(str::to_owned)
        })
    };
    let version_1 = Path::new("/sys/fs/cgroup/memory");
    // More was requested than there is.
    if let (Some(name), true) = (group("memory"), version_1.exists()) {
        let _ = fs::write(version_1.join(name).join("memory.force_empty"), "1");
    } else if let Some(name) = group("") {
        let group = Path::new("/sys/fs/cgroup").join(name);
        let _ = fs::write(group.join("memory.reclaim"), "256M");
    }
}

/// How much of an excluded program's 128 MiB of huge pages remains after its cgroup reclaims.
/// Meanwhile another program is managed with these options.
fn excluded_huge_bytes(test: TestName, machine: &TestMachine, options: &str) -> Option<u64> {
    let group = memory_cgroup(test, "hawkeye-excluded", 512 << 20)?;
    let words = "workload bloat --mib 128 --used 16 --pages huge";
    let (mut excluded, ready) =
        started_by(group.program_command_in_cgroup(Path::new(WORKLOADS), words));
    assert_eq!(memory(&mut excluded).1, 128 << 20);
    let (_managed, other) = workload("burner --mib 4");
    let attached = machine.attach(&format!("--policy hawkeye-g {options}"), other);
    let saved = machine.state.join("settings.json");
    assert!(until(Duration::from_secs(30), || {
        saved.exists() && read("khugepaged/pages_to_scan") == "1"
    }));
    reclaim(ready.pid);
    let left = memory(&mut excluded).1;
    attached.interrupt();
    Some(left)
}

#[test]
fn an_excluded_program_keeps_its_huge_pages_under_reclaim() {
    let machine = or_skip!(machine(this_test!()));
    let left = or_skip!(excluded_huge_bytes(this_test!(), &machine, ""));
    // Without consent the kernel splits nothing.
    assert_eq!(left, 128 << 20);
    if !file("shrink_underused").exists() {
        return;
    }
    // With consent it does, which shows that the test can fail.
    let left = excluded_huge_bytes(this_test!(), &machine, "--kernel-split")
        .expect("the cgroup can be created again");
    assert!(left < 64 << 20, "{left} of 128 MiB are left");
}
