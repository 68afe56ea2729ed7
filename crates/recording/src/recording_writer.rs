//! Writes recordings to a file, row by row.

use crate::about::About;
use crate::error::RecordingError;
use crate::rows::{CoverageRow, DecisionRow, MemoryRow, ProcessRow, Row};
use crate::schema::{RECORDING, column};
use crate::writer::{TableWriter, Value};
use hawkeye_policy::ProcessId;
use std::io::Write;
use std::time::Duration;

/// Writes observations and actions as they happen.
pub struct RecordingWriter<W: Write + Send> {
    table: TableWriter<W>,
    about: About,
}

/// Values of one row by column, in the order of the table.
struct Cells<'a>(Vec<Value<'a>>);

impl<'a> Cells<'a> {
    fn set(&mut self, column: usize, value: Value<'a>) {
        if let Some(cell) = self.0.get_mut(column) {
            *cell = value;
        }
    }
}

impl<W: Write + Send> RecordingWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn new(output: W, about: &About) -> Result<Self, RecordingError> {
        let ascending = ["time_us", "unix_us", "region_address"];
        Ok(Self {
            table: TableWriter::new(&RECORDING, &ascending, about.pairs(), output)?,
            about: about.clone(),
        })
    }

    /// Adds a row. Times must not go back.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub fn write(&mut self, row: &Row) -> Result<(), RecordingError> {
        let mut cells = Cells(vec![Value::Null; RECORDING.columns.len()]);
        cells.set(column!("time_us"), micros(row.at()));
        cells.set(column!("kind"), Value::Text(row.into()));
        if let Some(began) = self.about.began {
            cells.set(column!("unix_us"), micros(began + row.at()));
        }
        cells.set(column!("host"), Value::Text(&self.about.host));
        match row {
            Row::Region(row) => region(&mut cells, row),
            Row::Process(row) => process(&mut cells, row),
            Row::Memory(row) => memory(&mut cells, row),
            Row::Decision(row) => decision(&mut cells, row),
        }
        self.table.push(&cells.0)
    }

    /// Ends the file. Without that none of it can be read.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn finish(self) -> Result<W, RecordingError> {
        self.table.finish()
    }
}

fn micros(time: Duration) -> Value<'static> {
    Value::Int(time.as_micros() as u64)
}

fn or_null(value: Option<f64>) -> Value<'static> {
    value.map_or(Value::Null, Value::Float)
}

fn whose<'a>(cells: &mut Cells<'a>, process: ProcessId, command: &'a str) {
    cells.set(column!("pid"), Value::Int(process.pid.into()));
    cells.set(column!("start_ticks"), Value::Int(process.start_ticks));
    cells.set(column!("command"), Value::Text(command));
}

fn region<'a>(cells: &mut Cells<'a>, row: &'a CoverageRow) {
    whose(cells, row.process, &row.command);
    cells.set(column!("window_us"), micros(row.window));
    cells.set(column!("source"), Value::Text(row.source.name()));
    cells.set(column!("cpu_cores"), Value::Float(row.cpu_cores));
    cells.set(column!("overhead_percent"), or_null(row.overhead_percent));
    let region = &row.region;
    let pages = |count: u16| Value::Int(count.into());
    cells.set(column!("region_address"), Value::Int(region.region.start()));
    cells.set(column!("huge"), Value::Flag(region.is_huge()));
    cells.set(column!("present_pages"), pages(region.present));
    cells.set(column!("accessed_pages"), pages(region.accessed));
    cells.set(column!("accessed_runs"), pages(region.runs));
    cells.set(column!("written_pages"), pages(region.written));
    cells.set(column!("zero_pages"), pages(region.zero_mapped));
    cells.set(column!("swapped_pages"), pages(region.swapped));
    cells.set(
        column!("walks_per_s"),
        Value::Int(region.walks_per_s.into()),
    );
}

fn process<'a>(cells: &mut Cells<'a>, row: &'a ProcessRow) {
    whose(cells, row.process, &row.command);
    cells.set(column!("cpu_cores"), or_null(row.cpu_cores));
    cells.set(column!("overhead_percent"), or_null(row.overhead_percent));
    cells.set(column!("rss_bytes"), Value::Int(row.rss_bytes));
    cells.set(column!("huge_bytes"), Value::Int(row.huge_bytes));
    let bloat = row.bloat_bytes.map_or(Value::Null, Value::Int);
    cells.set(column!("bloat_bytes"), bloat);
}

fn memory(cells: &mut Cells, row: &MemoryRow) {
    cells.set(column!("used_bytes"), Value::Int(row.used_bytes));
    cells.set(column!("total_bytes"), Value::Int(row.total_bytes));
    cells.set(column!("pressure_percent"), or_null(row.pressure_percent));
    cells.set(column!("fmfi"), or_null(row.fmfi));
    cells.set(
        column!("manager_cpu_percent"),
        or_null(row.manager_cpu_percent),
    );
}

fn decision<'a>(cells: &mut Cells<'a>, row: &'a DecisionRow) {
    if let Some((process, command)) = &row.process {
        whose(cells, *process, command);
    }
    if let Some(region) = row.region {
        cells.set(column!("region_address"), Value::Int(region.start()));
    }
    cells.set(column!("event"), Value::Text(&row.event));
    cells.set(column!("reason"), Value::Text(&row.reason));
}
