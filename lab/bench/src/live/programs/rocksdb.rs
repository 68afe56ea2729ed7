//! RocksDB under its own db_bench: reads of random keys in one thread, all data in the block cache.

use super::program_launcher::{self, command_through_launcher};
use super::reporting_program::{
    REPORT_S, RateReport, ReportingProgram, receive_parsed_lines, wait_for_parsed_line,
};
use super::running_process::{
    RunningProcess, run_for_successful_stdout, signal_when_parent_thread_ends,
};
use super::{create_temporary_folder, debian_packages};
use crate::live::prelude::*;
use nix::sys::signal::Signal;
use tempfile::TempDir;

const DB_BENCH: &str = "db_bench";
const VALUE_BYTES: u64 = 1000;
/// A key and its value in a block, with what RocksDB stores beside them.
const ENTRY_BYTES: u64 = 1040;
/// Longest time for reading all data once.
const WARM_UP: Duration = Duration::from_secs(120);

/// Starts db_bench with a block cache of `mib` MiB. Nine tenths of it are filled from files that
/// another db_bench has written.
pub(super) fn start_db_bench(mib: u64) -> BenchResult<ReportingProgram<TempDir>> {
    debian_packages::install_program_if_missing(DB_BENCH, "rocksdb-tools")?;
    let folder = create_temporary_folder()?;
    let keys = ((mib << 20) / 10 * 9 / ENTRY_BYTES).max(1);
    let mut fill = Command::new(DB_BENCH);
    add_database_options(&mut fill, folder.path(), keys);
    fill.args(["--benchmarks=fillseq", "--disable_wal=1"]);
    run_for_successful_stdout(fill)?;
    let mut command = command_through_launcher(DB_BENCH);
    add_database_options(&mut command, folder.path(), keys);
    command
        .args(["--benchmarks=readtocache,readrandom", "--use_existing_db=1"])
        .arg(format!("--cache_size={}", mib << 20))
        .args(["--threads=1", "--duration=100000000"])
        .arg(format!("--stats_interval_seconds={REPORT_S}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    signal_when_parent_thread_ends(&mut command, Signal::SIGKILL);
    let ended_by = program_launcher::end_signal(Signal::SIGKILL);
    let mut process = RunningProcess::start(&mut command, ended_by)?;
    let reports = receive_parsed_lines(process.child.stderr.take(), parse_db_bench_interval);
    let filled = receive_parsed_lines(process.child.stdout.take(), |line| {
        line.starts_with("readtocache").then_some(())
    });
    wait_for_parsed_line(&filled, WARM_UP)?;
    let pid = program_launcher::managed_program_pid(process.child.id());
    ReportingProgram::new_paused(process, pid, reports, pid, folder)
}

fn add_database_options(command: &mut Command, folder: &Path, keys: u64) {
    command
        .arg(format!("--db={}", folder.display()))
        .arg(format!("--num={keys}"))
        .arg(format!("--value_size={VALUE_BYTES}"))
        .arg("--compression_type=none");
}

fn parse_db_bench_interval(line: &str) -> Option<RateReport> {
    let (_, rest) = line.split_once(" ops and (")?;
    let (rates, rest) = rest.split_once(") ops/second in (")?;
    let times = rest.strip_suffix(") seconds")?;
    let (per_s, _) = rates.split_once(',')?;
    let (_, at_s) = times.split_once(',')?;
    Some((per_s.parse().ok()?, at_s.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{assert_works, skip_without};
    use hawkeye_test_support::this_test;

    #[test]
    fn intervals_are_read() {
        let line = "2026/11/26-17:40:06  ... thread 0: (301000,1387000) ops and \
                    (300139.5,275096.6) ops/second in (1.002867,5.041865) seconds";
        assert_eq!(parse_db_bench_interval(line), Some((300_139.5, 5.041865)));
        assert_eq!(parse_db_bench_interval("DB path: [/tmp/rocksdb]"), None);
    }

    #[test]
    fn keys_are_read() {
        if !debian_packages::is_in_path(DB_BENCH) {
            return skip_without(this_test!(), "RocksDB's db_bench");
        }
        assert_works(&mut start_db_bench(8).expect("starts"));
    }
}
