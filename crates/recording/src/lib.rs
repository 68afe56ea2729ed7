//! Recordings and results as Parquet files: what is in them, and how they are written and read.
//!
//! Two tables, each with its columns and version in one place ([`COVERAGE`], [`RESULTS`]; `docs/recordings.md`
//! explains them to whoever queries such files):
//!
//! - *coverage*: one row for each region of a process in each sampling window. The live manager and the simulated
//!   one write it alike, and the simulator reads it.
//! - *results*: one row for each program of each simulated run.
//! - *sizes*: one row for each page size of each such program.
//!
//! Files are read as a stream, some thousand rows at a time. Whatever is wrong with one is a [`RecordingError`]
//! that says where.
#![forbid(unsafe_code)]

mod coverage;
mod error;
mod reader;
mod results;
mod schema;
mod writer;

pub use coverage::{CoverageReader, CoverageRow, CoverageWriter};
pub use error::RecordingError;
pub use results::{ResultRow, ResultWriter, SizeRow, SizeWriter};
pub use schema::{COVERAGE, Column, RESULTS, SIZES, Table, Type};
