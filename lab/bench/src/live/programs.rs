//! Programs to measure, all used in one way: started, set going, timed by their CPU time, stopped.
//!
//! ```text
//!  ProgramKind::start --> kv_servers, postgres, mariadb, rocksdb, hash_maps, python
//!                            |      `-- program_launcher: started directly, or by hawkeye run
//!                            v
//!                         protocol_program, reporting_program: two ways to count operations
//!                            v
//!                         MeasuredProgram --> program_speed, cpu_clock: operations per second
//! ```
//!
//! Read [`MeasuredProgram`] and [`ProgramKind`] first, then [`program_speed`]. A new program is one
//! file and one variant of [`ProgramKind`]. [`whole_process_promotion`] makes a program all huge.

mod client_server_cores;
mod cpu_clock;
pub mod debian_packages;
pub(super) mod hash_maps;
mod kv_servers;
mod mariadb;
mod paced_transactions;
mod postgres;
pub(super) mod program_kind;
pub(super) mod program_launcher;
pub mod program_speed;
mod protocol_program;
mod python;
mod reporting_program;
mod rocksdb;
pub(super) mod running_process;
#[cfg(test)]
mod testing;
pub mod whole_process_promotion;

pub(super) use kv_servers::redis_server_command;
pub(super) use mariadb::{
    MARIADB_SERVER, copy_mariadb_files, install_mariadb_files, run_mariadb_query,
    start_mariadb_server,
};
pub(super) use postgres::{LookUpClients, LookUpDatabase, LookUpFigures, allow_huge_buffers};
pub(super) use program_kind::reader_kind;
pub use program_kind::{
    HEADLINE_PROGRAMS, NINE_ESTIMATED_PROGRAMS, PROGRAMS_OF_OTHERS, ProgramKind,
};
pub(super) use reporting_program::{receive_parsed_lines, wait_for_parsed_line};
pub(super) use running_process::{
    RunningProcess, disable_huge_pages_in_child, poll_for_answer, prepare_for_background,
    redirect_streams_to_null, run_for_output, run_for_successful_stdout, send_signal,
    signal_process_and_descendants, signal_when_parent_thread_ends,
};

use crate::error::{BenchResult, bail, impossible};
use crate::live::bench_host::BenchHost;
use crate::live::memory_cgroup::MemoryCgroup;
use hawkeye_linux::LinuxError;
use hawkeye_workload::{AnswerLatencies, HotKeyShares, RequestSchedule, WorkloadProcess};
use kv_servers::LIGHT_LOAD;
use python::PythonScript;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A program that works on request. Dropping it ends it.
pub trait MeasuredProgram: Send {
    fn pid(&self) -> u32;
    fn start_work(&mut self) -> BenchResult<()>;
    fn pause_work(&mut self) -> BenchResult<()>;
    /// Operations per second of wall-clock time over the next `length`; the program must be
    /// working. It calls `mark` at the start and at the end of the interval that it counts. A
    /// program that pauses between operations has few or many of them in a short interval.
    fn measure_operations_per_s(
        &mut self,
        length: Duration,
        mark: &mut dyn FnMut(),
    ) -> BenchResult<f64>;

    /// Whether one of its threads does all the counted work. What the other threads do meanwhile is
    /// then not part of an operation's cost.
    fn works_in_one_thread(&self) -> bool {
        false
    }

    /// Latencies of single questions that come at a fixed pace; otherwise the program pauses.
    /// `None` if it answers no questions. Database servers get look-ups only.
    fn measure_answer_latencies(
        &mut self,
        _pace: RequestSchedule,
    ) -> BenchResult<Option<AnswerLatencies>> {
        Ok(None)
    }

    /// Deletes a part of its keys, chosen at random. False if it has none that can be deleted.
    /// It can only be ended afterwards.
    fn delete_keys(&mut self, _percent: u8) -> BenchResult<bool> {
        Ok(false)
    }

    /// Lets it end at SIGTERM: no client of ours stays connected, and it is not stopped. It is not
    /// used any more.
    fn prepare_to_end(&mut self) -> BenchResult<()> {
        Ok(())
    }
}

