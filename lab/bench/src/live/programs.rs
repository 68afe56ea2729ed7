//! Programs to measure, all used in one way: started, set going, timed by their CPU time, stopped.

pub(super) mod compiled;
mod cores;
mod cpu_time;
mod hash_map;
pub mod huge;
pub mod packages;
mod postgres;
mod python;
mod reader;
mod scratch;
mod server;
mod sparsehash;
pub mod speed;
#[cfg(test)]
mod testing;

pub(super) use server::{die_with_us, in_background};

use super::host::Host;
use crate::error::BenchError;
use hawkeye_workload::{Hot, Latencies, Pace, Workload};
use python::Script;
use std::path::Path;
use std::time::Duration;

/// A program that works when it is told to. Dropping it ends it.
pub trait Program: Send {
    /// Its process.
    fn pid(&self) -> u32;
    /// Has it work from now on.
    fn go(&mut self) -> Result<(), BenchError>;
    /// Has it pause.
    fn stop(&mut self) -> Result<(), BenchError>;
    /// Operations per second of wall-clock time over the next `length`; it must have been set going. Calls `mark` at the begin and at
    /// the end of what it counts: a program that pauses between its operations has few in a moment or many.
    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64, BenchError>;

    /// Whether one of its threads does all that is counted: what others do meanwhile is not what an operation costs.
    fn works_in_one_thread(&self) -> bool {
        false
    }

    /// How long answers take to single questions that come at a fixed pace, asked while the program pauses otherwise;
    /// `None` where it answers no questions.
    fn latencies(&mut self, _pace: Pace) -> Result<Option<Latencies>, BenchError> {
        Ok(None)
    }
}

/// The programs that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A workload of ours that reads memory, as on the command line but for `--mib`.
    Reader {
        /// Its name in tables.
        name: &'static str,
        /// The workload and its options.
        words: &'static str,
    },
    /// Redis, asked for random keys.
    Redis,
    /// memcached, asked for random keys.
    Memcached,
    /// A hash map in a Java virtual machine, asked for random keys.
    JavaHashMap,
    /// PostgreSQL, asked by pgbench for random rows.
    Postgres,
    /// sparsehash's dense map, asked for random keys.
    Sparsehash,
    /// Conjugate gradients on a random sparse matrix, by SciPy.
    Cg,
    /// Multigrid in three dimensions, in NumPy.
    Mg,
    /// Breadth-first search and PageRank on a Kronecker graph, by SciPy.
    Graph,
    /// Joins and aggregations over a table in memory, by DuckDB.
    DuckDb,
}

const fn reader(name: &'static str, words: &'static str) -> Kind {
    Kind::Reader { name, words }
}

/// Those that estimates of overhead are tried on.
pub const NINE: [Kind; 9] = [
    reader("random", "random"),
    reader("zipf", "zipf"),
    reader("sequential", "sequential"),
    reader("stride 4 KiB", "stride --stride-bytes 4096"),
    reader("stride 64 KiB", "stride --stride-bytes 65536"),
    reader("pointer chase", "chase"),
    Kind::Redis,
    Kind::Memcached,
    Kind::JavaHashMap,
];

/// The programs that others wrote.
pub const REAL: [Kind; 9] = [
    Kind::Redis,
    Kind::Memcached,
    Kind::Postgres,
    Kind::JavaHashMap,
    Kind::Sparsehash,
    Kind::Cg,
    Kind::Mg,
    Kind::Graph,
    Kind::DuckDb,
];

