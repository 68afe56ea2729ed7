//! The machine, which tests use one at a time, and the program under test.

use crate::settings::Changed;
use hawkeye_bench::live::MemoryCgroup;
use hawkeye_linux::probe::userfaultfd_handle::UserfaultfdHandle;
use hawkeye_linux::probe::{self, ProbeExtent};
use hawkeye_linux::processes::mappings;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::sample::counters::EventCodeOverrides;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, ProcessBpfLinks, WalkDetail};
use hawkeye_linux::sample::walk_costs;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{ChosenKernelMethods, test_costs};
use hawkeye_linux::{LinuxMachine, ManagedTarget};
use hawkeye_manager::{Machine as _, Sampling as _};
use hawkeye_policy::{ProcessId, ProcessSample, RegionSample};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_workload::{WorkloadEvent, WorkloadProcess, WorkloadReady};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut, Range};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

pub const HAWKEYE: &str = env!("CARGO_BIN_EXE_hawkeye");

/// This test program under the name that it has as a workload (`main.rs`).
pub const WORKLOADS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/live/hawkeye-workload");

/// A value that not every machine has. Without it the test ends and counts as skipped.
macro_rules! or_skip {
    ($found:expr) => {
        match $found {
            Some(found) => found,
            None => return,
        }
    };
}
pub(crate) use or_skip;

pub const NOBODY: u32 = 65_534;

/// A process of the test; killed when dropped.
pub struct StartedProcess(pub Child);

/// A process that exchanges lines with the test.
pub struct Spoken {
    pub child: StartedProcess,
    pub tell: ChildStdin,
    /// Kept open, because it may print more.
    _out: BufReader<ChildStdout>,
}

impl Spoken {
    /// Starts a command. Returns its first line too.
    pub fn start(command: &mut Command) -> (Self, String) {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = StartedProcess(command.spawn().expect("the command starts"));
        let tell = child.stdin.take().expect("the stream is a pipe");
        let mut out = BufReader::new(child.stdout.take().expect("the stream is a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line of output");
        let it = Self { child, tell, _out: out };
        (it, line)
    }
}

impl StartedProcess {
    /// Starts a command without standard input and output.
    pub fn quietly(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().expect("the program starts"))
    }
}

impl Deref for StartedProcess {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for StartedProcess {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for StartedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// Runs a command without standard input to its end.
    pub fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub fn assert_success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts that it ended with this code, printed these words on standard error, and did not
    /// panic.
    pub fn assert_refused(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(words), "{words}: {self:?}");
        let panicked = self.err.contains("panicked") || self.err.contains("backtrace");
        assert!(!panicked, "{self:?}");
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// The machine for one test, with a state folder of its own and the kernel's default settings.
pub struct TestMachine {
    // Declared before the turn, so that the settings are restored before the next test starts.
    _settings: Changed,
    _turn: MutexGuard<'static, u32>,
    pub state: PathBuf,
    /// Costs of promotions and walks, for every manager that the test starts.
    costs: PathBuf,
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
        let _ = std::fs::remove_file(&self.costs);
    }
}

/// Takes the machine for a test. `None`, and the test counts as skipped, where it can't be managed.
pub fn machine(test: TestName) -> Option<TestMachine> {
    static TURN: Mutex<u32> = Mutex::new(0);
    // A failed test must not fail the next one.
    let mut turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(why) = why_unmanageable() {
        test.skip(&why);
        return None;
    }
    *turn += 1;
    // Short, because the path of a socket in it is limited to 107 bytes.
    let name = format!("hawkeye-live-{}-{}", std::process::id(), *turn);
    let state = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&state).expect("a temporary folder");
    let machine = TestMachine {
        _settings: Changed::to_defaults(),
        _turn: turn,
        costs: state.with_extension("costs.json"),
        state,
    };
    machine.set_costs(&costs(promotion_us()));
    test_costs::configure_test_costs_from_file(&machine.costs).expect("the costs can be read");
    Some(machine)
}

/// Like `machine`, for tests that depend on how many processors really run at the same time.
pub fn machine_at_speed(test: TestName) -> Option<TestMachine> {
    at_speed(test).then(|| machine(test))?
}

/// Whether such a test can show anything here; otherwise it counts as skipped.
pub fn at_speed(test: TestName) -> bool {
    let emulated = time_limit_factor() > 1;
    if emulated {
        test.skip("it depends on how fast the machine is, which is emulated");
    }
    !emulated
}

