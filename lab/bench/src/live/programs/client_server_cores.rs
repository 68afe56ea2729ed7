//! Keeps a server and its client on separate cores. Otherwise the scheduler sometimes runs both on
//! one core for seconds, and the measurement shows that instead.

use super::launch;
use crate::error::{BenchResult, impossible};
use hawkeye_workload::core_set::CoreSet;
use std::process::Command;

#[derive(Clone, Copy, Debug)]
pub(super) struct ClientServerCores {
    pub(super) client: CoreSet,
    pub(super) server: CoreSet,
}

impl ClientServerCores {
    /// The first core for the client, all others for the server; `None` if there is only one.
    pub(super) fn divided() -> Option<Self> {
        match CoreSet::allowed_cores().split_first() {
            Some((client, server @ [_, ..])) => Some(Self {
                client: CoreSet::of_cores(&[*client])?,
                server: CoreSet::of_cores(server)?,
            }),
            _ => None,
        }
    }

    /// Keeps a server that is about to start on its cores. A launcher must not inherit them.
    pub(super) fn restrict_server_command(&self, command: &mut Command) {
        if !launch::has_launcher() {
            self.server.restrict_command(command);
        }
    }

    /// Keeps a server on its cores that a launcher has started.
    pub(super) fn restrict_launched_server(&self, started: u32) -> BenchResult<()> {
        if !launch::has_launcher() {
            return Ok(());
        }
        let restricted = self
            .server
            .restrict_process(launch::managed_program(started));
        restricted.map_err(|error| impossible!("keeping a server on its cores: {error}"))
    }
}
