//! Attacks of an unprivileged user on the manager's files, and bad contents of files that the
//! manager reads back.

use crate::common::{
    CommandOutput, HAWKEYE, NOBODY, StartedProcess, TestMachine, machine, or_skip, signal,
    time_limit_factor, until, wait, workload,
};
use crate::daemon::{CONFIG, DiscoveredProgram};
use hawkeye_test_support::this_test;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A run without the measurement of page walks, which takes seconds.
const RUN: &str = "run --policy hawkeye-g -- true";
const MACHINE_LOCK: &str = "/run/hawkeye/manager.lock";

struct LockProcess(Child);

impl LockProcess {
    fn start(file: &Path, user: u32) -> Self {
        let mut command = Command::new("flock");
        command.arg(file).args(["sleep", "60"]).uid(user).gid(user);
        let child = command.stderr(Stdio::null()).process_group(0).spawn();
        Self(child.expect("flock starts"))
    }

    fn holds(&self) -> bool {
        let locks = fs::read_to_string("/proc/locks").expect("the file can be read");
        let pid = self.0.id().to_string();
        let of = |line: &str| line.split_whitespace().nth(4) == Some(&pid);
        locks.lines().any(of)
    }

    /// Waits until it holds the lock or was refused. Returns whether it holds it.
    fn wait_for_lock(&mut self) -> bool {
        let settled = until(Duration::from_secs(10), || {
            self.holds() || self.0.try_wait().is_ok_and(|ended| ended.is_some())
        });
        assert!(settled, "flock gets the lock or is refused");
        self.holds()
    }
}

impl Drop for LockProcess {
    fn drop(&mut self) {
        // SAFETY: a plain system call on a process group that only this test uses.
        unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

fn runs(machine: &TestMachine) -> String {
    let said = machine.output(RUN).assert_success().err;
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn mode(path: &Path) -> u32 {
    let found = fs::symlink_metadata(path).expect("the file exists");
    found.permissions().mode() & 0o7777
}

#[test]
fn other_users_cannot_take_the_lock_of_the_manager() {
    let machine = or_skip!(machine(this_test!()));
    let own = machine.state.join("manager.lock");
    runs(&machine);
    for file in [&own, Path::new(MACHINE_LOCK)] {
        let mut locker = LockProcess::start(file, NOBODY);
        assert!(!locker.wait_for_lock(), "{} can be locked", file.display());
        runs(&machine);
        assert_eq!(mode(file), 0o600);
    }
}

#[test]
fn a_lock_from_before_an_upgrade_is_replaced() {
    let machine = or_skip!(machine(this_test!()));
    let lock = machine.state.join("manager.lock");
    fs::write(&lock, "process 4194000 (daemon)\n").expect("the file can be written");
    fs::set_permissions(&lock, Permissions::from_mode(0o644)).expect("the mode can be changed");
    let mut locker = LockProcess::start(&lock, NOBODY);
    assert!(locker.wait_for_lock(), "another user could take the old lock");
    let said = runs(&machine);
    assert!(said.contains(&format!("user {NOBODY}")), "{said}");
    assert_eq!(mode(&lock), 0o600);
}

#[test]
fn an_error_names_the_root_process_that_holds_the_lock() {
    let machine = or_skip!(machine(this_test!()));
    runs(&machine);
    let mut locker = LockProcess::start(&machine.state.join("manager.lock"), 0);
    assert!(locker.wait_for_lock());
    let refused = machine.output(RUN);
    refused.assert_refused(1, "not a manager");
    let said = refused.err;
    let named = ["(flock,", "(sleep,"].iter().any(|it| said.contains(it));
    assert!(named, "{said}");
    assert!(!said.contains("already managed"), "{said}");
}

#[test]
fn one_manager_per_machine_whatever_its_state_folder() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload("burner --mib 4");
    let first = machine.attach("--policy hawkeye-g", pid);
    let saved = machine.state.join("settings.json");
    assert!(until(Duration::from_secs(20), || saved.exists()));
    let second = machine.state.join("second");
    let refused = |command: &mut Command| {
        let refused = CommandOutput::of(command.env("HAWKEYE_STATE_DIR", &second));
        refused.assert_refused(1, "already managed by process");
        refused.assert_refused(1, &first.child.id().to_string());
    };
    refused(Command::new(HAWKEYE).args(RUN.split_whitespace()));
    let unshared = Command::new("unshare").args(["-m", "true"]).status();
    if unshared.is_ok_and(|status| status.success()) {
        let script = format!("mount -t tmpfs none /run && exec {HAWKEYE} {RUN}");
        refused(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    } else {
        this_test!().skip("no mount namespace can be made here");
    }
    first.interrupt();
}

fn all_paths(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        for entry in fs::read_dir(path).expect("the folder can be read").flatten() {
            all.extend(all_paths(&entry.path()));
        }
    }
    all
}

/// Files and folders that other users can change, and files that they can read.
fn open_to_others(path: &Path) -> Vec<String> {
    let is_open = |path: &PathBuf| {
        let Ok(found) = fs::symlink_metadata(path) else {
            return false;
        };
        let mode = found.permissions().mode();
        let kind = found.file_type();
        if kind.is_socket() {
            // Every user may connect: the daemon checks the user of each connection.
            return path.file_name() != Some("hawkeye.sock".as_ref()) || mode & 0o111 != 0;
        }
        mode & if kind.is_dir() { 0o022 } else { 0o077 } != 0
    };
    let shown = |path: PathBuf| format!("{} {:o}", path.display(), mode(&path));
    let open = all_paths(path).into_iter().filter(is_open);
    open.map(shown).collect()
}

#[test]
fn files_are_accessible_to_root_alone_with_any_umask() {
    let machine = or_skip!(machine(this_test!()));
    for umask in [0o000, 0o022] {
        let all = machine.state.join(format!("umask-{umask:o}"));
        let state = all.join("state");
        let config = machine.state.join("hawkeye.toml");
        let places = format!(
            "\n[journal]\nfile = \"{0}/journal.jsonl\"\n[recording]\nfolder = \"{0}/recording\"\n",
            all.display()
        );
        let first = "policy = \"hawkeye-g\"\nlearn = \"on\"\n";
        fs::write(&config, format!("{first}{CONFIG}{places}")).expect("the file can be written");
        let mut command = Command::new(HAWKEYE);
        command.arg("daemon").arg("--config").arg(&config);
        command.env("HAWKEYE_STATE_DIR", &state);
        // SAFETY: one system call without pointers between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::umask(umask);
                Ok(())
            });
        }
        let mut daemon = StartedProcess::quietly(&mut command);
        let there = |name: &str| {
            let named = |path: &PathBuf| path.to_string_lossy().contains(name);
            let found = || all_paths(&all).iter().any(named);
            let in_time = until(Duration::from_secs(30), found);
            assert!(in_time, "no {name} in {:?}", all_paths(&all));
        };
        let all_closed = || {
            let open = open_to_others(&all);
            assert!(open.is_empty(), "umask {umask:o}: {open:?}");
        };
        for name in ["manager.lock", "settings.json", "hawkeye.sock"] {
            there(name);
        }
        let program = DiscoveredProgram::start(&machine);
        for name in ["journal.jsonl", ".parquet.tmp"] {
            there(name);
        }
        std::thread::sleep(Duration::from_secs(5) * time_limit_factor());
        all_closed();
        drop(program);
        there("learned/hawkeye-");
        signal(daemon.id(), libc::SIGTERM);
        assert_eq!(wait(&mut daemon, Duration::from_secs(30)), Some(0));
        there("0.parquet");
        all_closed();
    }
}

