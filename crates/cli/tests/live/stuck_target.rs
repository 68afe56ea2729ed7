//! A process that holds its `mmap_lock` forever: every other process is managed as before.

use crate::common::{
    DEADLINE, Spoken, StartedProcess, compile, figure, huge_bytes, machine_with_compiler, or_skip,
    signal, until, wait,
};
use crate::daemon::{NAME, RunningDaemon};
use hawkeye_live_test_support::settings;
use hawkeye_live_test_support::silent_files::SilentFiles;
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 512;

/// The program of `stuck.c`. It ends when the file system is unmounted, which releases it.
struct StuckProgram(Spoken);

impl StuckProgram {
    fn start(program: &Path, file: &Path) -> Self {
        let mut command = Command::new(program);
        let (stuck, said) = Spoken::start(command.arg(MIB.to_string()).arg(file));
        assert_eq!(said, "ready\n");
        Self(stuck)
    }

    fn pid(&self) -> u32 {
        self.0.child.id()
    }

    fn hold_lock(&mut self) {
        let asked = self.0.tell.write_all(b"now\n");
        asked.expect("the request can be written");
    }

    /// Whether its lock is held: a call that takes the lock does not return.
    fn is_stuck(&self) -> bool {
        let path = format!("/proc/{}/smaps_rollup", self.pid());
        let mut reader = StartedProcess::quietly(Command::new("cat").arg(path));
        wait(&mut reader, Duration::from_millis(500)).is_none()
    }
}

fn process(status: &Value, pid: u32) -> Option<&Value> {
    let processes = status["processes"].as_array()?;
    processes.iter().find(|p| p["pid"] == pid)
}

#[test]
fn a_process_that_never_releases_its_lock_delays_neither_other_processes_nor_the_end() {
    manage_beside_a_stuck_process(this_test!(), None);
}

/// Without BPF, the manager reads `/proc/PID/pagemap` before each promotion.
#[test]
fn without_bpf_such_a_process_delays_neither_other_processes_nor_the_end() {
    manage_beside_a_stuck_process(this_test!(), Some("population"));
}

/// `sampler`: the one that the daemon must use; `None`: the usual one.
fn manage_beside_a_stuck_process(test: TestName, sampler: Option<&str>) {
    let machine = or_skip!(machine_with_compiler(test));
    // The machine's setting before a manager has changed anything.
    let pages_to_scan = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan";
    let setting = || std::fs::read_to_string(pages_to_scan).expect("the file can be read");
    let before = setting();
    // Rules select a program by the name of its file.
    let source = include_str!("stuck_target/stuck.c");
    let program = compile(&machine, source, NAME, &["-pthread"]);
    let files = match SilentFiles::mount(&machine.state.join("silent")) {
        Ok(files) => files,
        Err(why) => return test.skip(&why),
    };
    let mut stuck = StuckProgram::start(&program, &files.file());
    // Slow enough that calls into it are running when it takes its lock.
    let slow = "[limits]\ncpu_percent = 100\npromotions_per_s = 100\n";
    let config = crate::daemon::CONFIG.replace("[limits]\ncpu_percent = 100\n", slow);
    let mut options = "policy = \"hawkeye-g\"\n".to_owned();
    // With such page sizes, the daemon also counts the pages of each process.
    if settings::sizes().iter().any(|name| !name.contains("2048kB")) {
        options += "small_pages = \"all\"\n";
    }
    let daemon = RunningDaemon::start_by_command(&machine, &(options + &config), |mut daemon| {
        daemon.envs(sampler.map(|name| ("HAWKEYE_SAMPLER", name)));
        daemon
    });
    let promoted = || huge_bytes(stuck.pid()) > 0;
    assert!(until(DEADLINE, promoted), "{}", daemon.status());
    stuck.hold_lock();
    assert!(until(DEADLINE, || stuck.is_stuck()));
    // Since 6.17 the kernel writes `maps` without that lock, so the process may be read.
    machine.output("advise --shared-memory --json").assert_success();

    // Without BPF, it may be a thread that waits for the process, which is not reported.
    if sampler.is_none() {
        daemon.wait_for_status(DEADLINE, |status| {
            figure(status, "not_answering") == 1
                && process(status, stuck.pid()).is_some_and(|p| p["not_answering_s"].is_f64())
        });
        let why = daemon.json(&format!("why {}", stuck.pid()));
        assert!(why.to_string().contains("does not answer"), "{why}");
    }

    // A process that starts later is managed as usual.
    let other = crate::daemon::DiscoveredProgram::start(&machine);
    daemon.wait_for_status(DEADLINE, |status| {
        process(status, other.pid()).is_some_and(|p| figure(p, "promoted") >= 20)
    });
    assert!(stuck.is_stuck(), "the lock was held all the time");

    // The daemon's end does not wait for it either.
    let daemon_pid = daemon.pid();
    daemon.end();
    assert!(stuck.is_stuck(), "the daemon ended while the lock was held");
    assert_eq!(setting(), before);
    assert!(!Path::new(&format!("/proc/{daemon_pid}")).exists());

    drop(files);
    assert!(until(DEADLINE, || !stuck.is_stuck()), "the lock is released");
    signal(stuck.pid(), libc::SIGKILL);
}
