//! `hawkeye daemon`: looks after a whole machine.
use super::managing::Session;
use crate::daemon::{self, DaemonSettings, JournalSettings};
use crate::options::ManagingOptions;
use anyhow::Result;
use clap::Args;
use hawkeye_linux::Scope;
use hawkeye_linux::instance::state_dir;
use hawkeye_policy::{Rules, Selection};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Manage the whole machine until stopped.
#[derive(Args)]
pub struct Daemon {
    #[command(flatten)]
    options: ManagingOptions,
    #[arg(long)]
    socket: Option<PathBuf>,
    #[arg(long)]
    metrics: Option<SocketAddr>,
    #[arg(long)]
    journal: Option<PathBuf>,
}

impl Daemon {
    /// Manages.
    pub fn execute(self) -> Result<ExitCode> {
        let session = Session::begin(&self.options, "daemon")?;
        let (scope, bell) = Scope::machine(Rules::default(), Selection::default())?;
        let settings = DaemonSettings {
            socket: self
                .socket
                .unwrap_or_else(|| daemon::default_socket(&state_dir())),
            metrics: self.metrics,
            journal: self.journal.map(|path| JournalSettings {
                path,
                most_bytes: 64 << 20,
            }),
        };
        let (mut manager, _takeover) = session.into_manager(scope)?;
        let mut daemon = daemon::Daemon::start(settings, Arc::new(move || bell.ring()))?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        daemon.run(&mut manager, |_, _| Ok(()));
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        Ok(ExitCode::SUCCESS)
    }
}
