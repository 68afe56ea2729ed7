//! PostgreSQL under pgbench: prepared look-ups of random rows, one connection, all data in the
//! shared buffers.
//!
//! Its data lies in shared memory, which has a setting of its own (`shmem_enabled`, by default
//! `never`). With every value except `deny`, `MADV_COLLAPSE` makes such memory huge from outside,
//! for all processes that map it. The addresses and the offsets must have the same 2 MiB alignment.
//! The kernel ensures that at `mmap`, but only if `shmem_enabled` is not `never` at that time
//! ([`allow_huge_buffers`]).
//!
//! HawkEye skips this memory unless `--shared-memory` is given. The other way to huge buffers is
//! PostgreSQL's own `huge_pages=on`, from the hugetlb pool.

mod cluster;
mod persistent_clients;

pub(in crate::live) use persistent_clients::{LookUpClients, LookUpDatabase, LookUpFigures};

use super::paced_transactions::{
    LatencyCount, run_paced_generator, schedule_with_warm_up, summarize_latency_counts,
};
use super::reporting_program::{
    PacedServer, REPORT_S, RateReport, ReportingProgram, receive_parsed_lines, start_load_generator,
};
use super::running_process::{RunningProcess, poll_for_answer, run_for_successful_stdout};
use crate::live::prelude::*;
use crate::live::shared_memory_use::mapped_shared_bytes;
use cluster::{BufferPages, PostgresCluster};
use hawkeye_workload::{AnswerLatencies, RequestSchedule};

/// Size of the table and the index for one pgbench scale unit: 100,000 rows.
const SCALE_BYTES: u64 = 15 << 20;
/// How long a backend may take to map nearly all the data, and the share that counts as nearly all,
/// in per cent.
const MAPPING: Duration = Duration::from_secs(120);
const MAPPED_PERCENT: u64 = 90;
/// The name of pgbench's logs, without the process id.
const LOG_PREFIX: &str = "transactions";

/// Makes the kernel align shared memory that is mapped from now on, so that it can be made huge.
/// If the setting allows it already, or is missing, nothing is changed.
pub(in crate::live) fn allow_huge_buffers(host: &mut BenchHost) -> BenchResult<()> {
    const SETTING: &str = "shmem_enabled";
    let path = Path::new(THP_DIR).join(SETTING);
    if path.exists() && hawkeye_linux::machine_lease::thp_settings::read_setting(&path)? == "never"
    {
        host.set_thp_setting(SETTING, "advise")?;
    }
    Ok(())
}

/// Starts a server with `mib` MiB of shared buffers. Nine tenths of them are filled from files that
/// another server has written.
pub(super) fn start_under_pgbench(mib: u64) -> BenchResult<ReportingProgram<PostgresCluster>> {
    let mut cluster = create_filled_cluster(mib)?;
    let bytes = restart_and_fill_buffers(&mut cluster, mib, BufferPages::BASE)?;
    let mut client = start_pgbench(&cluster)?;
    let reports = receive_parsed_lines(client.child.stderr.take(), parse_pgbench_progress);
    let [backend] = wait_for_backend_pids(&cluster, 1)?[..] else {
        bail!("PostgreSQL has more connections than pgbench has clients");
    };
    wait_until_mapped(backend, bytes)?;
    let generator = client.child.id();
    ReportingProgram::new_paused(client, generator, reports, backend, cluster)
}

/// A cluster with data of nine tenths of `mib` MiB, and a server that has written them.
fn create_filled_cluster(mib: u64) -> BenchResult<PostgresCluster> {
    let mut cluster = PostgresCluster::new()?;
    cluster.start_writing_server(mib)?;
    let scale = scale_for_buffers(mib);
    let mut fill = cluster.command("pgbench");
    fill.args(["-i", "-q", "--unlogged-tables", "-s", &scale.to_string()]);
    run_for_successful_stdout(fill)?;
    cluster.run_query("CREATE EXTENSION pg_prewarm")?;
    cluster.run_query("CHECKPOINT")?;
    Ok(cluster)
}