impl Kind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reader { name, .. } => name,
            Self::Redis => "Redis",
            Self::Memcached => "memcached",
            Self::JavaHashMap => "JVM hash map",
            Self::Postgres => "PostgreSQL",
            Self::Sparsehash => "sparsehash",
            Self::Cg => "cg",
            Self::Mg => "mg",
            Self::Graph => "graph",
            Self::DuckDb => "DuckDB",
        }
    }

    /// What it counts, in the plural.
    pub fn operation(self) -> &'static str {
        match self {
            Self::Reader { .. } => "reads",
            Self::Redis | Self::Memcached => "answers",
            Self::JavaHashMap | Self::Sparsehash => "look-ups",
            Self::Postgres => "transactions",
            Self::Cg => "matrix entries",
            Self::Mg => "points smoothed",
            Self::Graph => "edges",
            Self::DuckDb => "rows",
        }
    }

    /// Starts it under base pages with about `mib` MiB of data, and waits until it has them. Packages
    /// that it takes and that are missing are installed. It does not work yet.
    pub fn start(self, host: &Host, mib: u64) -> Result<Box<dyn Program>, BenchError> {
        Ok(match self {
            Self::Reader { words, .. } => Box::new(reader::start(host, words, mib)?),
            Self::Redis | Self::Memcached | Self::JavaHashMap | Self::Sparsehash => {
                return self.start_hot(host, mib, Hot::UNIFORM);
            }
            Self::Postgres => Box::new(postgres::start(mib)?),
            Self::Cg => Box::new(python::start(Script::Cg, mib)?),
            Self::Mg => Box::new(python::start(Script::Mg, mib)?),
            Self::Graph => Box::new(python::start(Script::Graph, mib)?),
            Self::DuckDb => Box::new(python::start(Script::Analytics, mib)?),
        })
    }

    /// Starts it with a part of its keys asked for more than the others.
    ///
    /// # Errors
    /// As [`Self::start`], and it is none of those with keys ([`Self::has_keys`]).
    pub fn start_hot(
        self,
        host: &Host,
        mib: u64,
        hot: Hot,
    ) -> Result<Box<dyn Program>, BenchError> {
        Ok(match self {
            Self::Redis => Box::new(server::redis(
                host.command("ask"),
                mib,
                hot,
                server::Load::Full,
            )?),
            Self::Memcached => Box::new(server::memcached(host.command("ask"), mib, hot)?),
            Self::JavaHashMap => Box::new(hash_map::start(mib, hot)?),
            Self::Sparsehash => Box::new(sparsehash::start(mib, hot)?),
            _ => {
                let message = format!("{} has no keys of which a part could be hot", self.name());
                return Err(BenchError::Impossible(message));
            }
        })
    }

    /// Whether it is asked for keys, of which a part can be hot.
    pub fn has_keys(self) -> bool {
        matches!(
            self,
            Self::Redis | Self::Memcached | Self::JavaHashMap | Self::Sparsehash
        )
    }

    /// What it takes of memory for so much data, in bytes.
    pub fn resident_bytes(self, mib: u64) -> u64 {
        let bytes = mib << 20;
        // An interpreter with its libraries.
        let python = 96 << 20;
        match self {
            Self::Reader { .. } => bytes,
            // Their allocators round sizes up.
            Self::Redis | Self::Memcached => bytes * 3 / 2,
            // Its heap has room beside the table, and it has code.
            Self::JavaHashMap => bytes + (512 << 20),
            // Rounded down to a power of two.
            Self::Sparsehash => bytes,
            // The files are in the page cache, too.
            Self::Postgres => bytes * 2 + (64 << 20),
            Self::Cg | Self::Mg | Self::Graph => bytes * 5 / 4 + python,
            Self::DuckDb => bytes * 2 + python,
        }
    }
}

/// Has the kernel align memory that programs share between their processes, so that it can be made huge: before one
/// of them is started ([`Kind::Postgres`]).
pub fn allow_shared_huge_pages(host: &mut Host) -> Result<(), BenchError> {
    postgres::allow_huge_buffers(host)
}

/// Starts a workload of ours, given as on the command line of `program`, told to wait.
pub fn start_reader(program: &Path, words: &str) -> Result<Box<dyn Program>, BenchError> {
    let words = format!("workload {words} {}", reader::COUNTING);
    let workload = Workload::spawn(program, words.split_whitespace())?;
    Ok(Box::new(reader::Reader::ready(workload)?))
}

/// A workload of ours that is ready and waits.
pub(super) fn ready_reader(workload: Workload, pid: u32) -> Box<dyn Program> {
    Box::new(reader::Reader::of(workload, pid))
}

/// Starts Redis with `mib` MiB of data and hardly anything to do.
pub fn idle_redis(host: &Host, mib: u64) -> Result<Box<dyn Program>, BenchError> {
    Ok(Box::new(server::redis(
        host.command("ask"),
        mib,
        Hot::UNIFORM,
        server::Load::Light,
    )?))
}
