//! Look-ups by several clients of pgbench that keep their connections, and pause between
//! measurements. A server can be started again with other pages.

use super::cluster::{BufferPages, PostgresCluster};
use super::{
    create_filled_cluster, parse_log_lines, parse_pgbench_progress, pgbench_command,
    report_without_end, restart_and_fill_buffers, scale_for_buffers, wait_for_backend_pids,
    wait_until_mapped,
};
use crate::live::prelude::*;
use crate::live::programs::paced_transactions::{LatencyCount, summarize_latency_counts};
use crate::live::programs::reporting_program::{
    RateReport, measure_reported_rate, receive_parsed_lines, start_load_generator,
};
use crate::live::programs::running_process::RunningProcess;
use hawkeye_linux::processes::process::pids_of_process_and_descendants;
use nix::sys::signal::Signal;
use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::time::SystemTime;

/// The server's backends use one of two cores, pgbench the other.
const CLIENTS: usize = 3;
/// The share of transactions in the log of latencies. Writing all of them would cost pgbench time.
const LOGGED_SHARE: &str = "0.1";
/// The name of pgbench's log, without the process id.
const LOG_PREFIX: &str = "sampled";
/// The transactions of `pgbench -S`. The first one of a client reads all rows instead, so that its
/// backend maps the buffers within seconds.
const LOOK_UPS: &str = "\
\\if :mapped = 0
SELECT sum(abalance) FROM pgbench_accounts;
\\set mapped 1
\\else
\\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
\\endif
";

/// A database and its files.
pub(in crate::live) struct LookUpDatabase {
    cluster: PostgresCluster,
    mib: u64,
}

impl LookUpDatabase {
    /// Creates data of nine tenths of `mib` MiB.
    pub(in crate::live) fn create(mib: u64) -> BenchResult<Self> {
        let mut cluster = create_filled_cluster(mib)?;
        cluster.stop_server()?;
        Ok(Self { cluster, mib })
    }

    /// Starts a server with buffers of that size, instead of one that runs, and its clients. They
    /// are paused. All data are in the buffers, and each backend has read all of them.
    pub(in crate::live) fn start_clients(&mut self, hugetlb: bool) -> BenchResult<LookUpClients> {
        let pages = if hugetlb { BufferPages::HUGETLB } else { BufferPages::BASE };
        let bytes = restart_and_fill_buffers(&mut self.cluster, self.mib, pages)?;
        let script = self.cluster.path_in_folder("look-ups.sql");
        std::fs::write(&script, LOOK_UPS).map_err(LinuxError::wrap_io_error("writing", &script))?;
        let mut command = pgbench_command(&self.cluster, CLIENTS);
        report_without_end(&mut command);
        command.arg("-f").arg(&script).args(["-D", "mapped=0"]);
        command.args(["-s", &scale_for_buffers(self.mib).to_string()]);
        command.args(["--log", "--log-prefix", LOG_PREFIX, "--sampling-rate", LOGGED_SHARE]);
        let mut generator = start_load_generator(command)?;
        let reports = receive_parsed_lines(generator.child.stderr.take(), parse_pgbench_progress);
        let log = format!("{LOG_PREFIX}.{}", generator.child.id());
        let backends = wait_for_backend_pids(&self.cluster, CLIENTS)?;
        // Processes share page tables of hugetlb memory, and only one of them counts as mapping it.
        if !hugetlb {
            backends.iter().try_for_each(|pid| wait_until_mapped(*pid, bytes))?;
        }
        let gone = || impossible!("PostgreSQL has no server");
        let server = self.cluster.server_pid().ok_or_else(gone)?;
        let log = self.cluster.path_in_folder(&log);
        let clients = LookUpClients { reports, backends, server, log, generator };
        clients.signal(Signal::SIGSTOP)?;
        Ok(clients)
    }

    /// Ends the server after its clients were dropped. Its memory is free then.
    pub(in crate::live) fn stop_server(&mut self) -> BenchResult<()> {
        self.cluster.stop_server()
    }
}

/// Clients that look up rows while they are measured.
pub(in crate::live) struct LookUpClients {
    reports: Receiver<RateReport>,
    backends: Vec<u32>,
    server: u32,
    log: PathBuf,
    generator: RunningProcess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::live) struct LookUpFigures {
    /// Transactions per second.
    pub per_s: f64,
    /// 99 of 100 transactions took at most this time, in microseconds.
    pub p99_us: f64,
}