/// The scale of data for nine tenths of `mib` MiB.
fn scale_for_buffers(mib: u64) -> u64 {
    ((mib << 20) / 10 * 9 / SCALE_BYTES).max(1)
}

/// Starts another server, which has all data in its buffers. Returns their bytes.
fn restart_and_fill_buffers(
    cluster: &mut PostgresCluster,
    mib: u64,
    pages: BufferPages,
) -> BenchResult<u64> {
    cluster.restart_for_measurement(mib, pages)?;
    cluster
        .run_query("SELECT pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')")?;
    let size =
        "SELECT pg_relation_size('pgbench_accounts') + pg_relation_size('pgbench_accounts_pkey')";
    parse_number_answer(&cluster.run_query(size)?)
}

fn start_pgbench(cluster: &PostgresCluster) -> BenchResult<RunningProcess> {
    let mut command = look_up_command(cluster);
    report_without_end(&mut command);
    start_load_generator(command)
}

/// Has pgbench report its rate at intervals until it is ended.
fn report_without_end(command: &mut Command) {
    let forever = "100000000";
    command.args(["-T", forever, "-P", &REPORT_S.to_string()]).stderr(Stdio::piped());
}

/// Look-ups by one client.
fn look_up_command(cluster: &PostgresCluster) -> Command {
    let mut command = pgbench_command(cluster, 1);
    command.arg("-S");
    command
}

fn pgbench_command(cluster: &PostgresCluster, clients: usize) -> Command {
    let mut command = cluster.command("pgbench");
    command.args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", "1"]);
    command
}

/// The measured backend serves the paused connection. These transactions have a backend of their
/// own, which maps shared buffers when it first reads them.
impl PacedServer for PostgresCluster {
    fn measure_transaction_latencies(
        &self,
        pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>> {
        let with_warm_up = schedule_with_warm_up(pace);
        let mut command = look_up_command(self);
        command
            .args(["-t", &with_warm_up.request_count().to_string()])
            .args(["--rate", &pace.questions_per_s.to_string()])
            .args(["--log", "--log-prefix", LOG_PREFIX]);
        let generator = run_paced_generator(command, with_warm_up)?;
        let log = self.path_in_folder(&format!("{LOG_PREFIX}.{generator}"));
        let text =
            std::fs::read_to_string(&log).map_err(LinuxError::wrap_io_error("reading", &log))?;
        let warm_up = with_warm_up.request_count() - pace.request_count();
        let latencies = parse_pgbench_log(&text, warm_up)?;
        summarize_latency_counts(latencies).map(Some)
    }
}

/// Latencies in the log of pgbench with `--rate`, without the first transactions. They count from
/// the time when a transaction was due, so they include the schedule lag, which is the last field.
fn parse_pgbench_log(log: &str, without_first: u64) -> BenchResult<Vec<LatencyCount>> {
    parse_log_lines(log, "a transaction and its schedule lag", |fields| {
        let [_client, number, latency_us, _script, _s, _us, _lag_us] = fields else {
            return None;
        };
        Some((number.parse::<u64>().ok()? > without_first, latency_us.parse().ok()?))
    })
}

/// Transactions in a log of pgbench. `parse_fields` returns whether one counts, and its latency in
/// microseconds; `expected` is for errors.
fn parse_log_lines(
    log: &str,
    expected: &str,
    parse_fields: impl Fn(&[&str]) -> Option<(bool, f64)>,
) -> BenchResult<Vec<LatencyCount>> {
    let mut latencies = Vec::new();
    for line in log.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        match parse_fields(&fields) {
            Some((true, latency_us)) => {
                latencies.push(LatencyCount { latency_us, transactions: 1 });
            }
            Some((false, _)) => {}
            None => bail!("pgbench logged {line:?} instead of {expected}"),
        }
    }
    Ok(latencies)
}

