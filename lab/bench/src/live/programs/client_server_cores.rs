//! Keeps a server and its client on separate cores. Otherwise the scheduler sometimes runs both on
//! one core for seconds, and the measurement shows that instead.

use super::program_launcher;
use crate::error::{BenchResult, impossible};
use hawkeye_workload::core_set::CoreSet;
use std::process::Command;

/// The first core for the client, all others for the server; `None` if there is only one.
fn client_and_server_cores() -> Option<[CoreSet; 2]> {
    match CoreSet::allowed_cores_of_thread().split_first() {
        Some((client, server @ [_, ..])) => {
            Some([CoreSet::from_core_numbers(&[*client])?, CoreSet::from_core_numbers(server)?])
        }
        _ => None,
    }
}

/// Keeps a client that is about to start on its core.
pub(super) fn restrict_client_command(command: &mut Command) {
    if let Some([client, _]) = client_and_server_cores() {
        client.restrict_command(command);
    }
}

/// Keeps a server that is about to start on its cores. A launcher must not inherit them.
pub(super) fn restrict_server_command(command: &mut Command) {
    if let (Some([_, server]), false) =
        (client_and_server_cores(), program_launcher::is_launcher_active())
    {
        server.restrict_command(command);
    }
}

/// Keeps a server on its cores that a launcher has started.
pub(super) fn restrict_launched_server(started: u32) -> BenchResult<()> {
    if let (Some([_, server]), true) =
        (client_and_server_cores(), program_launcher::is_launcher_active())
    {
        let restricted =
            server.restrict_threads_of_pid(program_launcher::managed_program_pid(started));
        restricted.map_err(|error| impossible!("keeping a server on its cores: {error}"))?;
    }
    Ok(())
}