/// Like `machine`, for tests that need a kernel that gives zero pages back without swap. `why`
/// explains what other kernels do.
pub fn machine_with_remap(test: TestName, why: &str) -> Option<TestMachine> {
    let machine = machine(test)?;
    if !remaps() {
        test.skip(why);
        return None;
    }
    Some(machine)
}

/// Like `machine`, for tests that need a capability of some kernels, by the doctor's name for it.
/// For every test skipped `without` a capability, `.ci/run` checks with the doctor that it is
/// missing.
pub fn machine_with(test: TestName, capability: &str) -> Option<TestMachine> {
    let machine = machine(test)?;
    let capabilities = doctor()["capabilities"].as_array().expect("a list");
    let found = capabilities.iter().find(|c| c["name"] == capability);
    let found = found.expect("the doctor lists the capability");
    if found["available"] != true {
        let why = found["found"].as_str().unwrap_or_default();
        test.skip(&format!("without {capability}: {why}"));
        return None;
    }
    Some(machine)
}

pub fn remaps() -> bool {
    doctor()["recovery"] == "split-remaps"
}

/// The explanation for a cgroup, which has no swap in these tests.
pub const NO_SWAP_IN_GROUP: &str =
    "this kernel gives memory back through swap, of which the cgroup has none";

/// Factor on all time limits: `HAWKEYE_TESTS_PATIENCE`, for emulated machines.
pub fn time_limit_factor() -> u32 {
    from_environment("HAWKEYE_TESTS_PATIENCE", 1) as u32
}

pub fn from_environment(variable: &str, usual: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{variable}={text}"));
    std::env::var(variable).map_or(usual, number)
}

/// Cost of a promotion in these tests unless a test sets another, in microseconds.
/// `HAWKEYE_TEST_PROMOTION_US` simulates a faster or slower machine.
fn promotion_us() -> u64 {
    from_environment("HAWKEYE_TEST_PROMOTION_US", 400)
}

/// The costs that policies use, the same on every host. Random readers lose at least a tenth of
/// their time to page walks, however slow they are. Sequential readers lose too little for a
/// promotion to pay.
fn costs(promotion_us: u64) -> Value {
    let at = |mib: u64, independent_ns: f64, dependent_ns: f64| {
        json!({
            "footprint_bytes": mib << 20,
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
            "streamed": [{"apart_ns": 20.0, "walk_ns": 0.5}],
            "strided": [{"apart_ns": 20.0, "walk_ns": 0.5}],
            "scattered_error": 0.25,
            "data_independent_ns": 12.0,
            "data_dependent_ns": 160.0,
            "tlb_pages": 2048,
            "tlb_huge_pages": 2048,
        },
        "touches": {"fault_ns": 500.0, "zero_base_ns": 200.0, "touch_ns": 30.0},
    })
}

fn why_unmanageable() -> Option<String> {
    let found = doctor();
    match found["can_manage"].as_bool() {
        Some(true) => None,
        Some(false) => Some(found["verdict"].to_string()),
        None => Some(found.to_string()),
    }
}

fn doctor() -> &'static Value {
    static FOUND: OnceLock<Value> = OnceLock::new();
    FOUND.get_or_init(|| {
        let state = std::env::temp_dir().join(format!("hawkeye-live-{}", std::process::id()));
        let mut doctor = Command::new(HAWKEYE);
        let doctor = doctor.args(["doctor", "--json"]);
        let ended = CommandOutput::of(doctor.env("HAWKEYE_STATE_DIR", &state));
        let _ = std::fs::remove_dir_all(state);
        serde_json::from_str(&ended.out).unwrap_or_else(|_| ended.err.into())
    })
}

impl TestMachine {
    pub fn hawkeye(&self, words: &str) -> Command {
        let mut command = Command::new(HAWKEYE);
        command.args(words.split_whitespace());
        self.set_up(&mut command);
        command
    }

    /// Sets this machine's state folder and costs for a command.
    pub fn set_up(&self, command: &mut Command) {
        command.env("HAWKEYE_STATE_DIR", &self.state);
        command.env(test_costs::VARIABLE, &self.costs);
    }

    /// Changes the cost of a promotion from now on; all other costs are the usual ones.
    pub fn promotions_cost(&self, us: u64) {
        self.set_costs(&costs(us));
    }

    fn set_costs(&self, costs: &Value) {
        std::fs::write(&self.costs, costs.to_string()).expect("the costs can be written");
    }

    pub fn output(&self, words: &str) -> CommandOutput {
        CommandOutput::of(&mut self.hawkeye(words))
    }

