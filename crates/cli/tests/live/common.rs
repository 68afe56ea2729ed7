//! The machine, taken in turns, and the program under test.

use crate::settings::Settings;
use hawkeye_bench::workload::{Event, Workload};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The program.
pub const HAWKEYE: &str = env!("CARGO_BIN_EXE_hawkeye");

/// The machine for one test, with a state folder of its own and the kernel's settings as it started.
pub struct Machine {
    // Before the turn: the next test starts when they are put back.
    _settings: Settings,
    _turn: MutexGuard<'static, ()>,
    pub state: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// Takes the machine for the test of this name; `None`, and a line for the count of skipped tests,
/// where it can't be managed.
pub fn machine(test: &str) -> Option<Machine> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed leaves no harm to the next one.
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(why) = unmanageable() {
        skip(test, &why);
        return None;
    }
    let state = std::env::temp_dir().join(format!("hawkeye-live-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&state).expect("a temporary folder");
    std::fs::write(state.join("walk-costs.json"), walk_costs()).expect("is written");
    Some(Machine {
        _settings: Settings::as_started(),
        _turn: turn,
        state,
    })
}

/// The same for a test of which the outcome depends on how fast processors are, or on how many really run at once.
pub fn machine_at_speed(test: &str) -> Option<Machine> {
    at_speed(test).then(|| machine(test))?
}

/// Whether such a test can show anything; where it can't, a line for the count of skipped tests.
pub fn at_speed(test: &str) -> bool {
    let emulated = patience() > 1;
    if emulated {
        skip(
            test,
            "it depends on how fast the machine is, which is emulated",
        );
    }
    !emulated
}

/// The same for a test of what only kernels do that give zero pages back without swap; `why` the others don't.
pub fn machine_with_remap(test: &str, why: &str) -> Option<Machine> {
    let machine = machine(test)?;
    if !remaps() {
        skip(test, why);
        return None;
    }
    Some(machine)
}

/// The same for a test of what only some kernels have, by the doctor's name of it: `.ci/run` asks the doctor again whether what
/// was skipped `without` something could not be had.
pub fn machine_with(test: &str, capability: &str) -> Option<Machine> {
    let machine = machine(test)?;
    let capabilities = doctor()["capabilities"].as_array().expect("a list");
    let found = capabilities.iter().find(|c| c["name"] == capability);
    let found = found.expect("the doctor knows it");
    if found["available"] != true {
        let why = found["found"].as_str().unwrap_or_default();
        skip(test, &format!("without {capability}: {why}"));
        return None;
    }
    Some(machine)
}

/// Whether zero pages are given back without swap.
pub fn remaps() -> bool {
    doctor()["recovery"] == "split-remaps"
}

/// Why for a cgroup, which has no swap in these tests.
pub const NO_SWAP_IN_GROUP: &str =
    "this kernel gives memory back through swap, of which the cgroup has none";

/// How many times as long as elsewhere things may take: `HAWKEYE_TESTS_PATIENCE`, for emulated machines.
pub fn patience() -> u32 {
    let patience = std::env::var("HAWKEYE_TESTS_PATIENCE").ok();
    patience.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// What walks cost, measured once for all tests: it takes seconds. Where each test is a process of its own,
/// `HAWKEYE_TESTS_KEEP` names a folder to keep it in.
fn walk_costs() -> &'static str {
    static COSTS: OnceLock<String> = OnceLock::new();
    COSTS.get_or_init(|| {
        let costs = match std::env::var_os("HAWKEYE_TESTS_KEEP") {
            Some(folder) => hawkeye_linux::walk_costs::known_or_measured(Path::new(&folder)),
            None => hawkeye_linux::walk_costs::measure(),
        };
        serde_json::to_string(&costs.expect("is measured")).expect("is text")
    })
}

/// Notes that a test can't run here.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("HAWKEYE_SKIPPED_TESTS") {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("opens");
        writeln!(file, "{test}: {why}").expect("notes the skipped test");
    }
}

fn unmanageable() -> Option<String> {
    let found = doctor();
    match found["can_manage"].as_bool() {
        Some(true) => None,
        Some(false) => Some(found["verdict"].to_string()),
        None => Some(found.to_string()),
    }
}

/// What the doctor says, or the words it fails with.
fn doctor() -> &'static Value {
    static FOUND: OnceLock<Value> = OnceLock::new();
    FOUND.get_or_init(|| {
        let state = std::env::temp_dir().join(format!("hawkeye-live-{}", std::process::id()));
        let output = Command::new(HAWKEYE)
            .args(["doctor", "--json"])
            .env("HAWKEYE_STATE_DIR", &state)
            .output()
            .expect("the doctor starts");
        let _ = std::fs::remove_dir_all(state);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| String::from_utf8_lossy(&output.stderr).into())
    })
}