impl LookUpClients {
    /// The processes that serve the clients.
    pub(in crate::live) fn backends(&self) -> &[u32] {
        &self.backends
    }

    /// All processes of the server.
    pub(in crate::live) fn server_processes(&self) -> Vec<u32> {
        pids_of_process_and_descendants(self.server).collect()
    }

    /// Lets the clients look up rows until they are paused.
    pub(in crate::live) fn start_work(&self) -> BenchResult<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Measures the clients for `length`, and pauses them.
    pub(in crate::live) fn measure_turn(&self, length: Duration) -> BenchResult<LookUpFigures> {
        self.start_work()?;
        let figures = self.measure(length);
        self.signal(Signal::SIGSTOP)?;
        figures
    }

    fn signal(&self, signal: Signal) -> BenchResult<()> {
        let sent = self.generator.send_signal(signal);
        sent.map_err(|error| impossible!("pgbench has ended: {error}"))
    }

    fn measure(&self, length: Duration) -> BenchResult<LookUpFigures> {
        let mut marks = Vec::new();
        let per_s =
            measure_reported_rate(&self.reports, length, &mut || marks.push(SystemTime::now()))?;
        let marks = marks.iter().map(|mark| {
            let since = mark.duration_since(SystemTime::UNIX_EPOCH);
            since.unwrap_or_default().as_secs_f64()
        });
        let marks: Vec<f64> = marks.collect();
        let [begun_s, ended_s] = marks[..] else {
            bail!("measuring pgbench gave no start and end");
        };
        let log = std::fs::read_to_string(&self.log)
            .map_err(LinuxError::wrap_io_error("reading", &self.log))?;
        let latencies = summarize_latency_counts(parse_sampled_log(&log, begun_s..ended_s)?)?;
        Ok(LookUpFigures { per_s, p99_us: latencies.p99_us })
    }
}

/// Latencies of the transactions that ended within a time, in seconds since the epoch. pgbench
/// writes a part of a line when its buffer is full.
fn parse_sampled_log(log: &str, within_s: Range<f64>) -> BenchResult<Vec<LatencyCount>> {
    let (whole_lines, _) = log.rsplit_once('\n').unwrap_or_default();
    parse_log_lines(whole_lines, "a transaction", |fields| {
        let [_client, _number, latency_us, _script, s, us] = fields else {
            return None;
        };
        let ended_s = s.parse::<f64>().ok()? + us.parse::<f64>().ok()? / 1e6;
        Some((within_s.contains(&ended_s), latency_us.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::postgres::cluster::postgres_program_folder;
    use crate::live::programs::testing::skip_without;
    use hawkeye_test_support::this_test;

    #[test]
    fn transactions_of_the_measured_time_count() {
        let log = "0 11 101 0 1795816147 900000\n3 10 102 0 1795816148 5\n1 12 103 0 1795816149 7\n1 13 10";
        let found = parse_sampled_log(log, 1_795_816_148.0..1_795_816_149.0).expect("is a log");
        assert_eq!(found, [LatencyCount { latency_us: 102.0, transactions: 1 }]);
        assert!(parse_sampled_log("0 1 1018 0 1795816147 5 6\n", 0.0..1.0).is_err());
        assert_eq!(parse_sampled_log("", 0.0..1.0).expect("no lines"), []);
    }

    #[test]
    fn clients_keep_their_backends_and_a_server_can_be_started_again() {
        if postgres_program_folder().is_none() {
            skip_without(this_test!(), "PostgreSQL");
            return;
        }
        let mut database = LookUpDatabase::create(16).expect("has data");
        for _ in 0..2 {
            let clients = database.start_clients(false).expect("clients start");
            assert_eq!(clients.backends().len(), CLIENTS);
            for _ in 0..2 {
                let figures = clients.measure_turn(Duration::from_secs(2)).expect("looks up rows");
                assert!(figures.per_s > 0.0 && figures.p99_us > 0.0, "{figures:?}");
            }
            let all = clients.server_processes();
            assert!(clients.backends().iter().all(|pid| all.contains(pid)));
            let server = clients.server;
            drop(clients);
            database.stop_server().expect("the server ends");
            assert!(!Path::new(&format!("/proc/{server}")).exists());
        }
    }
}
