//! Writes recordings to a file, row by row.

use crate::parquet_table_writer::{CellValue, ParquetTableWriter};
use crate::recording_error::RecordingError;
use crate::recording_metadata::RecordingMetadata;
use crate::row_types::{CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingRow};
use crate::schema::{RECORDING, column};
use hawkeye_policy::ProcessId;
use std::io::Write;
use std::time::Duration;

/// Writes observations and actions as they happen.
pub struct RecordingWriter<W: Write + Send> {
    table: ParquetTableWriter<W>,
    about: RecordingMetadata,
}

/// Values of one row by column, in the order of the table.
type RowCells<'a> = [CellValue<'a>];

impl<W: Write + Send> RecordingWriter<W> {
    /// Starts a file.
    pub fn new(output: W, about: &RecordingMetadata) -> Result<Self, RecordingError> {
        let (ascending, pairs) =
            (["time_us", "unix_us", "region_address", "file_index"], about.to_metadata_pairs());
        let table = ParquetTableWriter::new(&RECORDING, &ascending, pairs, output)?;
        Ok(Self { table, about: about.clone() })
    }

    /// Adds a row. Times must not go back.
    pub fn write_row(&mut self, row: &RecordingRow) -> Result<(), RecordingError> {
        let mut cells = vec![CellValue::Null; RECORDING.columns.len()];
        cells[column!("time_us")] = micros_cell(row.time_since_start());
        cells[column!("kind")] = CellValue::Text(row.into());
        if let Some(began) = self.about.began {
            cells[column!("unix_us")] = micros_cell(began + row.time_since_start());
        }
        cells[column!("host")] = CellValue::Text(&self.about.host);
        match row {
            RecordingRow::Region(row) => set_region_cells(&mut cells, row),
            RecordingRow::Process(row) => set_process_cells(&mut cells, row),
            RecordingRow::Memory(row) => set_memory_cells(&mut cells, row),
            RecordingRow::Decision(row) => set_decision_cells(&mut cells, row),
        }
        self.table.push_row(&cells)
    }

    /// Ends the file. Without that none of it can be read.
    pub fn finish(self) -> Result<W, RecordingError> {
        self.table.finish()
    }
}

fn micros_cell(time: Duration) -> CellValue<'static> {
    CellValue::Int(time.as_micros() as u64)
}

fn float_or_null_cell(value: Option<f64>) -> CellValue<'static> {
    value.map_or(CellValue::Null, CellValue::Float)
}

fn set_pid_and_command_cells<'a>(cells: &mut RowCells<'a>, process: ProcessId, command: &'a str) {
    cells[column!("pid")] = CellValue::Int(process.pid.into());
    cells[column!("start_ticks")] = CellValue::Int(process.start_ticks);
    cells[column!("command")] = CellValue::Text(command);
}

fn set_region_cells<'a>(cells: &mut RowCells<'a>, row: &'a CoverageRow) {
    set_pid_and_command_cells(cells, row.process, &row.command);
    cells[column!("window_us")] = micros_cell(row.window);
    cells[column!("source")] = CellValue::Text(row.source.name());
    cells[column!("cpu_cores")] = CellValue::Float(row.cpu_cores);
    cells[column!("overhead_percent")] = float_or_null_cell(row.overhead_percent);
    let region = &row.region;
    let pages = |count: u16| CellValue::Int(count.into());
    cells[column!("region_address")] = CellValue::Int(region.region.start());
    cells[column!("huge")] = CellValue::Flag(region.is_huge());
    cells[column!("present_pages")] = pages(region.present);
    cells[column!("accessed_pages")] = pages(region.accessed);
    cells[column!("accessed_runs")] = pages(region.runs);
    cells[column!("written_pages")] = pages(region.written);
    cells[column!("zero_pages")] = pages(region.zero_mapped);
    cells[column!("swapped_pages")] = pages(region.swapped);
    cells[column!("walks_per_s")] = CellValue::Int(region.walks_per_s.into());
    if let Some(file) = region.file {
        cells[column!("file_device")] = CellValue::Int(file.device.into());
        cells[column!("file_inode")] = CellValue::Int(file.inode);
        cells[column!("file_index")] = CellValue::Int(file.index.into());
    }
}

fn set_process_cells<'a>(cells: &mut RowCells<'a>, row: &'a ProcessRow) {
    set_pid_and_command_cells(cells, row.process, &row.command);
    cells[column!("cpu_cores")] = float_or_null_cell(row.cpu_cores);
    cells[column!("overhead_percent")] = float_or_null_cell(row.overhead_percent);
    cells[column!("rss_bytes")] = CellValue::Int(row.rss_bytes);
    cells[column!("huge_bytes")] = CellValue::Int(row.huge_bytes);
    cells[column!("bloat_bytes")] = row.bloat_bytes.map_or(CellValue::Null, CellValue::Int);
}

fn set_memory_cells(cells: &mut RowCells, row: &MemoryRow) {
    cells[column!("used_bytes")] = CellValue::Int(row.used_bytes);
    cells[column!("total_bytes")] = CellValue::Int(row.total_bytes);
    cells[column!("pressure_percent")] = float_or_null_cell(row.pressure_percent);
    cells[column!("fmfi")] = float_or_null_cell(row.fmfi);
    cells[column!("manager_cpu_percent")] = float_or_null_cell(row.manager_cpu_percent);
}

fn set_decision_cells<'a>(cells: &mut RowCells<'a>, row: &'a DecisionRow) {
    if let Some((process, command)) = &row.process {
        set_pid_and_command_cells(cells, *process, command);
    }
    if let Some(region) = row.region {
        cells[column!("region_address")] = CellValue::Int(region.start());
    }
    cells[column!("event")] = CellValue::Text(&row.event);
    cells[column!("reason")] = CellValue::Text(&row.reason);
}