#[test]
fn a_damaged_settings_file_does_not_prevent_the_start() {
    let machine = or_skip!(machine(this_test!()));
    let file = machine.state.join("settings.json");
    let victim = machine.state.join("victim");
    fs::write(&victim, "untouched").expect("the file can be written");
    let hostile = format!("{{\"{}\": \"harmed\"}}", victim.display());
    let texts = ["", "{\"/sys/kernel/mm/tran", &hostile, "{\"version\": 99}"];
    let mut number = 0;
    let mut set_aside = |what: &str| {
        number += 1;
        let said = runs(&machine);
        let aside = format!("settings.json.damaged-{number}");
        let sentences = said.lines().filter(|line| line.contains(&aside));
        assert_eq!(sentences.count(), 1, "{what}: {said}");
        assert!(fs::symlink_metadata(machine.state.join(aside)).is_ok());
        assert!(fs::symlink_metadata(&file).is_err(), "{what}");
    };
    for text in texts {
        fs::write(&file, text).expect("the file can be written");
        set_aside(text);
    }
    // A terabyte of zeros that takes no space on disk.
    let huge = fs::File::create(&file).expect("the file can be created");
    huge.set_len(1 << 40).expect("the file can be extended");
    set_aside("a terabyte");
    fs::create_dir(&file).expect("the folder can be created");
    set_aside("a folder");
    std::os::unix::fs::symlink(&victim, &file).expect("the link can be created");
    set_aside("a link");
    fs::write(&file, &hostile).expect("the file can be written");
    std::os::unix::fs::chown(&file, Some(NOBODY), None).expect("root can change the owner");
    set_aside("another user's");
    assert_eq!(fs::read_to_string(&victim).expect("the file can be read"), "untouched");
}
