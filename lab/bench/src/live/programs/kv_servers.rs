//! Key-value servers, each with a client of ours on a unix socket.

use super::client_server_cores::{
    restrict_client_command, restrict_launched_server, restrict_server_command,
};
use super::program_launcher::{self, command_through_launcher};
use super::protocol_program::ProtocolProgram;
use super::running_process::{RunningProcess, prepare_for_background};
use super::{create_temporary_folder, debian_packages};
use crate::live::prelude::*;
use hawkeye_workload::HotKeyShares;
use nix::sys::signal::Signal;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

/// The pause of a client between its requests, for little load.
pub(super) const LIGHT_LOAD: Duration = Duration::from_millis(50);

const REDIS_VALUE_BYTES: u64 = 4096;
const MEMCACHED_VALUE_BYTES: u64 = 1024;
const START: Duration = Duration::from_secs(10);

/// Redis with values of 4 KiB. `client` is the command of the workload `ask`.
pub(super) fn start_redis_with_client(
    client: Command,
    mib: u64,
    hot: HotKeyShares,
    pause: Duration,
) -> BenchResult<ProtocolProgram> {
    debian_packages::install_program_if_missing("redis-server", "redis-server")?;
    let folder = create_temporary_folder()?;
    let command = redis_server_command(folder.path());
    let mut asking = client_command_with_options(client, "redis", mib, REDIS_VALUE_BYTES, hot);
    asking.args(["--pause-ms", &pause.as_millis().to_string()]);
    start_server_with_client(command, folder, asking)
}

pub(in crate::live) fn redis_server_command(folder: &Path) -> Command {
    let mut command = command_through_launcher("redis-server");
    command
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        // Redis must not opt out of huge pages. It gets them only by promotion.
        .args(["--disable-thp", "no", "--unixsocket"])
        .arg(folder.join("socket"));
    command
}

/// memcached with values of 1 KiB and one thread.
pub(super) fn start_memcached_with_client(
    client: Command,
    mib: u64,
    hot: HotKeyShares,
) -> BenchResult<ProtocolProgram> {
    debian_packages::install_program_if_missing("memcached", "memcached")?;
    let folder = create_temporary_folder()?;
    let mut command = command_through_launcher("memcached");
    // Twice the memory of the values, so that none is evicted.
    command
        .args(["-u", "root", "-t", "1", "-m", &(2 * mib).to_string(), "-s"])
        .arg(folder.path().join("socket"));
    let asking = client_command_with_options(client, "memcached", mib, MEMCACHED_VALUE_BYTES, hot);
    start_server_with_client(command, folder, asking)
}

fn client_command_with_options(
    mut client: Command,
    dialect: &str,
    mib: u64,
    value_bytes: u64,
    hot: HotKeyShares,
) -> Command {
    let keys = ((mib << 20) / value_bytes).to_string();
    let [hot_keys, hot_questions] = hot.to_option_values();
    client
        .args(["--dialect", dialect, "--keys", &keys])
        .args(["--value-bytes", &value_bytes.to_string()])
        .args(["--hot-keys-percent", &hot_keys])
        .args(["--hot-questions-percent", &hot_questions]);
    client
}

fn start_server_with_client(
    mut command: Command,
    folder: TempDir,
    mut client: Command,
) -> BenchResult<ProtocolProgram> {
    let name = command.get_program().to_string_lossy().into_owned();
    prepare_for_background(&mut command);
    restrict_server_command(&mut command);
    restrict_client_command(&mut client);
    let mut process =
        RunningProcess::start(&mut command, program_launcher::end_signal(Signal::SIGKILL))?;
    let socket = folder.path().join("socket");
    process.wait_until_listening(&name, START, || UnixStream::connect(&socket).is_ok())?;
    restrict_launched_server(process.child.id())?;
    client.arg("--socket").arg(&socket);
    ProtocolProgram::from_server_and_client(
        process,
        folder,
        WorkloadProcess::spawn_command(client)?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{TENTH, assert_works, skip_without};
    use hawkeye_test_support::this_test;
    use hawkeye_workload::RequestSchedule;

    /// The workload `ask`, which is this program ([`super::super::testing`]).
    fn client() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("is known"));
        command.args(["workload", "ask"]);
        command
    }

    fn try_out(mut server: ProtocolProgram) {
        assert_works(&mut server);
        let pace = RequestSchedule {
            length: Duration::from_millis(200),
            questions_per_s: 200,
            writes_percent: 50,
        };
        for _ in 0..2 {
            let answers = server.measure_answer_latencies(pace).expect("answers").expect("can");
            assert_eq!(answers.questions, 40);
            assert!((1..40).contains(&answers.inserted), "{answers:?}");
        }
        assert_works(&mut server);
    }

    #[test]
    fn redis_answers() {
        if !debian_packages::is_in_path("redis-server") {
            return skip_without(this_test!(), "Redis");
        }
        try_out(start_redis_with_client(client(), 4, TENTH, Duration::ZERO).expect("starts"));
    }

    #[test]
    fn memcached_answers() {
        if !debian_packages::is_in_path("memcached") {
            return skip_without(this_test!(), "memcached");
        }
        try_out(start_memcached_with_client(client(), 4, TENTH).expect("starts"));
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error() {
        let folder = create_temporary_folder().expect("is created");
        let started = start_server_with_client(Command::new("false"), folder, client());
        let error = started.map(drop).expect_err("there is no server");
        assert!(error.to_string().starts_with("false ended"), "{error}");
    }
}
