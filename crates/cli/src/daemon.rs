//! The daemon around the manager: it serves clients and writes the journal.
//!
//! Threads of their own serve the clients. Their requests reach the manager's thread through a
//! channel, which answers them between two steps. The manager's data are never shared.
//!
//! ```text
//!  status, top, why, ...  --protocol-->  server --+
//!  (client)                (a line of JSON)       |    one request, one reply
//!                                                 +-- request_channel --> DaemonServices::run
//!  Prometheus  --HTTP-->  http (prometheus) ------+                       (the manager's loop)
//!                                                                             |
//!                                                                             v events
//!                          disk  <-- journal_file <-- (thread) journal_writer <+
//! ```
//! Clients may be slow or hostile. `acceptor` limits connections and threads, per user and in
//! total. `deadline` limits the time of each client; readers limit the bytes that they accept.

mod acceptor;
pub mod client;
mod deadline;
mod http;
mod journal_file;
pub(crate) mod journal_writer;
mod prometheus;
pub mod protocol;
mod request_channel;
mod server;

pub use journal_writer::JournalSettings;
#[cfg(test)]
pub(crate) use prometheus::tests::status as full_status;
pub use request_channel::WakeCallback;

use crate::config::{Config, DEFAULT_SOCKET};
use crate::view::{self, ManagerView};
use anyhow::{Context, Result, bail};
use hawkeye_linux::machine_lease::instance::state_dir;
use hawkeye_manager::{Event, LoopWakeReason, Machine, Manager};
use http::MetricsServer;
use journal_writer::JournalWriter;
use protocol::{DaemonRequest, DaemonStatus, Reply};
use request_channel::{RequestReceiver, RequestSender};
use server::SocketServer;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Name of the socket in the state folder.
const SOCKET: &str = "hawkeye.sock";

pub fn default_socket(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// The daemon's socket, metrics and journal; they end when this is dropped.
pub struct DaemonServices {
    config: Config,
    caller: RequestSender,
    calls: RequestReceiver,
    journal: Option<JournalWriter>,
    metrics: Option<MetricsServer>,
    /// Status as of the last step, without the manager's part.
    latest_status: DaemonStatus,
    views: ManagerView,
    _socket: SocketServer,
}

impl DaemonServices {
    /// Opens the socket, and the metrics and the journal that the configuration asks for. `wake`
    /// ends the manager's wait, from any thread.
    pub fn start(config: Config, wake: WakeCallback) -> Result<Self> {
        let (caller, calls) = request_channel::channel(wake);
        Ok(Self {
            latest_status: DaemonStatus::default(),
            views: ManagerView::default(),
            _socket: SocketServer::start(&socket_path(&config), caller.clone())?,
            metrics: open_metrics(config.metrics, &caller)?,
            journal: write_journal(config.journal.clone(), 0)?,
            config,
            caller,
            calls,
        })
    }

    /// Applies a new configuration. What can't be changed stays as it was, and is an error.
    pub fn apply_config<M: Machine>(
        &mut self,
        new: Config,
        manager: &mut Manager<M>,
    ) -> Result<()> {
        if new.socket != self.config.socket {
            bail!("the socket's path can't change while the daemon runs; restart the daemon");
        }
        if new.metrics != self.config.metrics {
            self.metrics = open_metrics(new.metrics, &self.caller)?;
            self.config.metrics = new.metrics;
        }
        if new.journal != self.config.journal {
            // Events so far belong into the previous file.
            if let Some(journal) = &mut self.journal {
                journal.write_new_entries(manager);
            }
            let seen = manager.journal().written_entries;
            self.journal = write_journal(new.journal.clone(), seen)?;
        }
        self.config = new;
        Ok(())
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Manages until the end. `reload` is called when the configuration must be read again. Its
    /// result or its error is logged. `each_step` is called between steps, and updates the status
    /// that it is given.
    pub fn run<M: Machine>(
        &mut self,
        manager: &mut Manager<M>,
        mut reload: impl FnMut(&mut Manager<M>, &mut Self) -> Result<()>,
        mut each_step: impl FnMut(&mut Manager<M>, &mut DaemonStatus),
    ) {
        loop {
            match manager.run_due_work() {
                LoopWakeReason::Stop => break,
                LoopWakeReason::Reload => {
                    let refused = reload(manager, self).err().map(|error| {
                        tracing::error!(
                            "configuration not reloaded, the old one stays in force: {error:#}"
                        );
                        format!("{error:#}")
                    });
                    manager.record_event(Event::Reloaded { refused });
                }
                LoopWakeReason::Deadline | LoopWakeReason::Called | LoopWakeReason::Joined => {}
            }
            each_step(manager, &mut self.latest_status);
            self.serve_requests(manager);
        }
        self.serve_requests(manager);
    }

    fn serve_requests<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let Self {
            calls,
            journal,
            config,
            latest_status: seen,
            views,
            ..
        } = self;
        calls.answer_pending(|request| match request {
            DaemonRequest::Status => Reply::Status(Box::new(DaemonStatus {
                manager: views.status(manager),
                metrics: config.metrics,
                journal: journal.as_ref().map(JournalWriter::status),
                ..seen.clone()
            })),
            DaemonRequest::Why { pid, address } => {
                Reply::Explanation(views.explain(manager, pid, address))
            }
            DaemonRequest::Strip { pid, columns } => match view::strip(manager, pid, columns) {
                Some(strip) => Reply::Strip(strip),
                None => Reply::refused(format!("process {pid} is not under management")),
            },
            DaemonRequest::Pause => Reply::Done {
                changed: manager.pause(),
            },
            DaemonRequest::Resume => Reply::Done {
                changed: manager.resume(),
            },
        });
        if let Some(journal) = journal {
            journal.write_new_entries(manager);
        }
    }
}

/// Path of the socket: as configured, or in the state folder.
fn socket_path(config: &Config) -> PathBuf {
    match config.socket == Path::new(DEFAULT_SOCKET) {
        true => default_socket(&state_dir()),
        false => config.socket.clone(),
    }
}

fn open_metrics(
    address: Option<SocketAddr>,
    caller: &RequestSender,
) -> Result<Option<MetricsServer>> {
    let open = |address| http::serve_metrics(address, caller.clone());
    address.map(open).transpose()
}

fn write_journal(settings: Option<JournalSettings>, seen: u64) -> Result<Option<JournalWriter>> {
    settings
        .map(|settings| JournalWriter::start(settings, seen))
        .transpose()
        .context("can't start the journal's thread")
}
