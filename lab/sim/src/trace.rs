//! Traces of memory accesses that other tools made, read as a stream: at most a few lines or
//! records of a trace are in memory at a time.
//!
//! | [`TraceFormat`] | made by | what it tells |
//! |---|---|---|
//! | `Lackey` | `valgrind --tool=lackey --trace-mem=yes` | every access and instruction, of all threads in one |
//! | `ChampSim` | ChampSim's tracers; 64 bytes an instruction, plain or `.xz` | instructions and addresses, no sizes |
//! | `Drmemtrace` | `drrun -t drmemtrace -tool view`, the text it prints | every access and instruction, with its thread |
//! | `PerfScript` | `perf script -F comm,pid,time,event,addr` of `perf mem record` | samples of accesses, with process and time |
//!
//! ```text
//!  a file --open, trace_format--> TraceReader --trace_line_reader--> a format's parser --+
//!  (xz or plain)                    |  ^        (or records of champsim)                 |
//!                                   |  `------------------ TraceAccess ------------------'
//!                                   `--> engine::trace_player, workloads::trace_workload
//! ```
//!
//! Read [`TraceReader`] first, then `lackey.rs`, the shortest format.
//!
//! [`CoverageRowReader`]s are this project's own format: coverage over time, as the live or the
//! simulated manager saw it, in Parquet.
//!
//! Drmemtrace's own files (`.zip`, `.raw`) are not read: their layout depends on the version of
//! DynamoRIO that wrote them. That version's view tool prints their content. ChampSim's CloudSuite
//! traces are not read either, because their records are longer.
//!
//! ```
//! use hawkeye_sim::trace::{AccessKind, BadRecordHandling, TraceReader, TraceFormat};
//!
//! let text = "I  0023c790,2\n S 1ffefffb8,8\n M 0421f000,4\n";
//! let trace = TraceReader::new(TraceFormat::Lackey, text.as_bytes(), BadRecordHandling::Fail);
//! let accesses = trace.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!((accesses[1].kind, accesses[1].address), (AccessKind::Store, 0x1_ffef_ffb8));
//! # Ok::<(), hawkeye_sim::trace::TraceError>(())
//! ```

mod champsim;
mod coverage_row_reader;
mod drmemtrace;
mod error;
mod lackey;
mod open;
mod parsed_line;
mod perf_script;
mod trace_access;
mod trace_format;
mod trace_line_reader;
mod trace_reader;

pub use coverage_row_reader::CoverageRowReader;
pub use error::{TraceError, TracePosition};
pub use trace_access::{AccessKind, TraceAccess};
pub use trace_format::TraceFormat;
pub use trace_reader::{BadRecordHandling, TraceReader};
