//! The machine, taken in turns, and the program under test.

use crate::settings::Settings;
use hawkeye_linux::probe::{self, Extent};
use hawkeye_linux::sample::counters::CounterEvents;
use hawkeye_linux::{Means, test_costs};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_workload::{Event, Workload};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The program.
pub const HAWKEYE: &str = env!("CARGO_BIN_EXE_hawkeye");

/// This program by the name that it has as a workload (`main.rs`).
pub const WORKLOADS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/live/hawkeye-workload");

/// The machine for one test, with a state folder of its own and the kernel's settings as it started.
pub struct Machine {
    // Before the turn: the next test starts when they are put back.
    _settings: Settings,
    _turn: MutexGuard<'static, u32>,
    pub state: PathBuf,
    /// What policies decide from, for every manager that is started.
    costs: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
        let _ = std::fs::remove_file(&self.costs);
    }
}

/// Takes the machine for a test; `None` where it can't be managed, and the test counts as skipped.
pub fn machine(test: TestName) -> Option<Machine> {
    static TURN: Mutex<u32> = Mutex::new(0);
    // A test that failed leaves no harm to the next one.
    let mut turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(why) = unmanageable() {
        test.skip(&why);
        return None;
    }
    *turn += 1;
    // Short: the path of a socket in it is limited to 107 bytes.
    let name = format!("hawkeye-live-{}-{}", std::process::id(), *turn);
    let state = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&state).expect("a temporary folder");
    let machine = Machine {
        _settings: Settings::as_started(),
        _turn: turn,
        costs: state.with_extension("costs.json"),
        state,
    };
    machine.set_costs(&costs(promotion_us()));
    test_costs::give(&machine.costs).expect("the costs are read");
    Some(machine)
}

/// The same for a test of which the outcome depends on how many processors really run at once.
pub fn machine_at_speed(test: TestName) -> Option<Machine> {
    at_speed(test).then(|| machine(test))?
}

/// Whether such a test can show anything; where it can't, it counts as skipped.
pub fn at_speed(test: TestName) -> bool {
    let emulated = patience() > 1;
    if emulated {
        test.skip("it depends on how fast the machine is, which is emulated");
    }
    !emulated
}

/// The same for a test of what only kernels do that give zero pages back without swap; `why` the others don't.
pub fn machine_with_remap(test: TestName, why: &str) -> Option<Machine> {
    let machine = machine(test)?;
    if !remaps() {
        test.skip(why);
        return None;
    }
    Some(machine)
}