fn parse_pgbench_progress(line: &str) -> Option<RateReport> {
    let rest = line.strip_prefix("progress: ")?;
    let (seconds, rest) = rest.split_once(" s, ")?;
    let (per_s, _) = rest.split_once(" tps")?;
    Some((per_s.parse().ok()?, seconds.parse().ok()?))
}

fn parse_number_answer(text: &str) -> BenchResult<u64> {
    let wrong = |_| impossible!("PostgreSQL answered {text:?} instead of a number");
    text.parse().map_err(wrong)
}

/// The processes that serve pgbench's clients, once all look up rows.
fn wait_for_backend_pids(cluster: &PostgresCluster, clients: usize) -> BenchResult<Vec<u32>> {
    // pgbench's first connection only reads the table list, and ends.
    let query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT abalance%'";
    let asking = || {
        let answer = cluster.run_query(query)?;
        Ok(Some(answer).filter(|answer| answer.lines().count() >= clients))
    };
    let answer = poll_for_answer(MAPPING, asking)?.unwrap_or_default();
    let pids = answer.lines().map(|line| Ok(parse_number_answer(line)? as u32));
    let pids: Vec<u32> = pids.collect::<BenchResult<_>>()?;
    match pids.len() {
        0 => bail!("PostgreSQL does not serve {clients} clients of pgbench"),
        _ => Ok(pids),
    }
}

/// Waits until a process has mapped nearly `bytes` of shared memory: it maps what it reads.
fn wait_until_mapped(pid: u32, bytes: u64) -> BenchResult<()> {
    let mut mapped = 0;
    let waiting = || {
        mapped = mapped_shared_bytes(pid)?;
        Ok((mapped >= bytes / 100 * MAPPED_PERCENT).then_some(()))
    };
    if poll_for_answer(MAPPING, waiting)?.is_none() {
        bail!(
            "PostgreSQL's backend has mapped only {} of {} MiB after {} s",
            mapped >> 20,
            bytes >> 20,
            MAPPING.as_secs()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{assert_answers_at_pace, assert_works, skip_without};
    use hawkeye_test_support::this_test;

    #[test]
    fn progress_is_read() {
        let line = "progress: 2.0 s, 13579.5 tps, lat 0.073 ms stddev 0.011, 0 failed";
        assert_eq!(parse_pgbench_progress(line), Some((13579.5, 2.0)));
        assert_eq!(parse_pgbench_progress("pgbench (15.18 (Debian 15.18-0+deb12u1))"), None);
        assert_eq!(parse_pgbench_progress("progress: nan s, x tps"), None);
    }

    /// Another session locked the table for 0.3 s, when transaction 14 was due.
    #[test]
    fn a_transaction_that_waits_behind_a_slow_one_counts_as_slow() {
        let log = include_str!("../../../testdata/pgbench-rate-log.txt");
        let latencies = parse_pgbench_log(log, 0).expect("is a log");
        assert_eq!(latencies.len(), 20);
        assert_eq!(latencies[1], LatencyCount { latency_us: 506.0, transactions: 1 });
        assert!(latencies[13..].iter().all(|it| it.latency_us > 120e3), "{latencies:?}");
        let without_first = parse_pgbench_log(log, 5).expect("is a log");
        let latencies = summarize_latency_counts(without_first).expect("has transactions");
        assert_eq!((latencies.questions, latencies.p999_us), (15, 294_968.0));
        assert!(parse_pgbench_log("0 1 1018 0 1795816147 783392", 0).is_err());
    }

    #[test]
    fn rows_are_looked_up() {
        if cluster::postgres_program_folder().is_none() {
            skip_without(this_test!(), "PostgreSQL");
            return;
        }
        let mut program = start_under_pgbench(16).expect("starts");
        assert_works(&mut program);
        assert_answers_at_pace(&mut program, 200);
        assert_works(&mut program);
    }
}
