//! MariaDB under sysbench: look-ups of random rows by their key, one connection, all data in the
//! buffer pool of InnoDB.

use super::client_server_cores::{restrict_launched_server, restrict_server_command};
use super::paced_transactions::{
    LatencyCount, WARM_UP, run_paced_generator, schedule_with_warm_up, summarize_latency_counts,
};
use super::program_launcher::{self, command_through_launcher};
use super::reporting_program::{
    PacedServer, REPORT_S, RateReport, ReportingProgram, receive_parsed_lines, start_load_generator,
};
use super::running_process::{RunningProcess, prepare_for_background, run_for_successful_stdout};
use super::{create_temporary_folder, debian_packages};
use crate::live::prelude::*;
use hawkeye_workload::{AnswerLatencies, RequestSchedule};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use std::fs::File;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

pub(in crate::live) const MARIADB_SERVER: &str = "mariadbd";
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
    folder: TempDir,
    rows: u64,
}

/// Starts a server with a buffer pool of `mib` MiB. Nine tenths of it are filled from files that
/// another server has written.
pub(super) fn start_under_sysbench(mib: u64) -> BenchResult<ReportingProgram<MariaDbServer>> {
    debian_packages::install_program_if_missing("sysbench", "sysbench")?;
    let folder = install_mariadb_files()?;
    let rows = ((mib << 20) / 10 * 9 / ROW_BYTES).max(1);
    let writer = start_mariadb_server(Command::new(MARIADB_SERVER), folder.path(), mib, &[])?;
    run_mariadb_query(folder.path(), &format!("{TABLE}{rows}"))?;
    drop(writer);
    let server =
        start_mariadb_server(command_through_launcher(MARIADB_SERVER), folder.path(), mib, &[])?;
    restrict_launched_server(server.child.id())?;
    // A look at every row.
    run_mariadb_query(folder.path(), "SELECT COUNT(c) FROM sbtest.sbtest1")?;
    let pid = program_launcher::managed_program_pid(server.child.id());
    let mut client = start_sysbench(folder.path(), rows)?;
    let reports = receive_parsed_lines(client.child.stdout.take(), parse_sysbench_report);
    let generator = client.child.id();
    let server = MariaDbServer { _server: server, folder, rows };
    ReportingProgram::new_paused(client, generator, reports, pid, server)
}

/// The folder of a server that has no data yet.
pub(in crate::live) fn install_mariadb_files() -> BenchResult<TempDir> {
    debian_packages::install_program_if_missing(MARIADB_SERVER, "mariadb-server")?;
    let folder = create_temporary_folder()?;
    let mut install = Command::new("mariadb-install-db");
    add_data_options(&mut install, folder.path())?;
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run_for_successful_stdout(install)?;
    Ok(folder)
}

/// A copy of a folder made by [`install_mariadb_files`]. No server runs on that one.
pub(in crate::live) fn copy_mariadb_files(files: &TempDir) -> BenchResult<TempDir> {
    let folder = create_temporary_folder()?;
    let mut copy = Command::new("cp");
    copy.arg("-a").args([files.path().join("data").as_path(), folder.path()]);
    run_for_successful_stdout(copy)?;
    Ok(folder)
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
/// The last one of two equal options counts.
pub(in crate::live) fn start_mariadb_server(
    mut command: Command,
    folder: &Path,
    pool_mib: u64,
    more_options: &[&str],
) -> BenchResult<RunningProcess> {
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
        ])
        .args(more_options);
    prepare_for_background(&mut command);
    restrict_server_command(&mut command);
    let mut server = RunningProcess::start(&mut command, Signal::SIGTERM)?;
    server.wait_until_listening(MARIADB_SERVER, START, || UnixStream::connect(&socket).is_ok())?;
    Ok(server)
}

pub(in crate::live) fn run_mariadb_query(folder: &Path, query: &str) -> BenchResult<String> {
    let mut client = Command::new("mariadb");
    client
        .args(["--no-defaults", "--user=root", "--batch"])
        .args(["--execute", query])
        .arg(format!("--socket={}", folder.join("socket").display()))
        .stdin(Stdio::null());
    run_for_successful_stdout(client)
}

