//! The daemon around the manager: who asks it from outside, and where it writes to.
//!
//! Clients are served by threads of their own. Their requests reach the manager's thread through a
//! channel and are answered between two steps, so that nothing of the manager is shared.
//!
//! ```text
//!  status, top, why, ...  --protocol-->  server --+
//!  (client)                (a line of JSON)       |            one request,
//!                                                 +-- calls -- one reply --> Daemon::run: the manager's loop
//!  Prometheus  --HTTP-->  http (prometheus) ------+                                |
//!                                                                                  v events
//!                          disk  <-- journal_file <-- (thread) journal_writer <----+
//! ```
//! Clients may be slow or hostile. `door` bounds how many connections and threads there are, for each user and in
//! all; `deadline` bounds how long each may take; readers bound how many bytes they accept.

mod calls;
pub mod client;
mod deadline;
mod door;
mod http;
mod journal_file;
mod journal_writer;
mod prometheus;
pub mod protocol;
mod server;

pub use calls::Wake as Bell;
pub use journal_writer::JournalSettings;

use crate::view::{self, Views};
use anyhow::{Context, Result};
use calls::{Caller, Calls};
use hawkeye_linux::page_sizes::SizesSeen;
use hawkeye_manager::{Event, Machine, Manager, Wake};
use http::MetricsServer;
use journal_writer::JournalWriter;
use protocol::{DaemonStatus, FillStatus, PrezeroingStatus, Reply, Request};
use server::SocketServer;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The socket's name in the state folder.
const SOCKET: &str = "hawkeye.sock";

/// Where the socket is unless it is set.
pub fn default_socket(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// What the daemon has besides the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// Where it listens.
    pub socket: PathBuf,
    /// Where metrics are served (a loopback address), if they are.
    pub metrics: Option<SocketAddr>,
    /// Where the journal is written to, if it is.
    pub journal: Option<JournalSettings>,
}

/// What only the machine knows, for those who ask how it stands.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How fault-ahead stands.
    pub fill: Option<FillStatus>,
    /// How the kernel's own zeroing of free memory stands.
    pub prezeroing: Option<PrezeroingStatus>,
    /// Pages by size.
    pub page_sizes: Option<SizesSeen>,
    /// Calls into other processes that took longer than 30 ms.
    pub slow_calls: u64,
}

/// Everything around the manager; it ends when this is dropped.
pub struct Daemon {
    settings: DaemonSettings,
    caller: Caller,
    calls: Calls,
    journal: Option<JournalWriter>,
    metrics: Option<MetricsServer>,
    /// As of the last step.
    seen: Seen,
    views: Views,
    _socket: SocketServer,
}

impl Daemon {
    /// Opens the socket and what else the settings say. `bell` ends the manager's wait, from any
    /// thread.
    ///
    /// # Errors
    /// Another daemon is there, or an address can't be had.
    pub fn start(settings: DaemonSettings, bell: Bell) -> Result<Self> {
        let (caller, calls) = calls::calls(bell);
        Ok(Self {
            seen: Seen::default(),
            views: Views::default(),
            _socket: SocketServer::start(&settings.socket, caller.clone())?,
            metrics: serve_metrics(settings.metrics, &caller)?,
            journal: write_journal(settings.journal.clone(), 0)?,
            settings,
            caller,
            calls,
        })
    }

    /// Goes by new settings from now on.
    ///
    /// # Errors
    /// An address can't be had, or the socket is another: what can't be changed stays as it was.
    pub fn change<M: Machine>(
        &mut self,
        settings: DaemonSettings,
        manager: &mut Manager<M>,
    ) -> Result<()> {
        if settings.socket != self.settings.socket {
            anyhow::bail!("the socket can't be moved while the daemon runs: restart it");
        }
        if settings.metrics != self.settings.metrics {
            self.metrics = serve_metrics(settings.metrics, &self.caller)?;
            self.settings.metrics = settings.metrics;
        }
        if settings.journal != self.settings.journal {
            // What happened so far belongs to the file before.
            if let Some(journal) = &mut self.journal {
                journal.take(manager);
            }
            let seen = manager.journal().written();
            self.journal = write_journal(settings.journal.clone(), seen)?;
            self.settings.journal = settings.journal;
        }
        Ok(())
    }

    /// Manages until the end. `reload` is called when the configuration is to be read again; whether
    /// it did or why not is written down. `each_step` is called between steps, and brings what it is given up to date.
    pub fn run<M: Machine>(
        &mut self,
        manager: &mut Manager<M>,
        mut reload: impl FnMut(&mut Manager<M>, &mut Self) -> Result<()>,
        mut each_step: impl FnMut(&mut Manager<M>, &mut Seen),
    ) {
        loop {
            match manager.step() {
                Wake::Stop => break,
                Wake::Reload => {
                    let refused = reload(manager, self).err().map(|error| {
                        tracing::error!("the configuration stays as it was: {error:#}");
                        format!("{error:#}")
                    });
                    manager.note(Event::Reloaded { refused });
                }
                Wake::Deadline | Wake::Called | Wake::Joined => {}
            }
            each_step(manager, &mut self.seen);
            self.between_steps(manager);
        }
        self.between_steps(manager);
    }

    fn between_steps<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let Self {
            calls,
            journal,
            settings,
            seen,
            views,
            ..
        } = self;
        calls.answer(|request| match request {
            Request::Status => Reply::Status(Box::new(DaemonStatus {
                manager: views.status(manager),
                fill: seen.fill,
                prezeroing: seen.prezeroing.clone(),
                page_sizes: seen.page_sizes.clone(),
                slow_calls: seen.slow_calls,
                metrics: settings.metrics,
                journal: journal.as_ref().map(JournalWriter::status),
            })),
            Request::Why { pid, address } => {
                Reply::Explanation(views.explain(manager, pid, address))
            }
            Request::Strip { pid, columns } => match view::strip(manager, pid, columns) {
                Some(strip) => Reply::Strip(strip),
                None => Reply::refused(format!("process {pid} is not under management")),
            },
            Request::Pause => Reply::Done {
                changed: manager.pause(),
            },
            Request::Resume => Reply::Done {
                changed: manager.resume(),
            },
        });
        if let Some(journal) = journal {
            journal.take(manager);
        }
    }
}

fn serve_metrics(address: Option<SocketAddr>, caller: &Caller) -> Result<Option<MetricsServer>> {
    address
        .map(|address| MetricsServer::start(address, caller.clone()))
        .transpose()
}

fn write_journal(settings: Option<JournalSettings>, seen: u64) -> Result<Option<JournalWriter>> {
    settings
        .map(|settings| JournalWriter::start(settings, seen))
        .transpose()
        .context("starting the journal's thread")
}
