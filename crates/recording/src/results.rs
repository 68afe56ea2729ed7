//! Results of simulated runs.

use crate::error::RecordingError;
use crate::schema::{RESULTS, SIZES};
use crate::writer::{TableWriter, Value};
use std::io::Write;

/// One program of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultRow<'a> {
    /// The workload.
    pub workload: &'a str,
    /// The system.
    pub system: &'a str,
    /// What was varied, as a dotted key; empty where nothing was.
    pub parameter: &'a str,
    /// Its value, as it was given.
    pub value: &'a str,
    /// The seed.
    pub seed: u64,
    /// The program.
    pub program: &'a str,
    /// How it ended: done, killed or unfinished.
    pub outcome: &'a str,
    /// From its start to its end, in seconds.
    pub wall_s: f64,
    /// Accesses that it made.
    pub accesses: f64,
    /// Share of its cycles in page walks, in per cent.
    pub overhead_percent: f64,
    /// Page faults.
    pub faults: u64,
    /// Time that it waited for the kernel, in seconds.
    pub system_s: f64,
    /// Largest resident memory, in bytes.
    pub rss_peak_bytes: u64,
    /// Largest memory under huge pages, in bytes.
    pub huge_peak_bytes: u64,
    /// Regions promoted, of the whole run.
    pub promoted: u64,
    /// Huge pages split, of the whole run.
    pub split: u64,
    /// Memory recovered, in bytes, of the whole run.
    pub recovered_bytes: u64,
    /// CPU time of the manager, in seconds, of the whole run.
    pub manager_cpu_s: f64,
    /// CPU time of the thread that zeroes free memory, in seconds, of the whole run.
    pub zeroing_cpu_s: f64,
}

/// Writes results.
pub struct ResultWriter<W: Write + Send> {
    table: TableWriter<W>,
}

impl<W: Write + Send> ResultWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// It can't be written to.
    pub fn new(output: W) -> Result<Self, RecordingError> {
        let table = TableWriter::new(&RESULTS, &[], Vec::new(), output)?;
        Ok(Self { table })
    }

    /// Adds a program.
    ///
    /// # Errors
    /// The file can't be written to.
    pub fn write(&mut self, row: &ResultRow) -> Result<(), RecordingError> {
        self.table.push(&[
            Value::Text(row.workload),
            Value::Text(row.system),
            Value::Text(row.parameter),
            Value::Text(row.value),
            Value::Int(row.seed),
            Value::Text(row.program),
            Value::Text(row.outcome),
            Value::Float(row.wall_s),
            Value::Float(row.accesses),
            Value::Float(row.overhead_percent),
            Value::Int(row.faults),
            Value::Float(row.system_s),
            Value::Int(row.rss_peak_bytes),
            Value::Int(row.huge_peak_bytes),
            Value::Int(row.promoted),
            Value::Int(row.split),
            Value::Int(row.recovered_bytes),
            Value::Float(row.manager_cpu_s),
            Value::Float(row.zeroing_cpu_s),
        ])
    }

    /// Ends the file: without that nothing of it can be read.
    ///
    /// # Errors
    /// It can't be written to.
    pub fn finish(self) -> Result<W, RecordingError> {
        self.table.finish()
    }
}

/// Pages of one size of one program of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeRow<'a> {
    /// The workload.
    pub workload: &'a str,
    /// The system.
    pub system: &'a str,
    /// What was varied, as a dotted key; empty where nothing was.
    pub parameter: &'a str,
    /// Its value, as it was given.
    pub value: &'a str,
    /// The seed.
    pub seed: u64,
    /// The program.
    pub program: &'a str,
    /// The size, in bytes.
    pub page_bytes: u64,
    /// First touches that mapped one.
    pub faults: u64,
    /// First touches that should have, and got a smaller one.
    pub fallbacks: u64,
    /// Memory mapped by them at the program's end, in bytes.
    pub mapped_end_bytes: u64,
    /// The same on average over its time, in bytes.
    pub mapped_mean_bytes: u64,
}

/// Writes pages by size.
pub struct SizeWriter<W: Write + Send> {
    table: TableWriter<W>,
}

impl<W: Write + Send> SizeWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// It can't be written to.
    pub fn new(output: W) -> Result<Self, RecordingError> {
        let table = TableWriter::new(&SIZES, &[], Vec::new(), output)?;
        Ok(Self { table })
    }

    /// Adds a size of a program.
    ///
    /// # Errors
    /// The file can't be written to.
    pub fn write(&mut self, row: &SizeRow) -> Result<(), RecordingError> {
        self.table.push(&[
            Value::Text(row.workload),
            Value::Text(row.system),
            Value::Text(row.parameter),
            Value::Text(row.value),
            Value::Int(row.seed),
            Value::Text(row.program),
            Value::Int(row.page_bytes),
            Value::Int(row.faults),
            Value::Int(row.fallbacks),
            Value::Int(row.mapped_end_bytes),
            Value::Int(row.mapped_mean_bytes),
        ])
    }

    /// Ends the file: without that nothing of it can be read.
    ///
    /// # Errors
    /// It can't be written to.
    pub fn finish(self) -> Result<W, RecordingError> {
        self.table.finish()
    }
}