impl ProgramKind {
    /// Starts the program under base pages with about `mib` MiB of data, and waits until the data
    /// is present. Installs packages that it needs and that are missing. The program does not work
    /// yet.
    pub fn start(self, host: &BenchHost, mib: u64) -> BenchResult<Box<dyn MeasuredProgram>> {
        Ok(match self {
            Self::Reader { words, .. } => {
                Box::new(protocol_program::start_workload_program(host, words, mib)?)
            }
            Self::Redis | Self::Memcached | Self::JavaHashMap | Self::Sparsehash => {
                return self.start_with_hot_keys(host, mib, HotKeyShares::UNIFORM);
            }
            Self::Postgres => Box::new(postgres::start_under_pgbench(mib)?),
            Self::GoMap => Box::new(hash_maps::start_go_map(mib)?),
            Self::RocksDb => Box::new(rocksdb::start_db_bench(mib)?),
            Self::MariaDb => Box::new(mariadb::start_under_sysbench(mib)?),
            Self::Cg => Box::new(python::start_script(PythonScript::Cg, mib)?),
            Self::Mg => Box::new(python::start_script(PythonScript::Mg, mib)?),
            Self::Graph => Box::new(python::start_script(PythonScript::Graph, mib)?),
            Self::DuckDb => Box::new(python::start_script(PythonScript::Analytics, mib)?),
        })
    }

    /// Starts it so that a part of its keys is requested more often than the others.
    pub fn start_with_hot_keys(
        self,
        host: &BenchHost,
        mib: u64,
        hot: HotKeyShares,
    ) -> BenchResult<Box<dyn MeasuredProgram>> {
        let client = host.workload_command("ask");
        Ok(match self {
            Self::Redis => {
                Box::new(kv_servers::start_redis_with_client(client, mib, hot, Duration::ZERO)?)
            }
            Self::Memcached => Box::new(kv_servers::start_memcached_with_client(client, mib, hot)?),
            Self::JavaHashMap => Box::new(hash_maps::start_java_hash_map(mib, hot)?),
            Self::Sparsehash => Box::new(hash_maps::start_sparsehash_map(mib, hot)?),
            _ => bail!("{} has no keys, so it has no hot keys", self.name()),
        })
    }
}

/// Starts one of our workloads, given as on the command line of `program`, which waits for a
/// request.
pub fn start_reader_workload(program: &Path, words: &str) -> BenchResult<Box<dyn MeasuredProgram>> {
    let words = format!("workload {words} {}", protocol_program::COUNTING);
    let workload = WorkloadProcess::spawn(program, words.split_whitespace())?;
    Ok(Box::new(protocol_program::ProtocolProgram::from_workload_when_ready(workload)?))
}

/// As [`start_reader_workload`], in a memory cgroup.
pub(super) fn start_reader_in_cgroup(
    host: &BenchHost,
    group: &MemoryCgroup,
    words: &str,
) -> BenchResult<Box<dyn MeasuredProgram>> {
    let words = format!("{words} {}", protocol_program::COUNTING);
    let workload = group.start_workload(host.workload_program_path(), &words)?;
    Ok(Box::new(protocol_program::ProtocolProgram::from_workload_when_ready(workload)?))
}

pub(super) fn wrap_ready_workload(workload: WorkloadProcess, pid: u32) -> Box<dyn MeasuredProgram> {
    Box::new(protocol_program::ProtocolProgram::from_ready_workload(workload, pid))
}

/// Starts Redis with `mib` MiB of data and almost no load.
pub fn start_lightly_loaded_redis(
    host: &BenchHost,
    mib: u64,
) -> BenchResult<Box<dyn MeasuredProgram>> {
    let redis = kv_servers::start_redis_with_client(
        host.workload_command("ask"),
        mib,
        HotKeyShares::UNIFORM,
        LIGHT_LOAD,
    )?;
    Ok(Box::new(redis))
}

/// A new folder that no other user can read. Dropping it deletes it and its contents.
pub(super) fn create_temporary_folder() -> BenchResult<TempDir> {
    let folder = tempfile::Builder::new().prefix("hawkeye-bench-").tempdir();
    folder.map_err(|error| impossible!("creating a temporary folder: {error}"))
}

pub(super) fn write_file_in_folder(
    folder: &TempDir,
    file: &str,
    contents: &str,
) -> BenchResult<PathBuf> {
    let path = folder.path().join(file);
    std::fs::write(&path, contents).map_err(LinuxError::wrap_io_error("writing", &path))?;
    Ok(path)
}
