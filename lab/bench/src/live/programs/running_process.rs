//! Running programs that others wrote.

use crate::error::{BenchError, BenchResult, bail};
use hawkeye_linux::processes::process::pids_of_process_and_descendants;
use hawkeye_linux::stop_signals::unblock_signals_in_child;
use nix::sys::prctl::{set_pdeathsig, set_thp_disable};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(in crate::live) struct RunningProcess {
    pub(in crate::live) child: Child,
    ended_by: Signal,
}

impl RunningProcess {
    pub(in crate::live) fn start(command: &mut Command, ended_by: Signal) -> BenchResult<Self> {
        unblock_signals_in_child(command);
        let failed = BenchError::start_error_mapper(command);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { child, ended_by })
    }

    /// Waits until a server listens, which `listens` shows. `name` is for errors.
    ///
    /// # Errors
    /// The server has ended, or does not listen within `at_most`.
    pub(in crate::live) fn wait_until_listening(
        &mut self,
        name: &str,
        at_most: Duration,
        mut listens: impl FnMut() -> bool,
    ) -> BenchResult<()> {
        let listening = poll_for_answer(at_most, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                bail!("{name} ended before it listened: {status}");
            }
            Ok(listens().then_some(()))
        })?;
        match listening {
            Some(()) => Ok(()),
            None => bail!("{name} did not listen within {} s", at_most.as_secs()),
        }
    }

    pub(in crate::live) fn send_signal(&self, signal: Signal) -> nix::Result<()> {
        send_signal(self.child.id(), signal)
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // The program may have ended already; then the wait returns at once.
        let _ = self.send_signal(self.ended_by);
        let _ = self.child.wait();
    }
}

pub(in crate::live) fn send_signal(pid: u32, signal: Signal) -> nix::Result<()> {
    kill(Pid::from_raw(pid as i32), signal)
}

/// Stops a process and its descendants, or lets them go on. While stopped they get no other
/// signal but SIGKILL.
pub(in crate::live) fn signal_process_and_descendants(pid: u32, signal: Signal) {
    // All of them, before the first one goes on and may end: its children then have another parent.
    let family: Vec<u32> = pids_of_process_and_descendants(pid).collect();
    for pid in family {
        // It may have ended meanwhile.
        let _ = send_signal(pid, signal);
    }
}

pub(in crate::live) fn redirect_streams_to_null(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

pub(in crate::live) fn run_for_output(command: &mut Command) -> BenchResult<Output> {
    let failed = BenchError::start_error_mapper(command);
    command.output().map_err(failed)
}

/// Has the program get a signal when the thread that starts it ends, even if that thread is killed:
/// servers hold gigabytes.
pub(in crate::live) fn signal_when_parent_thread_ends(command: &mut Command, signal: Signal) {
    // SAFETY: the closure makes only one system call between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(set_pdeathsig(signal)?));
    }
}

/// Starts the program without huge pages, and what it executes, too (`PR_SET_THP_DISABLE`).
pub(in crate::live) fn disable_huge_pages_in_child(command: &mut Command) {
    // SAFETY: the closure makes only one system call between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(set_thp_disable(true)?));
    }
}

pub(in crate::live) fn prepare_for_background(command: &mut Command) {
    redirect_streams_to_null(command);
    signal_when_parent_thread_ends(command, Signal::SIGKILL);
}

/// What a command prints; that it fails is an error.
pub(in crate::live) fn run_for_successful_stdout(mut command: Command) -> BenchResult<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = run_for_output(&mut command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    bail!(
        "{} ended with {}: {}",
        command.get_program().to_string_lossy(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )
}

/// Repeats a question until there is an answer; `None` after this time.
pub(in crate::live) fn poll_for_answer<T>(
    at_most: Duration,
    mut ask: impl FnMut() -> BenchResult<Option<T>>,
) -> BenchResult<Option<T>> {
    let deadline = Instant::now() + at_most;
    loop {
        match ask()? {
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            answer => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_stopped(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    #[test]
    fn what_a_child_executes_has_no_huge_pages_either() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec grep THP_enabled /proc/self/status"]);
        disable_huge_pages_in_child(&mut command);
        let line = run_for_successful_stdout(command).expect("the kernel shows the flag");
        assert_eq!(line.split_whitespace().last(), Some("0"), "{line}");
    }

    fn wait_until(done: impl Fn() -> bool) -> bool {
        let answer = poll_for_answer(Duration::from_secs(30), || Ok(done().then_some(())));
        matches!(answer, Ok(Some(())))
    }

    #[test]
    fn a_stopped_child_of_a_stopped_process_goes_on() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        prepare_for_background(&mut command);
        let shell = RunningProcess::start(&mut command, Signal::SIGKILL).expect("a shell");
        let family = || pids_of_process_and_descendants(shell.child.id()).collect::<Vec<_>>();
        assert!(wait_until(|| family().len() == 2));
        let family = family();
        for pid in family.iter().rev() {
            send_signal(*pid, Signal::SIGSTOP).expect("a process of this test");
        }
        assert!(wait_until(|| family.iter().all(|pid| is_stopped(*pid))));
        signal_process_and_descendants(shell.child.id(), Signal::SIGCONT);
        assert!(wait_until(|| !family.iter().any(|pid| is_stopped(*pid))));
        send_signal(family[1], Signal::SIGKILL).expect("a process of this test");
    }
}
