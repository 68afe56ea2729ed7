//! `hawkeye daemon`: manages a whole machine.

use super::prezeroing::{ManagerStateForZeroing, ZeroingController};
use super::session::{ActiveSession, PreparedSession};
use crate::config::Config;
use crate::daemon;
use crate::daemon::protocol::PrefaultStatus;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use hawkeye_linux::memory::prezeroing::PrezeroingFiles;
use hawkeye_linux::prefault::PrefaultStatistics;
use hawkeye_linux::{LinuxMachine, ManagedTarget};
use hawkeye_manager::{Machine, Manager, Settings};
use hawkeye_policy::WatermarkTable;
use sd_notify::NotifyState;
use std::cell::RefCell;
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

/// How often the page sizes in `status` are updated.
const SIZES_EVERY: Duration = Duration::from_secs(1);
/// How often systemd's watchdog is notified.
const WATCHDOG_EVERY: Duration = Duration::from_secs(1);
/// Target of messages about reloads, which are shown by default.
pub const RELOADS: &str = "hawkeye::reload";
const USUAL_CONFIG: &str = "/etc/hawkeye/hawkeye.toml";

impl DaemonOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let config = self.load_config()?;
        if self.check {
            match self.config_file() {
                Some(path) => output::print(&format!("{} is valid.\n", path.display()))?,
                None => output::print(&format!(
                    "{USUAL_CONFIG} does not exist: every key has its default.\n"
                ))?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let session = PreparedSession::for_daemon(&config)?;
        let (scope, waker) = ManagedTarget::whole_machine(config.rules.clone(), config.selection)?;
        // The guard that restores settings must be dropped after all managing has ended. What is
        // declared first here is dropped last.
        let ActiveSession {
            mut lease,
            mut recording,
            prefault: mut filling,
            mut manager,
        } = session.into_manager(scope)?;
        manager.set_watermarks(watermarks(&config));
        let mut zeroing = ZeroingController::begin(PrezeroingFiles::default(), config.prezeroing);
        let mut daemon = daemon::DaemonServices::start(config, Arc::new(move || waker.wake()))?;
        notify_systemd(&[NotifyState::Ready]);
        let config_file = RefCell::new(self.config_file().map(Path::to_owned));
        let reload = |manager: &mut Manager<LinuxMachine>, daemon: &mut daemon::DaemonServices| {
            let file = self.config_file().map(Path::to_owned);
            apply_config(self.load_config()?, manager, daemon)?;
            let rules = daemon.config().rules.count();
            tracing::info!(target: RELOADS, "{}", reloaded(file.as_deref(), rules));
            config_file.replace(file);
            Ok(())
        };
        let mut sizes_due = Duration::ZERO;
        let mut watchdog_due = Duration::ZERO;
        daemon.run(&mut manager, reload, |manager, seen| {
            filling.update(manager, lease.settings());
            if let Some(zeroing) = &mut zeroing {
                let standing = ManagerStateForZeroing {
                    now: manager.machine().now(),
                    short: manager.promotion_held_by().is_some(),
                    paused: manager.is_paused(),
                };
                seen.prezeroing = zeroing.update(standing, lease.settings()).cloned();
            }
            if let Some(recording) = &mut recording {
                recording.write_new_rows(manager);
            }
            let machine = manager.machine();
            seen.fill = machine.prefault_statistics().map(prefault_status);
            seen.slow_calls = machine.slow_call_count();
            seen.pid = Some(std::process::id());
            seen.config_file.clone_from(&config_file.borrow());
            // Only the loop itself can show that it still runs.
            if machine.now() >= watchdog_due {
                watchdog_due = machine.now() + WATCHDOG_EVERY;
                notify_systemd(&[NotifyState::Watchdog]);
            }
            // This reads some files, so not in every step.
            if machine.now() >= sizes_due {
                sizes_due = machine.now() + SIZES_EVERY;
                seen.page_sizes = machine.observed_sizes();
            }
        });
        manager.machine_mut().save_profiles();
        notify_systemd(&[NotifyState::Stopping]);
        if let Some(recording) = recording {
            recording
                .finish()
                .unwrap_or_else(|error| tracing::warn!("recording not finished: {error:#}"));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn load_config(&self) -> Result<Config> {
        let load = |path| Config::load(path).map_err(Into::into);
        self.config_file()
            .map_or_else(|| Ok(Config::default()), load)
    }

    fn config_file(&self) -> Option<&Path> {
        let usual = Path::new(USUAL_CONFIG);
        match &self.config {
            Some(path) => Some(path),
            None => usual.exists().then_some(usual),
        }
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

fn watermarks(config: &Config) -> WatermarkTable {
    WatermarkTable {
        machine: config.settings.watermarks,
        groups: config.group_watermarks,
        ..WatermarkTable::default()
    }
}

fn reloaded(file: Option<&Path>, rules: usize) -> String {
    match file {
        Some(file) => format!(
            "configuration reloaded file={} rules={rules}",
            file.display()
        ),
        None => format!(
            "configuration reloaded: {USUAL_CONFIG} does not exist, every key has its default"
        ),
    }
}

/// Applies the new configuration. What the manager knows about processes is kept.
fn apply_config(
    new: Config,
    manager: &mut Manager<LinuxMachine>,
    daemon: &mut daemon::DaemonServices,
) -> Result<()> {
    let current = daemon.config();
    let changeable = Config {
        rules: new.rules.clone(),
        selection: new.selection,
        metrics: new.metrics,
        journal: new.journal.clone(),
        socket: new.socket.clone(),
        settings: Settings {
            watermarks: new.settings.watermarks,
            ..current.settings
        },
        group_watermarks: new.group_watermarks,
        ..current.clone()
    };
    if changeable != new {
        bail!(
            "only watermarks, [selection], rules, [metrics] and [journal] can change while the daemon runs; another policy or prefault, also by a rule's profile, needs a restart"
        );
    }
    let (rules, selection, watermarks) = (new.rules.clone(), new.selection, watermarks(&new));
    daemon
        .apply_config(new, manager)
        .context("can't apply the new configuration")?;
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
        let said = reloaded(Some(file), 2);
        let expected = "configuration reloaded file=/etc/hawkeye/hawkeye.toml rules=2";
        assert_eq!(said, expected);
        assert!(reloaded(None, 0).contains("does not exist"));
    }
}