    /// The same as another user, with a copy of the program that every user may execute.
    pub fn output_as(&self, user: u32, words: &str) -> CommandOutput {
        let copy = self.state.join("hawkeye");
        if !copy.exists() {
            std::fs::copy(HAWKEYE, &copy).expect("the file can be copied");
        }
        let mut command = Command::new(copy);
        let command = command.args(words.split_whitespace()).uid(user).gid(user);
        CommandOutput::of(command.env("HAWKEYE_STATE_DIR", &self.state))
    }

    /// Runs `hawkeye run OPTIONS --json FILE -- PROGRAM workload WORKLOAD`. Returns its exit code
    /// and summary.
    pub fn run_workload(&self, options: &str, workload: &str) -> (i32, Value) {
        let json = self.state.join("summary.json");
        let options = format!("{options} --json {}", json.display());
        let ended = self.output(&format!("run {options} -- {WORKLOADS} workload {workload}"));
        let summary = read_json(&json).unwrap_or_else(|| panic!("no summary: {ended:?}"));
        assert!(!ended.err.contains("panicked"), "{ended:?}");
        (ended.code.expect("hawkeye exits with a code"), summary)
    }

    pub fn attach(&self, options: &str, pid: u32) -> AttachedManager {
        self.attach_all(options, &[pid])
    }

    pub fn attach_all(&self, options: &str, pids: &[u32]) -> AttachedManager {
        let json = self.state.join("summary.json");
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let (file, pids) = (json.display(), pids.join(" "));
        let words = format!("attach {options} --json {file} {pids}");
        let child = StartedProcess::quietly(&mut self.hawkeye(&words));
        AttachedManager { child, json }
    }
}

pub struct AttachedManager {
    pub child: StartedProcess,
    json: PathBuf,
}

impl AttachedManager {
    pub fn interrupt(mut self) -> Value {
        signal(self.child.id(), libc::SIGINT);
        self.finish()
    }

    pub fn finish(&mut self) -> Value {
        let status = wait(&mut self.child, Duration::from_secs(30));
        assert_eq!(status, Some(0), "hawkeye attach exits with 0");
        read_json(&self.json).expect("a summary")
    }
}

/// What a manager inside the test process uses, with the tests' costs.
pub fn kernel_backend() -> ChosenKernelMethods {
    let facts = probe::gather_kernel_facts(ProbeExtent::ForManaging, None)
        .expect("the machine can be probed");
    let decision = probe::decide_kernel_methods(&facts).expect("the machine can be managed");
    let mut means =
        probe::set_up_chosen_methods(&decision).expect("the kernel interfaces can be set up");
    // The folder is not used, because the costs are given.
    let costs =
        walk_costs::load_or_measure_costs(Path::new("/nonexistent")).expect("costs are given");
    means.enable_overhead_estimate(costs.into(), EventCodeOverrides::default());
    means
}

/// The machine of a manager inside the test process, with one managed process.
pub fn machine_of(means: ChosenKernelMethods, pid: u32) -> (LinuxMachine, ProcessId) {
    let scope = ManagedTarget::Processes(vec![
        ProcessHandle::open(pid).expect("the process can be opened"),
    ]);
    let signals = StopSignals::take_over().expect("the signals can be blocked");
    let mut machine = LinuxMachine::new(means, scope, signals);
    let joined = machine.admit_and_list_processes(Duration::from_secs(3600)).into_done();
    let process = joined.expect("the process is managed")[0];
    (machine, process)
}

pub fn sampled(machine: &mut LinuxMachine, process: ProcessId) -> ProcessSample {
    let sampled = machine.sample(process, machine.now() + Duration::from_secs(60));
    let sampled = sampled.expect("the process can be sampled");
    sampled.into_done().expect("one call reads all of it")
}

/// Compiles a C program or library of the tests, which every user can read.
pub fn compile(machine: &TestMachine, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let folder = machine.state.join("compiled");
    std::fs::create_dir_all(&folder).expect("a folder");
    let c = folder.join(format!("{name}.c"));
    std::fs::write(&c, source).expect("the file can be written");
    let made = folder.join(name);
    let status =
        Command::new("cc").args(["-O1", "-Wall", "-o"]).arg(&made).args(options).arg(&c).status();
    assert!(status.expect("cc starts").success(), "{name} compiles");
    made
}

