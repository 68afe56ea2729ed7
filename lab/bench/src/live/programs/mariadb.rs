//! MariaDB under sysbench: look-ups of random rows by their key, one connection, all data in the
//! buffer pool of InnoDB.

use super::client_server_cores::{restrict_launched_server, restrict_server_command};
use super::program_launcher::{self, command_through_launcher};
use super::reporting_program::{
    REPORT_S, RateReport, ReportingProgram, receive_parsed_lines, start_load_generator,
};
use super::running_process::{RunningProcess, prepare_for_background, run_for_successful_stdout};
use super::{create_temporary_folder, debian_packages};
use crate::live::prelude::*;
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

const SERVER: &str = "mariadbd";
/// What a row takes in the buffer pool, with its share of the index.
const ROW_BYTES: u64 = 240;
const START: Duration = Duration::from_secs(30);
/// The table of sysbench's `oltp_point_select`, without its second index. MariaDB writes no undo
/// log for rows that are inserted into an empty table this way.
const TABLE: &str = "CREATE DATABASE sbtest; USE sbtest; \
    SET unique_checks=0, foreign_key_checks=0; \
    CREATE TABLE sbtest1 (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, \
    c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL) ENGINE=InnoDB CHARACTER SET latin1; \
    INSERT INTO sbtest1 SELECT seq, seq, REPEAT('c', 119), REPEAT('p', 59) FROM seq_1_to_";

/// The measured server and its folder.
pub(super) struct MariaDbServer {
    // Dropped first: it writes into the folder until it has ended.
    _server: RunningProcess,
    _folder: TempDir,
}

/// Starts a server with a buffer pool of `mib` MiB. Nine tenths of it are filled from files that
/// another server has written.
pub(super) fn start_under_sysbench(mib: u64) -> BenchResult<ReportingProgram<MariaDbServer>> {
    debian_packages::install_program_if_missing(SERVER, "mariadb-server")?;
    debian_packages::install_program_if_missing("sysbench", "sysbench")?;
    let folder = create_temporary_folder()?;
    let rows = ((mib << 20) / 10 * 9 / ROW_BYTES).max(1);
    let mut install = Command::new("mariadb-install-db");
    add_data_options(&mut install, folder.path())?;
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run_for_successful_stdout(install)?;
    let writer = start_server(Command::new(SERVER), folder.path(), mib)?;
    run_query(folder.path(), &format!("{TABLE}{rows}"))?;
    drop(writer);
    let server = start_server(command_through_launcher(SERVER), folder.path(), mib)?;
    restrict_launched_server(server.child.id())?;
    // A look at every row.
    run_query(folder.path(), "SELECT COUNT(c) FROM sbtest.sbtest1")?;
    let pid = program_launcher::managed_program_pid(server.child.id());
    let mut client = start_sysbench(folder.path(), rows)?;
    let reports = receive_parsed_lines(client.child.stdout.take(), parse_sysbench_report);
    let generator = client.child.id();
    let server = MariaDbServer { _server: server, _folder: folder };
    ReportingProgram::new_paused(client, generator, reports, pid, server)
}

/// `--no-defaults` comes first, or the programs refuse it.
fn add_data_options(command: &mut Command, folder: &Path) -> BenchResult<()> {
    let user = User::from_uid(geteuid()).ok().flatten();
    let user = user.ok_or_else(|| impossible!("the user of this process has no name"))?;
    command
        .arg("--no-defaults")
        // The server refuses root unless that is said.
        .arg(format!("--user={}", user.name))
        .arg(format!("--datadir={}", folder.join("data").display()));
    Ok(())
}

/// A server on a socket in `folder` that answers. SIGTERM ends it after it has written everything.
fn start_server(mut command: Command, folder: &Path, pool_mib: u64) -> BenchResult<RunningProcess> {
    let socket = folder.join("socket");
    add_data_options(&mut command, folder)?;
    command
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--pid-file={}", folder.join("pid").display()))
        .arg(format!("--innodb-buffer-pool-size={}M", pool_mib.max(8)))
        .args([
            "--skip-networking",
            // The second server finds the files in the page cache, and nothing need survive.
            "--innodb-flush-method=fsync",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
        ]);
    prepare_for_background(&mut command);
    restrict_server_command(&mut command);
    let mut server = RunningProcess::start(&mut command, Signal::SIGTERM)?;
    server.wait_until_listening(SERVER, START, || UnixStream::connect(&socket).is_ok())?;
    Ok(server)
}

fn run_query(folder: &Path, query: &str) -> BenchResult<String> {
    let mut client = Command::new("mariadb");
    client
        .args(["--no-defaults", "--user=root", "--batch"])
        .args(["--execute", query])
        .arg(format!("--socket={}", folder.join("socket").display()))
        .stdin(Stdio::null());
    run_for_successful_stdout(client)
}

fn start_sysbench(folder: &Path, rows: u64) -> BenchResult<RunningProcess> {
    let socket = folder.join("socket");
    let socket = socket.display();
    let mut command = Command::new("sysbench");
    command
        .args(["oltp_point_select", "--db-driver=mysql", "--mysql-user=root"])
        .arg(format!("--mysql-socket={socket}"))
        .args(["--tables=1", &format!("--table-size={rows}")])
        .args(["--rand-type=uniform", "--threads=1", "--time=0"])
        .args([&format!("--report-interval={REPORT_S}"), "run"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    start_load_generator(command)
}

fn parse_sysbench_report(line: &str) -> Option<RateReport> {
    let (at_s, rest) = line.strip_prefix("[ ")?.split_once("s ] ")?;
    let (_, rest) = rest.split_once(" tps: ")?;
    let (per_s, _) = rest.split_once(' ')?;
    Some((per_s.parse().ok()?, at_s.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{assert_works, skip_without};
    use hawkeye_test_support::this_test;

    #[test]
    fn reports_are_read() {
        let line = "[ 2s ] thds: 1 tps: 45500.13 qps: 45500.13 (r/w/o: 45500.13/0.00/0.00) \
                    lat (ms,95%): 0.03 err/s: 0.00 reconn/s: 0.00";
        assert_eq!(parse_sysbench_report(line), Some((45_500.13, 2.0)));
        assert_eq!(parse_sysbench_report("Threads started!"), None);
    }

    #[test]
    fn rows_are_looked_up() {
        if !debian_packages::is_in_path(SERVER) || !debian_packages::is_in_path("sysbench") {
            return skip_without(this_test!(), "MariaDB with sysbench");
        }
        assert_works(&mut start_under_sysbench(16).expect("starts"));
    }
}
