//! The daemon around the manager: it serves clients and writes the journal.
//!
//! Threads of their own serve the clients. Their requests reach the manager's thread through a
//! channel, which answers them between two steps. The manager's data are never shared.
//!
//! ```text
//!  status, top, why, ... --protocol--> socket_server --+
//!  (client)               (a line of JSON)             |    one request, one reply
//!                                                      +-- request_channel --> DaemonServices
//!  Prometheus  --HTTP-->  metrics_server (prometheus) -+              (in the manager's loop)
//!                                                                             |
//!                                                                             v events
//!                     disk  <-- journal_file <-- (thread) journal_file_writer <+
//! ```
//! Clients may be slow or hostile. `acceptor` limits connections and threads, per user and in
//! total. `deadline_stream` limits the time of each client; readers limit the bytes that they
//! accept.

mod acceptor;
pub mod client;
mod deadline_stream;
mod journal_file;
pub(crate) mod journal_file_writer;
mod metrics_endpoint;
mod metrics_server;
mod prometheus;
pub mod protocol;
mod request_channel;
mod socket_server;

pub use journal_file_writer::JournalFileSettings;
#[cfg(test)]
pub(crate) use prometheus::tests::status as full_status;
pub use request_channel::WakeCallback;

use crate::config::{Config, DEFAULT_SOCKET};
use crate::view::{ManagerView, address_strip_of_process};
use anyhow::{Context, Result, bail};
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::machine_lease::manager_lock::state_dir;
use hawkeye_linux::processes::process::run_for_client;
use hawkeye_manager::Manager;
use journal_file_writer::JournalFileWriter;
use metrics_endpoint::MetricsEndpoint;
use protocol::{DaemonReply, DaemonRequest, DaemonStatus};
use request_channel::{RequestReceiver, RequestSender};
use socket_server::SocketServer;
use std::path::{Path, PathBuf};

const SOCKET: &str = "hawkeye.sock";

pub fn socket_path_in_state_dir(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// The daemon's socket, metrics and journal; they end when this is dropped.
pub struct DaemonServices {
    config: Config,
    requests: RequestSender,
    calls: RequestReceiver,
    journal: Option<JournalFileWriter>,
    metrics: MetricsEndpoint,
    view: ManagerView,
    _socket: SocketServer,
}

impl DaemonServices {
    /// Opens what the configuration asks for. `wake` ends the manager's wait, from any thread.
    pub fn start(config: Config, wake: WakeCallback) -> Result<Self> {
        let (requests, calls) = request_channel::request_channel(wake);
        let socket = match config.socket == Path::new(DEFAULT_SOCKET) {
            true => socket_path_in_state_dir(&state_dir()),
            false => config.socket.clone(),
        };
        Ok(Self {
            view: ManagerView::default(),
            _socket: SocketServer::start(&socket, requests.clone())?,
            metrics: MetricsEndpoint::start(config.metrics, requests.clone()),
            journal: start_journal_if_configured(config.journal.clone(), 0)?,
            config,
            requests,
            calls,
        })
    }

    /// Applies a new configuration. What can't be changed stays as it was, and is an error.
    pub fn apply_config(&mut self, new: Config, manager: &mut Manager<LinuxMachine>) -> Result<()> {
        if new.socket != self.config.socket {
            bail!("the socket's path can't change while the daemon runs; restart the daemon");
        }
        if new.metrics != self.config.metrics {
            self.metrics = MetricsEndpoint::start(new.metrics, self.requests.clone());
            self.config.metrics = new.metrics;
        }
        if new.journal != self.config.journal {
            // Events so far belong in the previous file.
            if let Some(journal) = &mut self.journal {
                journal.write_new_entries(manager);
            }
            let seen = manager.journal().written_entries;
            self.journal = start_journal_if_configured(new.journal.clone(), seen)?;
        }
        self.config = new;
        Ok(())
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Answers waiting requests and writes the journal; called between steps. `daemon` has the
    /// parts of the status that neither the manager nor this knows.
    pub fn answer_requests(&mut self, manager: &mut Manager<LinuxMachine>, daemon: &DaemonStatus) {
        self.metrics.retry_if_due(manager);
        let (view, metrics, journal) = (&mut self.view, &self.metrics, self.journal.as_ref());
        let answer = |request| match request {
            DaemonRequest::Status => DaemonReply::Status(Box::new(DaemonStatus {
                manager: view.manager_status(manager),
                metrics: metrics.address(),
                metrics_error: metrics.last_error().map(str::to_owned),
                journal: journal.map(JournalFileWriter::status),
                ..daemon.clone()
            })),
            DaemonRequest::Why { pid, address } => {
                DaemonReply::Explanation(view.explain_process_or_region(manager, pid, address))
            }
            DaemonRequest::Strip { pid, columns } => {
                match address_strip_of_process(manager, pid, columns) {
                    Some(strip) => DaemonReply::Strip(strip),
                    None => DaemonReply::refused_because(format!(
                        "process {pid} is not under management"
                    )),
                }
            }
            DaemonRequest::Pause => DaemonReply::Done { changed: manager.pause() },
            DaemonRequest::Resume => DaemonReply::Done { changed: manager.resume() },
        };
        let calls = &self.calls;
        run_for_client(|| calls.answer_pending_requests(answer));
        if let Some(journal) = &mut self.journal {
            journal.write_new_entries(manager);
        }
    }
}

fn start_journal_if_configured(
    settings: Option<JournalFileSettings>,
    seen: u64,
) -> Result<Option<JournalFileWriter>> {
    let start = |settings| JournalFileWriter::start(settings, seen);
    settings.map(start).transpose().context("can't start the journal's thread")
}