fn start_sysbench(folder: &Path, rows: u64) -> BenchResult<RunningProcess> {
    let mut command = look_up_command(folder, rows);
    command.args([&format!("--report-interval={REPORT_S}"), "run"]).stdout(Stdio::piped());
    start_load_generator(command)
}

/// sysbench with look-ups without end, to which other options can be added.
fn look_up_command(folder: &Path, rows: u64) -> Command {
    let mut command = Command::new("sysbench");
    command
        .args(["oltp_point_select", "--db-driver=mysql", "--mysql-user=root"])
        .arg(format!("--mysql-socket={}", folder.join("socket").display()))
        .args(["--tables=1", &format!("--table-size={rows}")])
        .args(["--rand-type=uniform", "--threads=1", "--time=0"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

impl PacedServer for MariaDbServer {
    fn measure_transaction_latencies(
        &self,
        pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>> {
        let with_warm_up = schedule_with_warm_up(pace);
        let path = self.folder.path().join("histogram");
        let file = File::create(&path).map_err(LinuxError::wrap_io_error("creating", &path))?;
        let mut command = look_up_command(self.folder.path(), self.rows);
        command
            .arg(format!("--events={}", with_warm_up.request_count()))
            .arg(format!("--rate={}", pace.questions_per_s))
            // The report at this time empties the histogram.
            .arg(format!("--report-checkpoints={}", WARM_UP.as_secs()))
            .args(["--histogram", "run"])
            .stdout(file);
        run_paced_generator(command, with_warm_up)?;
        let output =
            std::fs::read_to_string(&path).map_err(LinuxError::wrap_io_error("reading", &path))?;
        let counts = output.lines().filter_map(parse_sysbench_latencies).collect();
        summarize_latency_counts(counts).map(Some)
    }
}

/// A line of sysbench's histogram, in milliseconds. The distance between two of its 1024 latencies
/// is 1.8 %. Latencies include the time in the queue of transactions that are due.
fn parse_sysbench_latencies(line: &str) -> Option<LatencyCount> {
    let (latency_ms, bar) = line.split_once(" |")?;
    let (_, transactions) = bar.rsplit_once(' ')?;
    let latency_ms: f64 = latency_ms.trim().parse().ok()?;
    Some(LatencyCount { latency_us: latency_ms * 1e3, transactions: transactions.parse().ok()? })
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
    use crate::live::programs::testing::{assert_answers_at_pace, assert_works, skip_without};
    use hawkeye_test_support::this_test;

    #[test]
    fn reports_are_read() {
        let line = "[ 2s ] thds: 1 tps: 45500.13 qps: 45500.13 (r/w/o: 45500.13/0.00/0.00) \
                    lat (ms,95%): 0.03 err/s: 0.00 reconn/s: 0.00";
        assert_eq!(parse_sysbench_report(line), Some((45_500.13, 2.0)));
        assert_eq!(parse_sysbench_report("Threads started!"), None);
    }

    /// Of 60 transactions, 17 came in the warm-up. Another session locked the table for 0.3 s.
    #[test]
    fn the_histogram_has_the_transactions_after_the_warm_up() {
        let output = include_str!("../../../testdata/sysbench-rate-histogram.txt");
        let counts: Vec<_> = output.lines().filter_map(parse_sysbench_latencies).collect();
        assert_eq!(counts[0], LatencyCount { latency_us: 99.0, transactions: 1 });
        let latencies = summarize_latency_counts(counts).expect("has transactions");
        assert_eq!((latencies.questions, latencies.p50_us), (43, 296.0));
        // Three were due while the table was locked.
        assert_eq!((latencies.p99_us, latencies.p999_us), (248_825.0, 248_825.0));
    }

    #[test]
    fn rows_are_looked_up() {
        if !debian_packages::is_in_path(MARIADB_SERVER) || !debian_packages::is_in_path("sysbench")
        {
            return skip_without(this_test!(), "MariaDB with sysbench");
        }
        let mut program = start_under_sysbench(16).expect("starts");
        assert_works(&mut program);
        assert_answers_at_pace(&mut program, 200);
        assert_works(&mut program);
    }
}
