//! `hawkeye daemon`: manages a whole machine.

use super::prezeroing_controller::{ManagerStateForZeroing, PrezeroingController};
use super::session::{ActiveSession, PreparedSession};
use super::unguarded_rules::UnguardedRules;
use crate::config::{Config, DEFAULT_CONFIG_FILE, find_config_file};
use crate::daemon::DaemonServices;
use crate::daemon::protocol::{DaemonStatus, PrefaultStatus};
use crate::output;
use crate::recording::ActiveRecording;
use anyhow::{Context, Result, bail};
use clap::Args;
use hawkeye_linux::memory::prezeroing::PrezeroingFiles;
use hawkeye_linux::prefault::PrefaultStatistics;
use hawkeye_linux::{LinuxMachine, ManagedTarget};
use hawkeye_manager::{Event, LoopWakeReason, Machine, Manager, Settings};
use hawkeye_policy::WatermarkTable;
use sd_notify::NotifyState;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Manage the whole machine by the rules of a file, until stopped.
///
/// Manages every process that has enough memory and that the rules include. `hawkeye top`,
/// `status`, `why`, `pause` and `resume` talk to it. On SIGHUP it reads its configuration again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye daemon
  hawkeye daemon --check --config /etc/hawkeye/hawkeye.toml
On SIGHUP it reads its configuration again.")]
pub struct DaemonOptions {
    /// Configuration file [default: /etc/hawkeye/hawkeye.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

/// Between looks at page sizes and at the kernel's settings.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(1);
const WATCHDOG_INTERVAL: Duration = Duration::from_secs(1);
/// Target of messages about reloads, which are shown by default.
pub const RELOAD_LOG_TARGET: &str = "hawkeye::reload";

impl DaemonOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let file = find_config_file(self.config.as_deref());
        let config = Config::load_or_default(file)?;
        if self.check {
            output::print_to_stdout(&match file {
                Some(path) => format!("{} is valid.\n", path.display()),
                None => {
                    format!("{DEFAULT_CONFIG_FILE} does not exist: every key has its default.\n")
                }
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let session = PreparedSession::for_daemon(&config)?;
        let (scope, waker) =
            ManagedTarget::whole_machine_with_waker(config.rules.clone(), config.selection)?;
        // The guard that restores settings must be dropped after all managing has ended. What is
        // declared first here is dropped last.
        let ActiveSession { mut lease, mut recording, mut prefault, mut manager } =
            session.into_active_session(scope)?;
        manager.set_watermarks(watermark_table(&config));
        manager.machine_mut().set_profile_request_sources(config.profile_requests.clone());
        let mut zeroing =
            PrezeroingController::new_if_supported(PrezeroingFiles::default(), config.prezeroing);
        let mut services = DaemonServices::start(config, Arc::new(move || waker.wake()))?;
        notify_systemd(&[NotifyState::Ready]);
        let mut status = DaemonStatus {
            pid: std::process::id(),
            config_file: file.map(Path::to_owned),
            ..DaemonStatus::default()
        };
        let mut unguarded = UnguardedRules::default();
        let (mut settings_due, mut watchdog_due) = (Duration::ZERO, Duration::ZERO);
        loop {
            match manager.run_due_work_and_wait() {
                LoopWakeReason::Stop => break,
                LoopWakeReason::Reload => {
                    let refused = self.reload_config(&mut manager, &mut services, &mut status);
                    let refused = refused.err().map(|error| format!("{error:#}"));
                    if let Some(error) = &refused {
                        tracing::error!(
                            "configuration not reloaded, the old one stays in force: {error}"
                        );
                    }
                    manager.record_event(Event::Reloaded { refused });
                }
                LoopWakeReason::Deadline | LoopWakeReason::Called | LoopWakeReason::Joined => {}
            }
            prefault.record_late_start(manager.machine_mut());
            prefault.switch_machine_settings(&manager, lease.settings());
            if let Some(zeroing) = &mut zeroing {
                let state = ManagerStateForZeroing {
                    now: manager.machine().now(),
                    short: manager.memory().held.is_some(),
                    paused: manager.is_paused(),
                };
                status.prezeroing = zeroing.adjust_if_due(state, lease.settings()).cloned();
            }
            if let Some(recording) = &mut recording {
                recording.write_new_rows(&mut manager);
            }
            let machine = manager.machine();
            status.fill = machine.prefault_statistics().map(prefault_status);
            status.slow_calls = machine.slow_target_call_count();
            status.pod_annotations = machine.pod_annotation_status();
            // Only the loop itself can show that it still runs.
            if machine.now() >= watchdog_due {
                watchdog_due = machine.now() + WATCHDOG_INTERVAL;
                notify_systemd(&[NotifyState::Watchdog]);
            }
            // This reads some files, so not in every step.
            if machine.now() >= settings_due {
                settings_due = machine.now() + SETTINGS_INTERVAL;
                status.page_sizes = machine.observed_page_sizes();
                status.unguarded_rules = unguarded.check(services.config()).map(str::to_owned);
            }
            services.answer_requests(&mut manager, &status);
        }
        services.answer_requests(&mut manager, &status);
        manager.machine_mut().save_program_profiles();
        notify_systemd(&[NotifyState::Stopping]);
        if let Some(Err(error)) = recording.map(ActiveRecording::finish) {
            tracing::warn!("recording not finished: {error:#}");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn reload_config(
        &self,
        manager: &mut Manager<LinuxMachine>,
        services: &mut DaemonServices,
        status: &mut DaemonStatus,
    ) -> Result<()> {
        let file = find_config_file(self.config.as_deref());
        check_file_still_there(status.config_file.as_deref(), file)?;
        apply_config_if_changeable(Config::load_or_default(file)?, manager, services)?;
        let rules = services.config().rules.count();
        tracing::info!(target: RELOAD_LOG_TARGET, "{}", reload_message(file, rules));
        status.config_file = file.map(Path::to_owned);
        Ok(())
    }
}

/// Refuses to go on with the defaults, which exclude no process. A tool that replaces the file may
/// remove it for a moment.
fn check_file_still_there(before: Option<&Path>, now: Option<&Path>) -> Result<()> {
    match (before, now) {
        (Some(before), None) => bail!(
            "{} does not exist any more; write it again, or restart the daemon to use the defaults",
            before.display()
        ),
        _ => Ok(()),
    }
}

fn prefault_status(fill: PrefaultStatistics) -> PrefaultStatus {
    PrefaultStatus {
        filled: fill.filled,
        refused: fill.refused,
        ahead: fill.ahead,
        unused: fill.unused,
        cpu_s: fill.cpu.as_secs_f64(),
        longest_ms: fill.longest.as_secs_f64() * 1e3,
    }
}

pub(super) fn watermark_table(config: &Config) -> WatermarkTable {
    WatermarkTable {
        machine: config.settings.watermarks,
        groups: config.group_watermarks,
        ..WatermarkTable::default()
    }
}

fn reload_message(file: Option<&Path>, rules: usize) -> String {
    match file {
        Some(file) => format!("configuration reloaded file={} rules={rules}", file.display()),
        None => format!(
            "configuration reloaded: {DEFAULT_CONFIG_FILE} does not exist, every key has its default"
        ),
    }
}

/// Applies the new configuration. What the manager knows about processes is kept.
fn apply_config_if_changeable(
    new: Config,
    manager: &mut Manager<LinuxMachine>,
    services: &mut DaemonServices,
) -> Result<()> {
    let current = services.config();
    let changeable = Config {
        rules: new.rules.clone(),
        selection: new.selection,
        profile_requests: new.profile_requests.clone(),
        metrics: new.metrics,
        journal: new.journal.clone(),
        socket: new.socket.clone(),
        settings: Settings { watermarks: new.settings.watermarks, ..current.settings },
        group_watermarks: new.group_watermarks,
        ..current.clone()
    };
    if changeable != new {
        bail!(
            "only watermarks, [selection], [workload_profiles], rules, [metrics] and [journal] can change while the daemon runs; another policy or prefault, also by a profile of rules or workloads, needs a restart"
        );
    }
    let (rules, selection, watermarks) = (new.rules.clone(), new.selection, watermark_table(&new));
    let profile_requests = new.profile_requests.clone();
    services.apply_config(new, manager).context("can't apply the new configuration")?;
    manager.machine_mut().set_profile_request_sources(profile_requests);
    manager.machine_mut().set_rules(rules, selection);
    manager.set_watermarks(watermarks);
    Ok(())
}

/// Notifies systemd; does nothing where the daemon was not started by systemd.
fn notify_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("systemd can't be notified: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_is_logged_with_its_file_and_the_number_of_rules() {
        let file = Path::new("/etc/hawkeye/hawkeye.toml");
        let said = reload_message(Some(file), 2);
        let expected = "configuration reloaded file=/etc/hawkeye/hawkeye.toml rules=2";
        assert_eq!(said, expected);
        assert!(reload_message(None, 0).contains("does not exist"));
    }

    #[test]
    fn a_reload_without_the_file_that_is_in_force_is_refused() {
        let file = Some(Path::new("/etc/hawkeye/hawkeye.toml"));
        let refused = check_file_still_there(file, None).expect_err("it is refused").to_string();
        assert!(refused.contains("hawkeye.toml does not exist any more"), "{refused}");
        for (before, now) in [(None, None), (None, file), (file, file)] {
            assert!(check_file_still_there(before, now).is_ok());
        }
    }
}
