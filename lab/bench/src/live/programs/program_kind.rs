//! The programs that can be measured: their names, and what they count and need.

use crate::error::{BenchError, BenchResult, impossible};
use std::str::FromStr;

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

pub(crate) const fn reader_kind(name: &'static str, words: &'static str) -> ProgramKind {
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
