//! The ways to get huge pages that are compared, as users have them.

use crate::live::huge_page_systems::KhugepagedPace;
use crate::live::prelude::*;
use crate::live::programs::debian_packages::find_hawkeye_program;
use crate::live::programs::program_launcher::{is_manager_process, process_name};
use crate::live::programs::{
    RunningProcess, create_temporary_folder, poll_for_answer, redirect_streams_to_null,
};
use hawkeye_linux::processes::process::{cpu_time, pids_of_process_and_descendants};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadlineArm {
    Never,
    /// With khugepaged as shipped.
    Always,
    /// With default settings.
    Run,
    /// With the profile `balanced`, started before the program.
    Daemon,
}

/// What a program did under an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HeadlineArmFigures {
    /// Operations per second over the first minute, from the program's start on.
    pub first_minute_per_s: f64,
    pub last_minute_per_s: f64,
    /// CPU time of the program and its children in the last minute, in cores.
    pub program_cores: f64,
    pub rss_bytes: f64,
    /// Resident memory after most data was deleted and memory was short; `None` where nothing was
    /// deleted.
    pub rss_bytes_after_deletion: Option<f64>,
    /// 999 of 1000 answers took at most this time, in microseconds; `None` without questions.
    pub p999_us: Option<f64>,
    /// CPU time of the manager, in cores; `None` without a manager.
    pub manager_cores: Option<f64>,
}

/// The daemon's configuration.
const DAEMON_CONFIG: &str = "profile = \"balanced\"\n";
/// How long a manager may take to start or to end.
const AT_MOST: Duration = Duration::from_secs(30);

impl HeadlineArm {
    pub(super) const ALL: [Self; 4] = [Self::Never, Self::Always, Self::Run, Self::Daemon];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Never => "THP never",
            Self::Always => "THP always",
            Self::Run => "hawkeye run",
            Self::Daemon => "daemon",
        }
    }

    /// Runs `work` under this arm. `work` gets the command that starts programs; empty: none.
    pub(super) fn run_under_arm(
        self,
        host: &mut BenchHost,
        work: impl FnOnce(&BenchHost, Vec<OsString>) -> BenchResult<HeadlineArmFigures>,
    ) -> BenchResult<HeadlineArmFigures> {
        match self {
            Self::Never => {
                HugePageSystem::Base.prepare_kernel(host)?;
                host.set_thp_enabled("never")?;
                work(host, Vec::new())
            }
            Self::Always => {
                HugePageSystem::ThpShipped.prepare_kernel(host)?;
                KhugepagedPace::Shipped.apply_pace(host)?;
                work(host, Vec::new())
            }
            Self::Run => host.release_lease_while(|host| {
                let words = [find_hawkeye_program()?.into_os_string(), "run".into(), "--".into()];
                work(host, words.to_vec())
            }),
            Self::Daemon => host.release_lease_while(|host| {
                let daemon = RunningDaemon::start()?;
                let (begun, before) =
                    (Instant::now(), manager_family_cpu_time(daemon.process.child.id()));
                let mut outcome = work(host, Vec::new())?;
                let cpu = manager_family_cpu_time(daemon.process.child.id()).saturating_sub(before);
                outcome.manager_cores = Some(cpu.as_secs_f64() / begun.elapsed().as_secs_f64());
                Ok(outcome)
            }),
        }
    }
}

/// A daemon that manages the machine. Dropping it ends it, and waits until it has restored
/// settings.
struct RunningDaemon {
    process: RunningProcess,
    _folder: tempfile::TempDir,
}

impl RunningDaemon {
    fn start() -> BenchResult<Self> {
        let folder = create_temporary_folder()?;
        let config = folder.path().join("hawkeye.toml");
        std::fs::write(&config, DAEMON_CONFIG)
            .map_err(LinuxError::wrap_io_error("writing", &config))?;
        let product = find_hawkeye_program()?;
        let mut command = Command::new(&product);
        command.args(["daemon".as_ref(), "--config".as_ref(), config.as_os_str()]);
        redirect_streams_to_null(&mut command);
        hawkeye_linux::stop_signals::unblock_signals_in_child(&mut command);
        let mut process = RunningProcess::start(&mut command, Signal::SIGTERM)?;
        process.wait_until_listening("the daemon", AT_MOST, || {
            let mut status = Command::new(&product);
            let asked = redirect_streams_to_null(status.arg("status")).status();
            asked.is_ok_and(|status| status.success())
        })?;
        Ok(Self { process, _folder: folder })
    }
}

/// CPU time of a manager and its helpers.
pub(super) fn manager_family_cpu_time(manager: u32) -> Duration {
    family_cpu_time(manager, is_manager_process)
}

/// CPU time of a program and its children, without a manager that started it.
pub(super) fn program_cpu_time(pid: u32) -> Duration {
    family_cpu_time(pid, |pid| !is_manager_process(pid))
}

fn family_cpu_time(pid: u32, counts: fn(u32) -> bool) -> Duration {
    let family = pids_of_process_and_descendants(pid).filter(|pid| counts(*pid));
    family.filter_map(|pid| cpu_time(pid).ok()).sum()
}

/// The `hawkeye run` that started a program, if one did: the program is that process or one of its
/// descendants.
pub(super) fn find_launching_manager(pid: u32) -> Option<u32> {
    let mut ours = pids_of_process_and_descendants(std::process::id());
    ours.find(|ours| {
        process_name(*ours) == "hawkeye"
            && pids_of_process_and_descendants(*ours).any(|it| it == pid)
    })
}

/// Ends a program by its `hawkeye run`, which passes the signal on and restores settings.
pub(super) fn terminate_hawkeye_run(manager: u32) -> BenchResult<()> {
    let pid = Pid::from_raw(i32::try_from(manager).unwrap_or(i32::MAX));
    let _ = kill(pid, Signal::SIGTERM);
    // A process that has ended and is not waited for yet is a zombie without a command line.
    let ended = || {
        let words = std::fs::read(format!("/proc/{manager}/cmdline")).unwrap_or_default();
        Ok(words.is_empty().then_some(()))
    };
    match poll_for_answer(AT_MOST, ended)? {
        Some(()) => Ok(()),
        None => bail!("`hawkeye run` (process {manager}) did not end at SIGTERM"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_manager_is_itself() {
        let own = std::process::id();
        assert_eq!(find_launching_manager(own), None);
        assert_eq!(crate::live::programs::program_launcher::managed_program_pid(own), own);
        assert_eq!(HeadlineArm::ALL.map(|arm| arm as usize), [0, 1, 2, 3]);
    }
}
