//! A MariaDB server without stored data, to which many clients stay connected.

use crate::live::prelude::*;
use crate::live::programs::{
    MARIADB_SERVER, RunningProcess, copy_mariadb_files, receive_parsed_lines, run_mariadb_query,
    signal_when_parent_thread_ends, start_mariadb_server, wait_for_parsed_line,
};
use nix::sys::signal::Signal;
use std::io::Write;
use std::process::ChildStdin;
use std::sync::mpsc::Receiver;
use tempfile::TempDir;

/// MariaDB's default, most of which is never touched without data.
const POOL_MIB: u64 = 128;
/// The default is hardly more than the clients of the full form.
const MORE_CONNECTIONS: &str = "--max-connections=400";
const DATABASE: &str = "idle";
/// It sorts with default settings: up to 2 MiB of sort buffer, and a temporary table in memory.
const SORT: &str = "SELECT MAX(x) FROM \
    (SELECT MD5(seq) x FROM seq_1_to_20000 ORDER BY x LIMIT 1000000) s;";
/// A temporary table of about half a MiB, which lasts as long as its connection.
const TABLE: &str = "CREATE TEMPORARY TABLE held (id INT, v CHAR(100)) ENGINE=MEMORY \
    CHARACTER SET latin1; \
    INSERT INTO held SELECT seq, REPEAT('v', 100) FROM seq_1_to_4000;";
/// What a client prints after its statements.
const DONE: &str = "statements are done";
/// The statements take far less time, unless the server hangs.
const STATEMENTS_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct ConnectedMariaDb {
    clients: Vec<ConnectedClient>,
    server: RunningProcess,
    // Dropped last: the server writes into it until it has ended.
    folder: TempDir,
}

impl ConnectedMariaDb {
    /// Starts a server on a copy of `files`. `command_of` makes the command that runs a program.
    pub(super) fn start(
        files: &TempDir,
        command_of: impl FnOnce(&str) -> Command,
    ) -> BenchResult<Self> {
        let folder = copy_mariadb_files(files)?;
        let command = command_of(MARIADB_SERVER);
        let server = start_mariadb_server(command, folder.path(), POOL_MIB, &[MORE_CONNECTIONS])?;
        let started = Self { clients: Vec::new(), server, folder };
        run_mariadb_query(started.folder.path(), &format!("CREATE DATABASE {DATABASE}"))?;
        Ok(started)
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.child.id()
    }

    /// Connects one more client, which sorts, makes a temporary table and stays connected.
    pub(super) fn connect_and_sort(&mut self) -> BenchResult<()> {
        let mut client = ConnectedClient::connect(self.folder.path())?;
        client.run_statements(&format!("{TABLE} {SORT}"))?;
        self.clients.push(client);
        Ok(())
    }

    /// Sorts once more over the last connection.
    pub(super) fn sort_again(&mut self) -> BenchResult<()> {
        let client = self.clients.last_mut();
        client.ok_or_else(|| impossible!("no client is connected"))?.run_statements(SORT)
    }
}

impl Drop for ConnectedMariaDb {
    fn drop(&mut self) {
        // Its files are not needed any more. It may have ended already.
        let _ = self.server.send_signal(Signal::SIGKILL);
    }
}

/// MariaDB's own client, which reads statements from its standard input.
struct ConnectedClient {
    input: ChildStdin,
    /// One for each line [`DONE`].
    answers: Receiver<()>,
    _process: RunningProcess,
}

impl ConnectedClient {
    fn connect(folder: &Path) -> BenchResult<Self> {
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            // Otherwise it prints only when it ends.
            .arg("--unbuffered")
            .arg(format!("--socket={}", folder.join("socket").display()))
            .arg(DATABASE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        signal_when_parent_thread_ends(&mut command, Signal::SIGKILL);
        let mut process = RunningProcess::start(&mut command, Signal::SIGKILL)?;
        let Some(input) = process.child.stdin.take() else {
            bail!("the input of MariaDB's client is missing");
        };
        let is_done = |line: &str| (line.trim_end() == DONE).then_some(());
        let answers = receive_parsed_lines(process.child.stdout.take(), is_done);
        Ok(Self { input, answers, _process: process })
    }

    /// Returns when they are done.
    ///
    /// # Errors
    /// A statement fails, or the server ends: both end the client. Or the server does not answer in
    /// time.
    fn run_statements(&mut self, statements: &str) -> BenchResult<()> {
        let failed = |why: &dyn std::fmt::Display| {
            impossible!("MariaDB's client did not finish its statements: {why}")
        };
        writeln!(self.input, "{statements} SELECT '{DONE}';").map_err(|error| failed(&error))?;
        wait_for_parsed_line(&self.answers, STATEMENTS_TIMEOUT).map_err(|error| failed(&error))
    }
}