/// The ranges of a process that may have huge pages.
pub fn eligible(tables: &PageTableReader, target: &ProcessBpfLinks) -> Vec<Range<u64>> {
    let mappings = tables.list_mappings(target);
    mappings::collect_eligible_ranges(&mappings.expect("the mappings can be listed")).ranges
}

/// The same, and their regions, from its page tables.
pub fn read_regions(
    tables: &mut PageTableReader,
    pid: u32,
) -> (Vec<Range<u64>>, Vec<RegionSample>) {
    let target = tables.bind_to_process(pid).expect("the target can be bound");
    let ranges = eligible(tables, &target);
    let mut found = Vec::new();
    let walked = tables.walk_ranges(&target, &ranges, WalkDetail::Regions, &mut found, |_| {});
    walked.expect("the page tables can be walked");
    (ranges, found)
}

/// A cgroup with a limit. Where none can be created, the test counts as skipped.
pub fn memory_cgroup(test: TestName, name: &str, bytes: u64) -> Option<MemoryCgroup> {
    let made = MemoryCgroup::new(name, bytes);
    if made.is_err() {
        test.skip("no cgroup can be made here");
    }
    made.ok()
}

/// A monitor of page faults. Where it can't protect pages, the test counts as skipped.
pub fn userfaultfd(test: TestName, user_only: bool) -> Option<UserfaultfdHandle> {
    let opened = UserfaultfdHandle::open(user_only);
    if opened.is_err() {
        test.skip("this kernel's userfaultfd can't protect pages");
    }
    opened.ok()
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Waits for a child. Returns its exit code; `None` if it took too long or was killed.
pub fn wait(child: &mut Child, at_most: Duration) -> Option<i32> {
    let mut status = None;
    until(at_most, || {
        status = child.try_wait().expect("the child can be waited for");
        status.is_some()
    });
    status?.code()
}

pub fn until(at_most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + at_most * time_limit_factor();
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    is_so()
}

pub fn workload(words: &str) -> (WorkloadProcess, u32) {
    let (workload, ready) = started(words);
    (workload, ready.pid)
}

pub fn started(words: &str) -> (WorkloadProcess, WorkloadReady) {
    started_by(workload_command(words))
}

fn workload_command(words: &str) -> Command {
    let mut command = Command::new(WORKLOADS);
    command.arg("workload").args(words.split_whitespace());
    command
}

pub fn started_by(command: Command) -> (WorkloadProcess, WorkloadReady) {
    let mut workload = WorkloadProcess::spawn_command(command).expect("the workload starts");
    let ready = workload.wait_ready().expect("the workload gets ready");
    (workload, ready)
}

/// Disables huge pages for the program that a command starts (PR_SET_THP_DISABLE).
pub fn without_huge_pages(command: &mut Command) {
    // SAFETY: one system call without pointers between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

pub fn workload_without_thp(words: &str) -> (WorkloadProcess, u32) {
    let mut command = workload_command(words);
    without_huge_pages(&mut command);
    let (workload, ready) = started_by(command);
    (workload, ready.pid)
}

/// Resident and huge memory, as the workload reports them.
pub fn memory(workload: &mut WorkloadProcess) -> (u64, u64) {
    let request = hawkeye_workload::WorkloadRequest::Rss;
    match workload.request_and_wait(request, Duration::from_secs(30) * time_limit_factor()) {
        Ok(WorkloadEvent::Rss { rss_bytes, huge_bytes }) => (rss_bytes, huge_bytes),
        other => panic!("expected memory figures, not {other:?}"),
    }
}

/// A line of `smaps_rollup`, in KiB; 0 for a process that has ended.
pub fn rollup_kib(pid: u32, line: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let rest = rollup.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = rest.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.map_or(0, |kib| kib.parse().expect("a number"))
}

/// Memory of a process under huge pages, as the kernel reports it; 0 for one that has ended.
pub fn huge_bytes(pid: u32) -> u64 {
    rollup_kib(pid, "AnonHugePages") << 10
}

/// Deadline for what must happen: far longer than it takes on any machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub fn figure(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {of}"))
}

pub fn assert_unharmed(workload: &mut WorkloadProcess) {
    let request = hawkeye_workload::WorkloadRequest::Verify;
    match workload.request_and_wait(request, Duration::from_secs(60) * time_limit_factor()) {
        Ok(WorkloadEvent::Verified { bad_bytes: 0, checked_bytes, .. }) => {
            assert!(checked_bytes > 0)
        }
        other => panic!("contents changed: {other:?}"),
    }
}

/// A JSON file, if it exists and is complete.
pub fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
