//! Recordings and results as Parquet files: what is in them, and how they are written and read.
//!
//! Tables, each with its columns and version in one place (`docs/recordings.md` explains them to whoever queries such files):
//!
//! - [`RECORDING`]: what was seen and done over time: coverage by region, processes, memory, decisions. The live manager and the
//!   simulated one write it alike, `hawkeye report` shows it, and the simulator replays it.
//! - [`RESULTS`]: one row for each program of each simulated run.
//! - [`SIZES`]: one row for each page size of each such program.
//!
//! ```text
//!  Manager --tap--> rows --> recorder --> recording_writer --> writer --> FILE.part/, a file a minute (parts)
//!                              `- at the end ----------------------------> FILE
//!
//!  FILE, or FILE.part/ --> recording_rows --> recording_reader --> reader --> rows
//!
//!  simulated runs --> results --> writer --> FILE
//! ```
//!
//! `schema` holds the tables. `writer` and `reader` know Parquet and any table; what begins with `recording` knows
//! the rows of a recording. Files are read as a stream, some thousand rows at a time. Whatever is wrong with one is
//! a [`RecordingError`] that says where.
#![forbid(unsafe_code)]

mod about;
mod error;
mod parts;
mod reader;
mod recorder;
mod recording_reader;
mod recording_rows;
mod recording_writer;
mod results;
mod rows;
mod schema;
mod tap;
mod writer;

pub use about::About;
pub use error::RecordingError;
pub use recorder::Recorder;
pub use recording_reader::RecordingReader;
pub use recording_rows::RecordingRows;
pub use recording_writer::RecordingWriter;
pub use results::{ResultRow, ResultWriter, SizeRow, SizeWriter};
pub use rows::{AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, Row};
pub use schema::{Column, RECORDING, RESULTS, SIZES, Table, Type};
pub use tap::Tap;
