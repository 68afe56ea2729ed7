//! Recordings as Parquet files: their contents, and how they are written and read.
//!
//! [`RECORDING`] is the table of observations and actions over time: coverage by region, processes,
//! memory, decisions. The live manager and the simulated one write it. `hawkeye report` shows it,
//! and the simulator replays it. `docs/use/recordings.md` explains its columns.
//!
//! ```text
//!  Manager --recording_rows_from_manager--> rows --> recorder --> recording_writer
//!                                                    |       -> parquet_table_writer -> FILE.part/
//!                                                    |          (parts: a file a minute)
//!                                                    `- at the end -------------------> FILE
//!
//!  FILE, or FILE.part/ --> recording_rows --> recording_reader --> parquet_table_reader --> rows
//! ```
//!
//! `schema` holds the table. `parquet_table_writer` and `parquet_table_reader` handle Parquet and
//! any table; files named `recording_*` handle the rows of a recording. Files are read as a
//! stream, some thousand rows at a time. An error in a file is a [`RecordingError`] that gives its
//! position.
#![forbid(unsafe_code)]

mod parquet_table_reader;
mod parquet_table_writer;
mod part_files;
mod recorder;
mod recording_error;
mod recording_metadata;
mod recording_reader;
mod recording_rows;
mod recording_rows_from_manager;
mod recording_writer;
mod row_types;
mod schema;

pub use parquet_table_writer::{CellValue, ParquetTableWriter};
pub use recorder::Recorder;
pub use recording_error::RecordingError;
pub use recording_metadata::RecordingMetadata;
pub use recording_reader::RecordingReader;
pub use recording_rows::RecordingRows;
pub use recording_rows_from_manager::RecordingRowsFromManager;
pub use recording_writer::RecordingWriter;
pub use row_types::{AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingRow};
pub use schema::{ColumnSchema, ColumnType, RECORDING, TableSchema};
