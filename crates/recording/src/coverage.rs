//! Coverage over time.

use crate::error::RecordingError;
use crate::reader::TableReader;
use crate::schema::COVERAGE;
use crate::writer::{TableWriter, Value};
use hawkeye_policy::{
    CoverageSource, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, ProcessId, ProcessSample,
    RegionAddr, RegionSample,
};
use parquet::file::reader::ChunkReader;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One region in one sampling window.
#[derive(Clone, Debug, PartialEq)]
pub struct CoverageRow {
    /// When the window ended, since recording began.
    pub at: Duration,
    /// How long it was.
    pub window: Duration,
    /// How trustworthy the access figures are.
    pub source: CoverageSource,
    /// Whose region.
    pub process: ProcessId,
    /// The process's command.
    pub command: Arc<str>,
    /// CPU time that the process used, in cores.
    pub cpu_cores: f64,
    /// What translation cost it, in per cent of its time, where that could be found out.
    pub overhead_percent: Option<f64>,
    /// The region.
    pub region: RegionSample,
}

const SOURCES: [(CoverageSource, &str); 3] = [
    (CoverageSource::AccessBits, "access-bits"),
    (CoverageSource::Estimated, "estimated"),
    (CoverageSource::Population, "population"),
];

/// Writes coverage as it is sampled.
pub struct CoverageWriter<W: Write + Send> {
    table: TableWriter<W>,
}

impl<W: Write + Send> CoverageWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// It can't be written to.
    pub fn new(output: W) -> Result<Self, RecordingError> {
        let ascending = ["time_us", "region_address"];
        let table = TableWriter::new(&COVERAGE, &ascending, output)?;
        Ok(Self { table })
    }

    /// Adds a process's sample, of a window that ended `at`, since recording began.
    ///
    /// # Errors
    /// The file can't be written to.
    pub fn write(
        &mut self,
        at: Duration,
        window: Duration,
        command: &str,
        sample: &ProcessSample,
    ) -> Result<(), RecordingError> {
        let source = SOURCES.iter().find(|(source, _)| *source == sample.source);
        let source = source.map_or("", |(_, name)| name);
        let overhead = sample.overhead.map_or(f64::NAN, |found| found.percent);
        let micros = |time: Duration| Value::Int(time.as_micros() as u64);
        let pages = |count: u16| Value::Int(count.into());
        for region in &sample.regions {
            self.table.push(&[
                micros(at),
                micros(window),
                Value::Text(source),
                Value::Int(sample.process.pid.into()),
                Value::Int(sample.process.start_ticks),
                Value::Text(command),
                Value::Float(sample.cpu_cores),
                Value::Float(overhead),
                Value::Int(region.region.start()),
                Value::Flag(region.is_huge()),
                pages(region.present),
                pages(region.accessed),
                pages(region.runs),
                pages(region.written),
                pages(region.zero_mapped),
                pages(region.swapped),
                Value::Int(region.walks_per_s.into()),
            ])?;
        }
        Ok(())
    }

    /// Ends the file: without that nothing of it can be read.
    ///
    /// # Errors
    /// It can't be written to.
    pub fn finish(self) -> Result<W, RecordingError> {
        self.table.finish()
    }
}

/// Reads coverage row by row. Some thousand rows are in memory at a time.
///
/// After a value that can't be ([`RecordingError::Value`]) the next row follows; after any other error nothing does.
pub struct CoverageReader<R: ChunkReader> {
    table: TableReader<R>,
    /// The last row's, which is mostly the next one's too.
    command: Arc<str>,
    last: Duration,
    ended: bool,
}

impl CoverageReader<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// It can't be opened, or is none with coverage that this version knows.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|source| RecordingError::Open {
            path: path.to_owned(),
            source,
        })?;
        Self::new(file)
    }
}

const PAGES: &str = "0 to 512";
/// Linux gives user space no more than 56 bits, on any x86-64 processor.
const LAST_REGION: u64 = (1 << 56) - HUGE_PAGE_BYTES;
/// The most that a [`Duration`] of microseconds and a tick count can be here: 290,000 years.
const MOST: u64 = i64::MAX as u64;

impl<R: ChunkReader + 'static> CoverageReader<R> {
    /// Reads a file, or whatever else Parquet can be read from.
    ///
    /// # Errors
    /// It is none with coverage that this version knows.
    pub fn new(input: R) -> Result<Self, RecordingError> {
        Ok(Self {
            table: TableReader::new(&COVERAGE, input)?,
            command: Arc::from(""),
            last: Duration::ZERO,
            ended: false,
        })
    }

    /// The number of the row that was read last, from 0.
    pub fn row(&self) -> u64 {
        self.table.row()
    }

    fn decoded(&mut self) -> Result<CoverageRow, RecordingError> {
        let table = &self.table;
        let mut columns = 0..COVERAGE.columns.len();
        // In the order of the table.
        let mut next = || columns.next().unwrap_or(usize::MAX);
        let time = |column, allowed| {
            let micros = table.int(column, MOST, allowed)?;
            Ok::<_, RecordingError>(Duration::from_micros(micros))
        };
        let at_column = next();
        let at = time(at_column, "a time in microseconds")?;
        if at < self.last {
            let found = at.as_micros().to_string();
            return Err(table.refused(at_column, "no earlier than in the row before", found));
        }
        let window = time(next(), "a time in microseconds")?;
        let source_column = next();
        let name = table.text(source_column)?;
        let source = SOURCES.iter().find(|(_, known)| *known == name);
        let (source, _) = source.ok_or_else(|| {
            let allowed = "access-bits, estimated or population";
            table.refused(source_column, allowed, format!("{name:?}"))
        })?;
        let process = ProcessId {
            pid: table.int(next(), u32::MAX.into(), "a process id")? as u32,
            start_ticks: table.int(next(), MOST, "0 or more")?,
        };
        let command = table.text(next())?;
        if *command != *self.command {
            self.command = Arc::from(command);
        }
        let cpu_cores = table.float(next(), false)?;
        let overhead = table.float(next(), true)?;
        let region_column = next();
        let allowed = "an address of user space, a multiple of 2 MiB";
        let address = table.int(region_column, LAST_REGION, allowed)?;
        let region = RegionAddr::containing(address);
        if region.start() != address {
            return Err(table.refused(region_column, allowed, address.to_string()));
        }
        let huge = table.flag(next());
        let mut pages = || Ok(table.int(next(), PAGES_PER_REGION.into(), PAGES)? as u16);
        let region = RegionSample {
            region,
            order: PageOrder::of_region(huge),
            present: pages()?,
            accessed: pages()?,
            runs: pages()?,
            written: pages()?,
            zero_mapped: pages()?,
            swapped: pages()?,
            walks_per_s: table.int(next(), u32::MAX.into(), "0 to 4294967295")? as u32,
        };
        self.last = at;
        Ok(CoverageRow {
            at,
            window,
            source: *source,
            process,
            command: self.command.clone(),
            cpu_cores,
            overhead_percent: Some(overhead).filter(|percent| !percent.is_nan()),
            region,
        })
    }
}

impl<R: ChunkReader + 'static> Iterator for CoverageReader<R> {
    type Item = Result<CoverageRow, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.table.advance() {
            Ok(true) => Some(self.decoded()),
            Ok(false) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }
}
