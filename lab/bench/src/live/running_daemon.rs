//! `hawkeye daemon`, started by an experiment.

use super::prelude::*;
use super::proc_files::{find_bytes_by_name, read_process_file};
use super::programs::debian_packages::find_hawkeye_program;
use super::programs::program_launcher::is_manager_process;
use super::programs::{
    RunningProcess, create_temporary_folder, poll_for_answer, redirect_streams_to_null,
    run_for_output, signal_when_parent_thread_ends,
};
use hawkeye_linux::processes::process::{cpu_time, pids_of_process_and_descendants};
use nix::sys::signal::Signal;
use serde::Deserialize;
use tempfile::TempDir;

/// How long a manager may take to start, to end, or to find a process.
pub(super) const DAEMON_TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon that manages the machine. Dropping it ends it, and waits until it has restored
/// settings.
pub(super) struct RunningDaemon {
    process: RunningProcess,
    product: PathBuf,
    _folder: TempDir,
}

/// What experiments use of `hawkeye status --json`.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct DaemonStatus {
    pub totals: RecoveryTotals,
    pub managed: usize,
    /// The largest of the managed processes.
    pub processes: Vec<DaemonProcessStatus>,
}

/// What recovery has done since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(super) struct RecoveryTotals {
    /// Huge pages that were split.
    pub split: u64,
    pub recovered_bytes: u64,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
pub(super) struct DaemonProcessStatus {
    pub pid: u32,
    pub recovered_bytes: u64,
}

impl RunningDaemon {
    /// Starts a daemon with this configuration, and waits until it answers.
    pub(super) fn start(config: &str) -> BenchResult<Self> {
        let folder = create_temporary_folder()?;
        let file = folder.path().join("hawkeye.toml");
        std::fs::write(&file, config).map_err(LinuxError::wrap_io_error("writing", &file))?;
        let product = find_hawkeye_program()?;
        let mut command = Command::new(&product);
        command.args(["daemon".as_ref(), "--config".as_ref(), file.as_os_str()]);
        redirect_streams_to_null(&mut command);
        signal_when_parent_thread_ends(&mut command, Signal::SIGTERM);
        let mut process = RunningProcess::start(&mut command, Signal::SIGTERM)?;
        process.wait_until_listening("the daemon", DAEMON_TIMEOUT, || {
            let mut status = Command::new(&product);
            let asked = redirect_streams_to_null(status.arg("status")).status();
            asked.is_ok_and(|status| status.success())
        })?;
        Ok(Self { process, product, _folder: folder })
    }

    fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// CPU time of the daemon and its helpers.
    pub(super) fn cpu_time(&self) -> Duration {
        manager_family_cpu_time(self.pid())
    }

    /// Proportional set size of the daemon and its helpers: memory that they share counts once.
    pub(super) fn pss_bytes(&self) -> BenchResult<u64> {
        let family = pids_of_process_and_descendants(self.pid()).filter(|p| is_manager_process(*p));
        family.map(pss_bytes).sum()
    }

    /// Resident memory of the daemon without its helpers.
    pub(super) fn rss_bytes(&self) -> BenchResult<u64> {
        Ok(rss_bytes(self.pid())?)
    }

    pub(super) fn fetch_status(&self) -> BenchResult<DaemonStatus> {
        let output = run_for_output(Command::new(&self.product).args(["status", "--json"]))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let message = String::from_utf8_lossy(&output.stderr);
            impossible!("the daemon's status is unreadable: {error}; {}", message.trim())
        })
    }

    /// Waits until the daemon manages a process. It finds new ones every five seconds by default.
    pub(super) fn wait_until_managed(&self, pid: u32) -> BenchResult<()> {
        let managed = || {
            let status = self.fetch_status()?;
            Ok(status.processes.iter().any(|process| process.pid == pid).then_some(()))
        };
        match poll_for_answer(DAEMON_TIMEOUT, managed)? {
            Some(()) => Ok(()),
            None => bail!(
                "the daemon did not manage process {pid} within {} s",
                DAEMON_TIMEOUT.as_secs()
            ),
        }
    }
}

/// CPU time of a manager and its helpers.
pub(super) fn manager_family_cpu_time(manager: u32) -> Duration {
    family_cpu_time(manager, is_manager_process)
}

/// CPU time of those of a process and its descendants that count.
pub(super) fn family_cpu_time(pid: u32, counts: fn(u32) -> bool) -> Duration {
    let family = pids_of_process_and_descendants(pid).filter(|pid| counts(*pid));
    family.filter_map(|pid| cpu_time(pid).ok()).sum()
}

fn pss_bytes(pid: u32) -> BenchResult<u64> {
    let pss = find_bytes_by_name(&read_process_file(pid, "smaps_rollup")?, "Pss");
    pss.ok_or_else(|| impossible!("the kernel does not report the Pss of process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_what_else_is_in_it_ignored() {
        let json = r#"{"version":"0.1.0","managed":1,"totals":{"promoted":0,"split":3,
            "recovered_bytes":4096,"errors":{}},"processes":[{"pid":7,"name":"x","split":3,
            "recovered_bytes":4096,"overhead":null}],"latest":[]}"#;
        let status: DaemonStatus = serde_json::from_str(json).expect("a status");
        let recovered = RecoveryTotals { split: 3, recovered_bytes: 4096 };
        assert_eq!((status.managed, status.totals), (1, recovered));
        let process = DaemonProcessStatus { pid: 7, recovered_bytes: 4096 };
        assert_eq!(status.processes, [process]);
    }

    #[test]
    fn the_set_size_of_this_process_is_known() {
        let own = std::process::id();
        let bytes = pss_bytes(own).expect("is readable");
        assert!(bytes > 0 && bytes <= rss_bytes(own).expect("is readable"));
    }
}