/// The same for a test of what only some kernels have, by the doctor's name of it: `.ci/run` asks the doctor again whether what
/// was skipped `without` something could not be had.
pub fn machine_with(test: TestName, capability: &str) -> Option<Machine> {
    let machine = machine(test)?;
    let capabilities = doctor()["capabilities"].as_array().expect("a list");
    let found = capabilities.iter().find(|c| c["name"] == capability);
    let found = found.expect("the doctor knows it");
    if found["available"] != true {
        let why = found["found"].as_str().unwrap_or_default();
        test.skip(&format!("without {capability}: {why}"));
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

/// What promotions cost in these tests unless a test says otherwise, in microseconds:
/// `HAWKEYE_TEST_PROMOTION_US` simulates a faster or slower machine.
fn promotion_us() -> u64 {
    const USUAL: u64 = 400;
    match std::env::var("HAWKEYE_TEST_PROMOTION_US") {
        Ok(text) => text.parse().expect("HAWKEYE_TEST_PROMOTION_US is a number"),
        Err(_) => USUAL,
    }
}

/// What policies decide from, alike on every host. Random readers lose a tenth of their time to
/// page walks and more, however slow they are; sequential readers less than what promotion is
/// worth.
fn costs(promotion_us: u64) -> Value {
    let at = |mib: u64, independent_ns: f64, dependent_ns: f64| {
        json!({
            "footprint_bytes": mib << 20,
            "streamed_ns": 0.5,
            "strided_ns": 0.5,
            "independent_ns": independent_ns,
            "dependent_ns": dependent_ns,
            "alone_ns": dependent_ns * 1.5,
        })
    };
    json!({
        "first_touch_ns": 50,
        "promotion_us": promotion_us,
        "walks": {
            "by_footprint": [at(64, 6.0, 60.0), at(4096, 24.0, 270.0)],
            "by_distance": [
                {"apart_ns": 20.0, "walk_ns": 24.0},
                {"apart_ns": 250.0, "walk_ns": 270.0},
            ],
            "streamed_apart_ns": 20.0,
            "data_independent_ns": 12.0,
            "data_dependent_ns": 160.0,
            "tlb_pages": 2048,
            "tlb_huge_pages": 2048,
        },
        "touches": {"fault_ns": 500.0, "zero_base_ns": 200.0, "touch_ns": 30.0},
    })
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
        command.args(words.split_whitespace());
        self.set_up(&mut command);
        command
    }

    /// Gives a command this machine's state folder and costs.
    pub fn set_up(&self, command: &mut Command) {
        command
            .env("HAWKEYE_STATE_DIR", &self.state)
            .env(test_costs::VARIABLE, &self.costs);
    }

    /// From now on promotions cost this much, and all else the usual.
    pub fn promotions_cost(&self, us: u64) {
        self.set_costs(&costs(us));
    }

    fn set_costs(&self, costs: &Value) {
        std::fs::write(&self.costs, costs.to_string()).expect("the costs are written");
    }

    /// Runs it to its end.
    pub fn output(&self, words: &str) -> Output {
        self.hawkeye(words)
            .stdin(Stdio::null())
            .output()
            .expect("hawkeye starts")
    }

    /// Runs `hawkeye run OPTIONS --json FILE -- PROGRAM workload WORKLOAD`; its exit code and summary.
    pub fn run_workload(&self, options: &str, workload: &str) -> (i32, Value) {
        let json = self.state.join("summary.json");
        let output = self.output(&format!(
            "run {options} --json {} -- {WORKLOADS} workload {workload}",
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
        self.attach_all(options, &[pid])
    }

    /// The same of several processes.
    pub fn attach_all(&self, options: &str, pids: &[u32]) -> Attached {
        let json = self.state.join("summary.json");
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let words = format!(
            "attach {options} --json {} {}",
            json.display(),
            pids.join(" ")
        );
        let child = self
            .hawkeye(&words)
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

/// What a manager within the test uses, with the tests' costs.
pub fn means() -> Means {
    let facts = probe::gather(Extent::ForManaging, None).expect("probes");
    let decision = probe::choose(&facts).expect("decides");
    let mut means = probe::means(&decision).expect("sets up");
    // The folder is not used: costs are given.
    means
        .prepare_overhead(Path::new("/nonexistent"), CounterEvents::default())
        .expect("costs are given");
    means
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
    let mut workload = Workload::spawn(WORKLOADS, words).expect("the workload starts");
    let pid = workload.wait_ready().expect("the workload gets ready").pid;
    (workload, pid)
}

/// Has the program that a command starts get no huge pages at all (PR_SET_THP_DISABLE).
pub fn without_huge_pages(command: &mut Command) {
    // SAFETY: between fork and exec there is one system call without pointers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Starts a workload that was told PR_SET_THP_DISABLE; it and its pid.
pub fn workload_without_thp(words: &str) -> (Workload, u32) {
    let mut command = Command::new(WORKLOADS);
    command.arg("workload").args(words.split_whitespace());
    without_huge_pages(&mut command);
    let mut workload = Workload::spawn_command(command).expect("the workload starts");
    let pid = workload.wait_ready().expect("the workload gets ready").pid;
    (workload, pid)
}

/// Resident and huge memory, by the workload's own word.
pub fn memory(workload: &mut Workload) -> (u64, u64) {
    let request = hawkeye_workload::Request::Rss;
    match workload.request(request, Duration::from_secs(30) * patience()) {
        Ok(Event::Rss {
            rss_bytes,
            huge_bytes,
        }) => (rss_bytes, huge_bytes),
        other => panic!("no figures but {other:?}"),
    }
}

/// Memory of a process under huge pages, by the kernel's word; 0 for one that has ended.
pub fn huge_bytes(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    let rollup = rollup.unwrap_or_default();
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.map_or(0, |kib| kib.parse::<u64>().expect("a number") << 10)
}

/// How long something may take at the most that has to happen. Far more than it takes anywhere.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A figure of a summary or status, which has to be there.
pub fn figure(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no figure {name} in {of}"))
}

/// Has the workload check every byte.
pub fn assert_unharmed(workload: &mut Workload) {
    let request = hawkeye_workload::Request::Verify;
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
