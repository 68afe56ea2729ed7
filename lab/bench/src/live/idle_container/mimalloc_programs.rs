//! Programs with mimalloc in place of malloc, which are busy at their start and idle afterwards.

use super::connected_mariadb::ConnectedMariaDb;
use crate::live::prelude::*;
use crate::live::proc_files::read_process_file;
use crate::live::programs::hash_maps::CompiledProgram;
use crate::live::programs::{
    debian_packages, install_mariadb_files, signal_when_parent_thread_ends,
};
use hawkeye_linux::stop_signals::unblock_signals_in_child;
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleProgram {
    MariaDb,
    /// Written for this experiment.
    ThreadHeaps,
}

/// What each thread of [`IdleProgram::ThreadHeaps`] keeps.
pub(super) const KEPT_KIB: u64 = 1024;
/// Longest time in which it fills a heap or reads all of them.
const AT_MOST: Duration = Duration::from_secs(60);

impl IdleProgram {
    pub(super) const ALL: [Self; 2] = [Self::MariaDb, Self::ThreadHeaps];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB with mimalloc",
            Self::ThreadHeaps => "synthetic threads with mimalloc",
        }
    }

    /// Installs and compiles what is missing.
    pub(super) fn prepare(self) -> BenchResult<PreparedIdleProgram> {
        debian_packages::install_file_if_missing(&mimalloc_library(), "libmimalloc2.0")?;
        Ok(match self {
            Self::MariaDb => PreparedIdleProgram::MariaDb(install_mariadb_files()?),
            Self::ThreadHeaps => {
                let source = include_str!("thread_heaps.c");
                PreparedIdleProgram::ThreadHeaps(CompiledProgram::compile_c(source)?)
            }
        })
    }
}

/// A program with what it needs to be started many times.
pub(super) enum PreparedIdleProgram {
    /// The files of a server without data, to be copied for each start.
    MariaDb(TempDir),
    ThreadHeaps(CompiledProgram),
}

impl PreparedIdleProgram {
    /// Starts it without any client or thread. `within` makes a command run elsewhere, such as in
    /// a cgroup.
    ///
    /// # Errors
    /// The program does not start, or has not loaded mimalloc.
    pub(super) fn start(
        &self,
        within: &dyn Fn(&Command) -> Command,
    ) -> BenchResult<RunningIdleProgram> {
        let started = match self {
            Self::MariaDb(files) => {
                RunningIdleProgram::MariaDb(ConnectedMariaDb::start(files, |server| {
                    within(&command_with_mimalloc(server))
                })?)
            }
            Self::ThreadHeaps(program) => {
                let mut command = within(&command_with_mimalloc(program.path()));
                command.arg(KEPT_KIB.to_string());
                unblock_signals_in_child(&mut command);
                signal_when_parent_thread_ends(&mut command, Signal::SIGKILL);
                let mut process = WorkloadProcess::spawn_command(command)?;
                process.wait_ready()?;
                RunningIdleProgram::ThreadHeaps(process)
            }
        };
        require_loaded_mimalloc(started.pid())?;
        Ok(started)
    }
}

pub(super) enum RunningIdleProgram {
    MariaDb(ConnectedMariaDb),
    ThreadHeaps(WorkloadProcess),
}

impl RunningIdleProgram {
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::MariaDb(server) => server.pid(),
            Self::ThreadHeaps(process) => process.pid(),
        }
    }

    /// One more client that stays connected, or one more thread. Returns when that is idle.
    pub(super) fn add_thread(&mut self) -> BenchResult<()> {
        match self {
            Self::MariaDb(server) => server.connect_and_sort(),
            Self::ThreadHeaps(process) => {
                match process.request_and_wait(WorkloadRequest::Go, AT_MOST)? {
                    WorkloadEvent::Finished { .. } => Ok(()),
                    other => bail!("unexpected event of a program with threads: {other:?}"),
                }
            }
        }
    }

    /// Has it work once more: a sort over a connection that it has, or a read of all its blocks.
    pub(super) fn work_once(&mut self) -> BenchResult<()> {
        match self {
            Self::MariaDb(server) => server.sort_again(),
            Self::ThreadHeaps(process) => match process.count_wrong_bytes(AT_MOST)? {
                0 => Ok(()),
                bad => bail!("the program's memory is corrupt: {bad} bytes are wrong"),
            },
        }
    }
}

fn mimalloc_library() -> PathBuf {
    debian_packages::library_file("libmimalloc.so.2")
}

/// `env` sets the variable, which a wrapper does not pass on.
fn command_with_mimalloc(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("LD_PRELOAD={}", mimalloc_library().display())).arg(program);
    command
}

/// The dynamic linker only warns about a library that it cannot load before others.
fn require_loaded_mimalloc(pid: u32) -> BenchResult<()> {
    if !read_process_file(pid, "maps")?.contains("/libmimalloc.so") {
        bail!(
            "process {pid} runs without {}: check that it can be loaded with LD_PRELOAD",
            mimalloc_library().display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::MARIADB_SERVER;
    use crate::live::programs::debian_packages::is_in_path;
    use hawkeye_test_support::test_skips::TestName;
    use hawkeye_test_support::this_test;

    fn check_threads(test: TestName, program: IdleProgram, needed: &str) {
        if !is_in_path(needed) || !mimalloc_library().exists() {
            return test.skip(&format!("{needed} or mimalloc is not installed"));
        }
        let prepared = program.prepare().expect("is installed");
        let as_it_is = |command: &Command| {
            let mut same = Command::new(command.get_program());
            same.args(command.get_args());
            same
        };
        let mut running = prepared.start(&as_it_is).expect("starts with mimalloc");
        let before = rss_bytes(running.pid()).expect("it runs");
        for _ in 0..3 {
            running.add_thread().expect("becomes idle again");
        }
        let after = rss_bytes(running.pid()).expect("it runs");
        assert!(after > before, "{before} bytes, then {after}");
        running.work_once().expect("answers");
    }

    #[test]
    fn mariadb_runs_with_mimalloc_and_keeps_its_clients() {
        check_threads(this_test!(), IdleProgram::MariaDb, MARIADB_SERVER);
    }

    #[test]
    fn threads_keep_heaps_of_mimalloc() {
        check_threads(this_test!(), IdleProgram::ThreadHeaps, "cc");
    }

    #[test]
    fn a_program_without_mimalloc_is_refused() {
        let error = require_loaded_mimalloc(std::process::id()).expect_err("it has another malloc");
        assert!(error.to_string().contains("LD_PRELOAD"), "{error}");
    }
}
