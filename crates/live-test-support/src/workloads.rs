//! Workloads of `lab/workload`, and their memory.

use crate::time_limits::time_limit_factor;
use hawkeye_workload::{
    WorkloadEvent, WorkloadProcess, WorkloadReady, WorkloadRequest, test_program,
};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Must be called before `main`. Runs this test program as a workload if it is started as one.
/// Otherwise gives it a second name, `link`, by which the functions here start it.
///
/// # Panics
/// The link can't be created.
pub fn run_as_workload_or_link(link: &'static str) {
    test_program::run_as_workload_or_link(link);
    PROGRAM.get_or_init(|| link);
}

/// The command of a workload.
///
/// # Panics
/// The test program has not called [`run_as_workload_or_link`].
pub fn workload_command(words: &str) -> Command {
    let mut command = Command::new(PROGRAM.get().expect("the test program is a workload too"));
    command.arg("workload").args(words.split_whitespace());
    command
}

/// Starts a workload, and waits until it is ready.
///
/// # Panics
/// It does not get ready.
pub fn started(words: &str) -> (WorkloadProcess, WorkloadReady) {
    started_by(workload_command(words))
}

/// The same by a command.
///
/// # Panics
/// It does not get ready.
pub fn started_by(command: Command) -> (WorkloadProcess, WorkloadReady) {
    let mut workload = WorkloadProcess::spawn_command(command).expect("the workload starts");
    let ready = workload.wait_ready().expect("the workload gets ready");
    (workload, ready)
}

/// A workload that is ready, and its pid.
///
/// # Panics
/// It does not get ready.
pub fn workload(words: &str) -> (WorkloadProcess, u32) {
    let (workload, ready) = started(words);
    (workload, ready.pid)
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

/// A workload for which huge pages are disabled, and its pid.
///
/// # Panics
/// It does not get ready.
pub fn workload_without_thp(words: &str) -> (WorkloadProcess, u32) {
    let mut command = workload_command(words);
    without_huge_pages(&mut command);
    let (workload, ready) = started_by(command);
    (workload, ready.pid)
}

/// Resident and huge memory in bytes, as the workload reports them.
///
/// # Panics
/// It does not answer.
pub fn memory(workload: &mut WorkloadProcess) -> (u64, u64) {
    let at_most = Duration::from_secs(30) * time_limit_factor();
    match workload.request_and_wait(WorkloadRequest::Rss, at_most) {
        Ok(WorkloadEvent::Rss { rss_bytes, huge_bytes }) => (rss_bytes, huge_bytes),
        other => panic!("expected memory figures, not {other:?}"),
    }
}

/// Asserts that the workload's memory has its contents.
///
/// # Panics
/// It has not, or the workload does not answer.
pub fn assert_unharmed(workload: &mut WorkloadProcess) {
    let at_most = Duration::from_secs(60) * time_limit_factor();
    match workload.request_and_wait(WorkloadRequest::Verify, at_most) {
        Ok(WorkloadEvent::Verified { bad_bytes: 0, checked_bytes, .. }) => {
            assert!(checked_bytes > 0)
        }
        other => panic!("contents changed: {other:?}"),
    }
}

/// A line of `smaps_rollup`, in KiB; 0 for a process that has ended.
///
/// # Panics
/// The line holds no number.
pub fn rollup_kib(pid: u32, line: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let rest = rollup.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = rest.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.map_or(0, |kib| kib.parse().expect("a number"))
}

/// Memory of a process under huge pages in bytes, as the kernel reports it; 0 for one that has
/// ended.
pub fn huge_bytes(pid: u32) -> u64 {
    rollup_kib(pid, "AnonHugePages") << 10
}

/// The pids of a process's children.
///
/// # Panics
/// The kernel lists no numbers.
pub fn children(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    let pids = listed.split_whitespace().map(str::parse);
    pids.collect::<Result<_, _>>().expect("the pids are numbers")
}
