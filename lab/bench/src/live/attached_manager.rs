//! `hawkeye attach`, started by an experiment.

use super::manager_runs::ManagedMemoryKind;
use super::prelude::*;
use super::programs::debian_packages::find_hawkeye_program;
use super::programs::{
    RunningProcess, create_temporary_folder, redirect_streams_to_null, send_signal,
    signal_process_and_descendants, signal_when_parent_thread_ends,
};
use super::running_daemon::manager_family_cpu_time;
use nix::sys::signal::Signal;
use serde::Deserialize;
use tempfile::TempDir;

/// A manager of some running processes. Dropping it ends it.
pub(super) struct AttachedManager {
    process: RunningProcess,
    folder: TempDir,
}

/// What experiments use of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct AttachSummary {
    pub promoted: u64,
}

impl AttachedManager {
    /// Starts it with default settings. The machine's lease must be released.
    pub(super) fn start(pids: &[u32], memory: ManagedMemoryKind) -> BenchResult<Self> {
        let folder = create_temporary_folder()?;
        let mut command = Command::new(find_hawkeye_program()?);
        command.args(["attach", "--json"]).arg(summary_file(&folder));
        if memory == ManagedMemoryKind::Shared {
            command.arg("--shared-memory");
        }
        command.args(pids.iter().map(u32::to_string));
        redirect_streams_to_null(&mut command);
        signal_when_parent_thread_ends(&mut command, Signal::SIGTERM);
        let process = RunningProcess::start(&mut command, Signal::SIGTERM)?;
        Ok(Self { process, folder })
    }

    /// CPU time of the manager and its helpers.
    pub(super) fn cpu_time(&self) -> Duration {
        manager_family_cpu_time(self.process.child.id())
    }

    /// Stops it and its helpers while `work` runs.
    pub(super) fn while_stopped<T>(&self, work: impl FnOnce() -> T) -> T {
        let stopped = StoppedFamily::stop(self.process.child.id());
        let done = work();
        drop(stopped);
        done
    }

    /// Ends it, and waits until it has restored settings.
    pub(super) fn end(self) -> BenchResult<AttachSummary> {
        let Self { process, folder } = self;
        drop(process);
        let file = summary_file(&folder);
        let text = std::fs::read(&file).map_err(LinuxError::wrap_io_error("reading", &file))?;
        let failed = |error| impossible!("the summary of `hawkeye attach` is unreadable: {error}");
        serde_json::from_slice(&text).map_err(failed)
    }
}

/// A process and its descendants, which go on when this is dropped.
struct StoppedFamily(u32);

impl StoppedFamily {
    fn stop(pid: u32) -> Self {
        // The first process is stopped before its descendants are listed, so it starts no more.
        // That it has ended would be an error when its summary is read.
        let _ = send_signal(pid, Signal::SIGSTOP);
        signal_process_and_descendants(pid, Signal::SIGSTOP);
        Self(pid)
    }
}

impl Drop for StoppedFamily {
    fn drop(&mut self) {
        signal_process_and_descendants(self.0, Signal::SIGCONT);
    }
}

fn summary_file(folder: &TempDir) -> PathBuf {
    folder.path().join("summary.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_and_what_else_is_in_it_ignored() {
        let json = r#"{"subject":"process 7","wall_s":1.5,"promoted":3,"errors":{}}"#;
        let summary: AttachSummary = serde_json::from_str(json).expect("a summary");
        assert_eq!(summary, AttachSummary { promoted: 3 });
    }
}