impl Machine {
    /// The program with these arguments.
    pub fn hawkeye(&self, words: &str) -> Command {
        let mut command = Command::new(HAWKEYE);
        command
            .args(words.split_whitespace())
            .env("HAWKEYE_STATE_DIR", &self.state);
        command
    }

    /// Runs it to its end.
    pub fn output(&self, words: &str) -> Output {
        self.hawkeye(words)
            .stdin(Stdio::null())
            .output()
            .expect("hawkeye starts")
    }

    /// Runs `hawkeye run OPTIONS --json FILE -- hawkeye workload WORKLOAD`; its exit code and summary.
    pub fn run_workload(&self, options: &str, workload: &str) -> (i32, Value) {
        let json = self.state.join("summary.json");
        let output = self.output(&format!(
            "run {options} --json {} -- {HAWKEYE} workload {workload}",
            json.display()
        ));
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().expect("hawkeye exits");
        let summary = read_json(&json).unwrap_or_else(|| panic!("no summary; it said: {said}"));
        assert!(!said.contains("panicked"), "{said}");
        (code, summary)
    }

    /// Starts `hawkeye attach OPTIONS --json FILE PID`.
    pub fn attach(&self, options: &str, pid: u32) -> Attached {
        let json = self.state.join("summary.json");
        let child = self
            .hawkeye(&format!("attach {options} --json {} {pid}", json.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("hawkeye starts");
        Attached { child, json }
    }
}

/// A manager at work; killed when dropped.
pub struct Attached {
    pub child: std::process::Child,
    json: PathBuf,
}

impl Attached {
    /// Interrupts it and reads its summary.
    pub fn interrupt(mut self) -> Value {
        signal(self.child.id(), libc::SIGINT);
        self.finish()
    }

    /// Waits for its end and reads its summary.
    pub fn finish(&mut self) -> Value {
        let status = wait(&mut self.child, Duration::from_secs(30));
        assert_eq!(status, Some(0), "hawkeye attach ends well");
        read_json(&self.json).expect("a summary")
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Waits for a child; its exit code, or none if it took longer or was killed.
pub fn wait(child: &mut std::process::Child, at_most: Duration) -> Option<i32> {
    let mut status = None;
    until(at_most, || {
        status = child.try_wait().expect("it is our child");
        status.is_some()
    });
    status?.code()
}

/// Waits until something is so; whether it was in time.
pub fn until(at_most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + at_most * patience();
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    is_so()
}

/// Starts a workload; it and its pid.
pub fn workload(words: &str) -> (Workload, u32) {
    let words = std::iter::once("workload").chain(words.split_whitespace());
    let mut workload = Workload::spawn(HAWKEYE, words).expect("the workload starts");
    let pid = workload.wait_ready().expect("the workload gets ready").pid;
    (workload, pid)
}

/// Starts a workload that was told PR_SET_THP_DISABLE; it and its pid.
pub fn workload_without_thp(words: &str) -> (Workload, u32) {
    let mut command = Command::new(HAWKEYE);
    command.arg("workload").args(words.split_whitespace());
    // SAFETY: between fork and exec there is one system call without pointers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut workload = Workload::spawn_command(command).expect("the workload starts");
    let pid = workload.wait_ready().expect("the workload gets ready").pid;
    (workload, pid)
}

/// Resident and huge memory, by the workload's own word.
pub fn memory(workload: &mut Workload) -> (u64, u64) {
    let request = hawkeye_bench::workload::Request::Rss;
    match workload.request(request, Duration::from_secs(30) * patience()) {
        Ok(Event::Rss {
            rss_bytes,
            huge_bytes,
        }) => (rss_bytes, huge_bytes),
        other => panic!("no figures but {other:?}"),
    }
}

/// Has the workload check every byte.
pub fn assert_unharmed(workload: &mut Workload) {
    let request = hawkeye_bench::workload::Request::Verify;
    match workload.request(request, Duration::from_secs(60) * patience()) {
        Ok(Event::Verified {
            bad_bytes: 0,
            checked_bytes,
            ..
        }) => assert!(checked_bytes > 0),
        other => panic!("contents changed: {other:?}"),
    }
}

/// A file of JSON, if it is there and whole.
pub fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
