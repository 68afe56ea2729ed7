//! The ways to get huge pages that are compared, as users have them.

use crate::live::huge_page_systems::KhugepagedPace;
use crate::live::prelude::*;
use crate::live::programs::debian_packages::find_hawkeye_program;
use crate::live::programs::program_launcher::{is_manager_process, process_name};
use crate::live::programs::{poll_for_answer, send_signal};
use crate::live::running_daemon::{DAEMON_TIMEOUT, RunningDaemon, family_cpu_time};
use hawkeye_linux::machine_lease::thp_settings::enabled_file;
use hawkeye_linux::processes::process::pids_of_process_and_descendants;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HeadlineArmFigures {
    /// Operations per second over the first minute, from the program's start on.
    pub first_minute_per_s: f64,
    /// What came after it; `None` where only the first minute is measured.
    pub later: Option<LaterFigures>,
    /// CPU time of the manager, in cores; `None` without a manager.
    pub manager_cores: Option<f64>,
}

/// What a program did after its first minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LaterFigures {
    pub last_minute_per_s: f64,
    /// CPU time of the program and its children in the last minute, in cores.
    pub program_cores: f64,
    pub rss_bytes: f64,
    /// Resident memory after most data was deleted and memory was short; `None` where nothing was
    /// deleted.
    pub rss_bytes_after_deletion: Option<f64>,
    /// 999 of 1000 answers that count took at most this time, in microseconds; `None` without
    /// questions. Those count during which neither server nor client waited for a core, where that
    /// is known.
    pub p999_us: Option<f64>,
    /// The same of all answers; `None` also in rounds of builds that did not keep it.
    pub p999_of_all_us: Option<f64>,
    /// Share of the answers that count; `None` where [`Self::p999_of_all_us`] is.
    pub counted_percent: Option<f64>,
}

/// The kernel's setting under `hawkeye run` and the daemon: huge pages at faults for programs that
/// ask for them. Both start from what they find, which must not depend on the machine.
pub(super) const ENABLED_UNDER_MANAGER: &str = "madvise";

/// The daemon's configuration.
const DAEMON_CONFIG: &str = "profile = \"balanced\"\n";

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
        let under_manager = [(enabled_file(), ENABLED_UNDER_MANAGER.to_owned())];
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
            Self::Run => host.release_lease_under_settings(&under_manager, |host| {
                let words = [find_hawkeye_program()?.into_os_string(), "run".into(), "--".into()];
                work(host, words.to_vec())
            }),
            Self::Daemon => host.release_lease_under_settings(&under_manager, |host| {
                let daemon = RunningDaemon::start(DAEMON_CONFIG)?;
                let (begun, before) = (Instant::now(), daemon.cpu_time());
                let mut outcome = work(host, Vec::new())?;
                let cpu = daemon.cpu_time().saturating_sub(before);
                outcome.manager_cores = Some(cpu.as_secs_f64() / begun.elapsed().as_secs_f64());
                Ok(outcome)
            }),
        }
    }
}

/// CPU time of a program and its children, without a manager that started it.
pub(super) fn program_cpu_time(pid: u32) -> Duration {
    family_cpu_time(pid, |pid| !is_manager_process(pid))
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
    let _ = send_signal(manager, Signal::SIGTERM);
    // A process that has ended and is not waited for yet is a zombie without a command line.
    let ended = || {
        let words = std::fs::read(format!("/proc/{manager}/cmdline")).unwrap_or_default();
        Ok(words.is_empty().then_some(()))
    };
    match poll_for_answer(DAEMON_TIMEOUT, ended)? {
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
    }
}
