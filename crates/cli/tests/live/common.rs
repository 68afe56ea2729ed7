//! The program under test, on a machine that tests use one at a time.

use hawkeye_bench::live::MemoryCgroup;
use hawkeye_linux::processes::process::pids_of_process_and_descendants;
use hawkeye_live_test_support::test_machine;
use hawkeye_test_support::test_skips::TestName;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub use hawkeye_live_test_support::manager_in_test::userfaultfd;
pub use hawkeye_live_test_support::or_skip;
pub use hawkeye_live_test_support::test_machine::{at_speed, remaps};
pub use hawkeye_live_test_support::time_limits::{
    DEADLINE, from_environment, is_emulated, time_limit_factor, until, wait,
};
pub use hawkeye_live_test_support::workloads::{
    assert_unharmed, huge_bytes, memory, started_by, without_huge_pages, workload,
    workload_without_thp,
};

pub const HAWKEYE: &str = env!("CARGO_BIN_EXE_hawkeye");

/// This test program under the name that it has as a workload (`main.rs`).
pub const WORKLOADS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/live/hawkeye-workload");

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

/// The machine for one test, on which it runs the program.
pub struct TestMachine(test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

pub fn machine(test: TestName) -> Option<TestMachine> {
    test_machine::machine(test).map(TestMachine)
}

pub fn machine_at_speed(test: TestName) -> Option<TestMachine> {
    test_machine::machine_at_speed(test).map(TestMachine)
}

pub fn machine_with_remap(test: TestName, why: &str) -> Option<TestMachine> {
    test_machine::machine_with_remap(test, why).map(TestMachine)
}

pub fn machine_with(test: TestName, capability: &str) -> Option<TestMachine> {
    test_machine::machine_with(test, capability).map(TestMachine)
}

/// Like `machine`, for tests that [`compile`] a program, where there is a compiler.
pub fn machine_with_compiler(test: TestName) -> Option<TestMachine> {
    if Command::new("cc").arg("--version").output().is_err() {
        test.skip("there is no C compiler to build what it attacks with");
        return None;
    }
    machine(test)
}

/// The explanation for a cgroup, which has no swap in these tests.
pub const NO_SWAP_IN_GROUP: &str =
    "this kernel gives memory back through swap, of which the cgroup has none";

/// Lengths of a recording, in seconds, for `TestMachine::record`.
///
/// A recording keeps to 1 % of a core, so windows are rarer where each costs more: with busy
/// neighbours there was one in 31 s. Then a longer recording is made.
pub fn recording_lengths() -> [u32; 2] {
    let short = 12 * time_limit_factor() * time_limit_factor();
    [short, 12 * short]
}

impl TestMachine {
    pub fn hawkeye(&self, words: &str) -> Command {
        let mut command = Command::new(HAWKEYE);
        command.args(words.split_whitespace());
        self.set_up(&mut command);
        command
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

    /// Starts `hawkeye run OPTIONS --json FILE -- PROGRAM`, waits until a process that it manages
    /// meets a condition, and ends the program by the end of its input. Returns its exit code and
    /// the summary.
    pub fn run_until(
        &self,
        options: &str,
        program: &[&str],
        mut enough: impl FnMut(u32) -> bool,
    ) -> (i32, Value) {
        let json = self.state.join("summary.json");
        let mut command = self.hawkeye(&format!("run {options} --json {} --", json.display()));
        command.args(program).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut manager = StartedProcess(command.spawn().expect("the program starts"));
        // Helpers of the manager hold huge pages, too, for its reserve.
        let executable = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let of_manager = executable(manager.id());
        let mut met = false;
        until(DEADLINE, || {
            met = pids_of_process_and_descendants(manager.id())
                .filter(|&pid| executable(pid) != of_manager)
                .any(&mut enough);
            met || manager.try_wait().is_ok_and(|ended| ended.is_some())
        });
        drop(manager.stdin.take());
        let code = wait(&mut manager, DEADLINE).expect("hawkeye exits with a code");
        let summary = read_json(&json).expect("a summary");
        assert!(met, "{summary}");
        (code, summary)
    }

    /// The same for a workload, which runs until the end of its input.
    pub fn run_workload_until(
        &self,
        options: &str,
        workload: &str,
        enough: impl FnMut(u32) -> bool,
    ) -> (i32, Value) {
        let program: Vec<&str> =
            [WORKLOADS, "workload"].into_iter().chain(workload.split_whitespace()).collect();
        self.run_until(options, &program, enough)
    }

    /// Runs `hawkeye record WORDS` and returns the recording's report. Where that is not enough, it
    /// makes a longer recording instead.
    pub fn record(&self, words: &str, file: &Path, is_enough: impl Fn(&Value) -> bool) -> Value {
        let [short, long] = recording_lengths();
        let record = |length: u32| {
            let words = format!("record {words} -o {} --length {length}", file.display());
            let said = self.output(&words).assert_success().err;
            assert!(said.contains(" samples in "), "{said}");
            self.report(file)
        };
        let report = record(short);
        if is_enough(&report) { report } else { record(long) }
    }

    /// The report of a recording.
    pub fn report(&self, file: &Path) -> Value {
        self.output(&format!("report --json {}", file.display())).assert_success().json()
    }

    pub fn attach(&self, options: &str, pid: u32) -> AttachedManager {
        self.attach_all(options, &[pid])
    }

    pub fn attach_all(&self, options: &str, pids: &[u32]) -> AttachedManager {
        let json = self.state.join("summary.json");
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let (file, pids) = (json.display(), pids.join(" "));
        let words = format!("attach {options} --json {file} {pids}");
        let child = StartedProcess::quietly(hangup_not_ignored(&mut self.hawkeye(&words)));
        AttachedManager { child, json }
    }
}

pub struct AttachedManager {
    pub child: StartedProcess,
    json: PathBuf,
}

impl AttachedManager {
    pub fn interrupt(self) -> Value {
        self.stop_by(libc::SIGINT)
    }

    pub fn stop_by(mut self, number: i32) -> Value {
        signal(self.child.id(), number);
        self.finish()
    }

    pub fn finish(&mut self) -> Value {
        let status = wait(&mut self.child, Duration::from_secs(30));
        assert_eq!(status, Some(0), "hawkeye attach exits with 0");
        read_json(&self.json).expect("a summary")
    }
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

/// A cgroup with a limit. Where none can be created, the test counts as skipped.
pub fn memory_cgroup(test: TestName, name: &str, bytes: u64) -> Option<MemoryCgroup> {
    let made = MemoryCgroup::new(name, bytes);
    if made.is_err() {
        test.skip("no cgroup can be made here");
    }
    made.ok()
}

/// Starts a program as a terminal does: `nohup` may have started the tests.
pub fn hangup_not_ignored(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Makes a program start with the ends of its children ignored, as its parent may have them.
pub fn child_ends_ignored(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        })
    }
}

/// Makes a program start with an interrupt that is blocked and pending.
pub fn interrupted_before_it_begins(command: &mut Command) {
    // SAFETY: between fork and exec only system calls are made, with a set that they fill in.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            // It stays pending until the manager asks for signals.
            libc::raise(libc::SIGINT);
            Ok(())
        });
    }
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

pub fn figure(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {of}"))
}

/// A JSON file, if it exists and is complete.
pub fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
