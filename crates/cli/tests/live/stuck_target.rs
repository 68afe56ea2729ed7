//! A process that holds its `mmap_lock` for good: every other process is managed as before.

use crate::common::{DEADLINE, figure, huge_bytes, machine, signal, until, wait};
use crate::daemon::{Daemon, NAME};
use hawkeye_test_support::this_test;
use serde_json::Value;
use silent_files::SilentFiles;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

#[path = "stuck_target/silent_files.rs"]
mod silent_files;

/// Its memory, in MiB.
const MIB: u64 = 512;

/// The program of `stuck.c`. It ends with the file system, which lets go of it.
struct Stuck {
    child: Child,
    tell: ChildStdin,
}

impl Stuck {
    fn start(program: &Path, file: &Path) -> Self {
        let mut child = Command::new(program)
            .arg(MIB.to_string())
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let tell = child.stdin.take().expect("is piped");
        let mut said = String::new();
        let output = child.stdout.take().expect("is piped");
        BufReader::new(output).read_line(&mut said).expect("says");
        assert_eq!(said, "ready\n");
        Self { child, tell }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn hold_lock(&mut self) {
        self.tell.write_all(b"now\n").expect("is told");
    }

    /// Whether its lock is held: nothing that takes it comes back.
    fn is_stuck(&self) -> bool {
        let path = format!("/proc/{}/smaps_rollup", self.pid());
        let mut reader = Command::new("cat")
            .arg(path)
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        let stuck = wait(&mut reader, Duration::from_millis(500)).is_none();
        let _ = reader.kill();
        let _ = reader.wait();
        stuck
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn process(status: &Value, pid: u32) -> Option<&Value> {
    let processes = status["processes"].as_array()?;
    processes.iter().find(|p| p["pid"] == pid)
}

#[test]
fn one_that_holds_its_lock_for_good_stops_neither_the_others_nor_the_end() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    // What this machine shows before a manager has changed anything.
    let pages_to_scan = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan";
    let setting = || std::fs::read_to_string(pages_to_scan).expect("reads");
    let before = setting();
    // Rules go by the name of the file.
    let folder = machine.state.join("stuck");
    std::fs::create_dir(&folder).expect("a folder");
    let (program, source) = (folder.join(NAME), folder.join("stuck.c"));
    std::fs::write(&source, include_str!("stuck_target/stuck.c")).expect("writes");
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(compiled.expect("there is a compiler").success());
    let files = match SilentFiles::mount(&machine.state.join("silent")) {
        Ok(files) => files,
        Err(why) => return this_test!().skip(&why),
    };
    let mut stuck = Stuck::start(&program, &files.file());
    // Slow enough that calls into it are under way when it takes its lock.
    let slow = "[limits]\ncpu_percent = 100\npromotions_per_s = 100\n";
    let config = crate::daemon::CONFIG.replace("[limits]\ncpu_percent = 100\n", slow);
    let mut options = "policy = \"hawkeye-g\"\n".to_owned();
    // Where there are such pages, it also looks at who has them.
    if crate::settings::sizes()
        .iter()
        .any(|name| !name.contains("2048kB"))
    {
        options += "small_pages = \"all\"\n";
    }
    let daemon = Daemon::start_by(&machine, &(options + &config));
    let promoted = || huge_bytes(stuck.pid()) > 0;
    assert!(until(DEADLINE, promoted), "{}", daemon.status());
    stuck.hold_lock();
    assert!(until(DEADLINE, || stuck.is_stuck()));

    let reported = || {
        let status = daemon.status();
        figure(&status, "not_answering") == 1
            && process(&status, stuck.pid()).is_some_and(|p| p["not_answering_s"].is_f64())
    };
    assert!(until(DEADLINE, reported), "{}", daemon.status());
    let why = daemon.json(&format!("why {}", stuck.pid()));
    assert!(why.to_string().contains("does not answer"), "{why}");

    // One that comes later gets what it would get otherwise.
    let other = crate::daemon::Minded::start(&machine);
    let all_huge = || {
        let status = daemon.status();
        process(&status, other.pid()).is_some_and(|p| figure(p, "promoted") >= 20)
    };
    assert!(until(DEADLINE, all_huge), "{}", daemon.status());
    assert!(stuck.is_stuck(), "it has held its lock all the time");

    // The end waits for nothing either.
    let daemon_pid = daemon.pid();
    daemon.end();
    assert!(stuck.is_stuck(), "the end came first");
    assert_eq!(setting(), before);
    assert!(!Path::new(&format!("/proc/{daemon_pid}")).exists());

    drop(files);
    assert!(until(DEADLINE, || !stuck.is_stuck()), "it goes on");
    signal(stuck.pid(), libc::SIGKILL);
}
