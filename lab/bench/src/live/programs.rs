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
pub(super) mod program_launcher;
pub mod program_speed;
mod protocol_program;
mod python;
mod reporting_program;
mod rocksdb;
mod running_process;
#[cfg(test)]
mod testing;
pub mod whole_process_promotion;

pub(super) use kv_servers::redis_server_command;
pub(super) use postgres::allow_huge_buffers;
pub(super) use running_process::{
    RunningProcess, poll_for_answer, prepare_for_background, redirect_streams_to_null,
    run_for_output,
};

use crate::error::BenchError;
use crate::live::prelude::*;
use hawkeye_workload::{AnswerLatencies, HotKeyShares, RequestSchedule};
use kv_servers::LIGHT_LOAD;
use python::PythonScript;
use std::str::FromStr;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// One of our workloads that reads memory, as on the command line without `--mib`.
    Reader {
        name: &'static str,
        words: &'static str,
    },
    Redis,
    Memcached,
    JavaHashMap,
    /// PostgreSQL, with look-ups of random rows by pgbench.
    Postgres,
    Sparsehash,
    /// Look-ups in a map of Go that points to values on the heap.
    GoMap,
    /// RocksDB, with reads of random keys by db_bench.
    RocksDb,
    /// MariaDB, with look-ups of random rows by sysbench.
    MariaDb,
    /// Conjugate gradients on a random sparse matrix, in SciPy.
    Cg,
    /// Multigrid in three dimensions, in NumPy.
    Mg,
    /// Breadth-first search and PageRank on a Kronecker graph, in SciPy.
    Graph,
    /// Joins and aggregations over a table in memory, in DuckDB.
    DuckDb,
}

pub(super) const fn reader_kind(name: &'static str, words: &'static str) -> ProgramKind {
    ProgramKind::Reader { name, words }
}

/// The programs on which estimates of overhead are tested.
pub const NINE_ESTIMATED_PROGRAMS: [ProgramKind; 9] = [
    reader_kind("random", "random"),
    reader_kind("zipf", "zipf"),
    reader_kind("sequential", "sequential"),
    reader_kind("stride 4 KiB", "stride --stride-bytes 4096"),
    reader_kind("stride 64 KiB", "stride --stride-bytes 65536"),
    reader_kind("pointer chase", "chase"),
    ProgramKind::Redis,
    ProgramKind::Memcached,
    ProgramKind::JavaHashMap,
];

/// The programs that others wrote.
pub const PROGRAMS_OF_OTHERS: [ProgramKind; 9] = [
    ProgramKind::Redis,
    ProgramKind::Memcached,
    ProgramKind::Postgres,
    ProgramKind::JavaHashMap,
    ProgramKind::Sparsehash,
    ProgramKind::Cg,
    ProgramKind::Mg,
    ProgramKind::Graph,
    ProgramKind::DuckDb,
];

/// The programs of the headline; its quick form runs the first ones.
pub const HEADLINE_PROGRAMS: [ProgramKind; 11] = [
    ProgramKind::Redis,
    ProgramKind::JavaHashMap,
    ProgramKind::Sparsehash,
    ProgramKind::Memcached,
    ProgramKind::Postgres,
    ProgramKind::MariaDb,
    ProgramKind::RocksDb,
    ProgramKind::GoMap,
    ProgramKind::DuckDb,
    ProgramKind::Mg,
    ProgramKind::Graph,
];

/// All programs that can be selected by name, each once.
fn selectable_programs() -> impl Iterator<Item = ProgramKind> {
    let more = HEADLINE_PROGRAMS.into_iter().filter(|kind| !PROGRAMS_OF_OTHERS.contains(kind));
    PROGRAMS_OF_OTHERS.into_iter().chain(more)
}

impl FromStr for ProgramKind {
    type Err = BenchError;

    /// A program by its [`Self::command_line_name`].
    fn from_str(name: &str) -> BenchResult<Self> {
        let found = selectable_programs().find(|kind| kind.command_line_name() == name);
        found.ok_or_else(|| {
            let known: Vec<_> = selectable_programs().map(Self::command_line_name).collect();
            impossible!("there is no program {name:?}, only {}", known.join(", "))
        })
    }
}

impl ProgramKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reader { name, .. } => name,
            Self::Redis => "Redis",
            Self::Memcached => "memcached",
            Self::JavaHashMap => "JVM hash map",
            Self::Postgres => "PostgreSQL",
            Self::Sparsehash => "sparsehash",
            Self::GoMap => "Go map",
            Self::RocksDb => "RocksDB",
            Self::MariaDb => "MariaDB",
            Self::Cg => "cg",
            Self::Mg => "mg",
            Self::Graph => "graph",
            Self::DuckDb => "DuckDB",
        }
    }

    /// Its name in lower case, with hyphens, such as `jvm-hash-map`.
    pub fn command_line_name(self) -> String {
        self.name().to_lowercase().replace(' ', "-")
    }

    /// What it counts, in the plural.
    pub fn counted_operations_name(self) -> &'static str {
        match self {
            Self::Reader { .. } => "reads",
            Self::Redis | Self::Memcached => "answers",
            Self::JavaHashMap | Self::Sparsehash | Self::GoMap => "look-ups",
            Self::Postgres | Self::MariaDb => "transactions",
            Self::RocksDb => "reads",
            Self::Cg => "matrix entries",
            Self::Mg => "points smoothed",
            Self::Graph => "edges",
            Self::DuckDb => "rows",
        }
    }

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

    /// Memory that the program uses for `mib` MiB of data, in bytes.
    pub fn expected_resident_bytes(self, mib: u64) -> u64 {
        let bytes = mib << 20;
        // The interpreter with its libraries.
        let python = 96 << 20;
        match self {
            Self::Reader { .. } => bytes,
            // Their allocators round sizes up.
            Self::Redis | Self::Memcached => bytes * 3 / 2,
            // The heap has room beside the table, and the JVM has code.
            Self::JavaHashMap => bytes + (512 << 20),
            // Its table is rounded down to a power of two.
            Self::Sparsehash => bytes,
            // The files are in the page cache too.
            Self::Postgres | Self::RocksDb | Self::MariaDb => bytes * 2 + (256 << 20),
            // Garbage until the first collection.
            Self::GoMap => bytes * 5 / 4,
            Self::Cg | Self::Mg | Self::Graph => bytes * 5 / 4 + python,
            Self::DuckDb => bytes * 2 + python,
        }
    }
}

/// Starts one of our workloads, given as on the command line of `program`, which waits for a
/// request.
pub fn start_reader_workload(program: &Path, words: &str) -> BenchResult<Box<dyn MeasuredProgram>> {
    let words = format!("workload {words} {}", protocol_program::COUNTING);
    let workload = WorkloadProcess::spawn(program, words.split_whitespace())?;
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

fn write_file_in_folder(folder: &TempDir, file: &str, contents: &str) -> BenchResult<PathBuf> {
    let path = folder.path().join(file);
    std::fs::write(&path, contents).map_err(LinuxError::wrap_io_error("writing", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_name_on_the_command_line() {
        let java: ProgramKind = "jvm-hash-map".parse().expect("a known name");
        assert_eq!(java, ProgramKind::JavaHashMap);
        for kind in selectable_programs() {
            assert_eq!(kind.command_line_name().parse::<ProgramKind>().ok(), Some(kind));
        }
        let error = "oracle".parse::<ProgramKind>().expect_err("no such program");
        assert!(error.to_string().contains("only redis, memcached"), "{error}");
    }
}
