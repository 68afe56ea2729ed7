//! Reads recordings from a file, row by row.

use crate::parquet_table_reader::ParquetTableReader;
use crate::recording_error::{RecordingError, Result};
use crate::recording_metadata::RecordingMetadata;
use crate::row_types::{
    AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingRow,
};
use crate::schema::{RECORDING, column};
use hawkeye_policy::{
    FileRegion, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, ProcessId, RegionAddr, RegionSample,
};
use parquet::file::reader::ChunkReader;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reads a recording row by row. Some thousand rows are in memory at a time.
///
/// After an invalid value ([`RecordingError::Value`]) reading continues with the next row; after
/// any other error it ends. Rows of unknown kinds are skipped.
pub struct RecordingReader<R: ChunkReader> {
    table: ParquetTableReader<R>,
    about: RecordingMetadata,
    /// The command of the last row, which usually is the next one's too.
    command: Arc<str>,
    last: Duration,
    ended: bool,
}

impl RecordingReader<File> {
    /// Opens a file.
    ///
    /// It cannot be opened, or is no recording that this version knows.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)
            .map_err(|error| RecordingError::Open { path: path.to_owned(), error })?;
        Self::new(file)
    }
}

const PAGES: &str = "0 to 512";
const BYTES: &str = "a number of bytes";
const TIME: &str = "a time in microseconds";
/// Linux gives user space at most 56 bits of address, with page tables of 5 levels.
const LAST_REGION: u64 = (1 << 56) - HUGE_PAGE_BYTES;
/// The largest microseconds of a [`Duration`] and the largest tick count here: 290,000 years.
const MOST: u64 = i64::MAX as u64;

impl<R: ChunkReader + 'static> RecordingReader<R> {
    /// Reads a file, or any other source that Parquet can be read from.
    pub fn new(input: R) -> Result<Self> {
        let table = ParquetTableReader::new(&RECORDING, input)?;
        Ok(Self {
            about: RecordingMetadata::from_table_metadata(&table),
            table,
            command: Arc::from(""),
            last: Duration::ZERO,
            ended: false,
        })
    }

    /// The origin of the recording.
    pub fn origin(&self) -> &RecordingMetadata {
        &self.about
    }

    fn read_time(&self, column: usize) -> Result<Duration> {
        self.table.int_in_row(column, MOST, TIME).map(Duration::from_micros)
    }

    fn read_byte_count(&self, column: usize) -> Result<u64> {
        self.table.int_in_row(column, MOST, BYTES)
    }

    fn read_unless_null<T>(
        &self,
        column: usize,
        read: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let there = !self.table.is_null_cell(column);
        there.then(read).transpose()
    }

    fn read_float_unless_null(&self, column: usize) -> Result<Option<f64>> {
        self.read_unless_null(column, || self.table.float_in_row(column))
    }

    fn read_row(&mut self) -> Result<Option<RecordingRow>> {
        let at = self.read_time(column!("time_us"))?;
        if at < self.last {
            let found = at.as_micros().to_string();
            let allowed = "no earlier than in the row before";
            return Err(self.table.invalid_value_error(column!("time_us"), allowed, found));
        }
        let command = self.table.text_in_row(column!("command"))?;
        if *command != *self.command {
            self.command = Arc::from(command);
        }
        let row = match self.table.text_in_row(column!("kind"))? {
            "region" => RecordingRow::Region(self.read_region_row(at)?),
            "process" => RecordingRow::Process(self.read_process_row(at)?),
            "memory" => RecordingRow::Memory(self.read_memory_row(at)?),
            "decision" => RecordingRow::Decision(self.read_decision_row(at)?),
            _ => return Ok(None),
        };
        self.last = at;
        Ok(Some(row))
    }

    fn read_process_id(&self) -> Result<ProcessId> {
        let table = &self.table;
        Ok(ProcessId {
            pid: table.int_in_row(column!("pid"), u32::MAX.into(), "a process id")? as u32,
            start_ticks: table.int_in_row(column!("start_ticks"), MOST, "0 or more")?,
        })
    }

    fn read_region_address(&self) -> Result<RegionAddr> {
        let column = column!("region_address");
        let allowed = "an address of user space, a multiple of 2 MiB";
        let address = self.table.int_in_row(column, LAST_REGION, allowed)?;
        let region = RegionAddr::containing(address);
        if region.start() == address {
            return Ok(region);
        }
        Err(self.table.invalid_value_error(column, allowed, address.to_string()))
    }

    fn read_region_row(&self, at: Duration) -> Result<CoverageRow> {
        let table = &self.table;
        let source = table.text_in_row(column!("source"))?;
        let source: AccessSource = source.parse().map_err(|_| {
            let allowed = "access-bits, probed, estimated or population";
            table.invalid_value_error(column!("source"), allowed, format!("{source:?}"))
        })?;
        let pages = |column| {
            let count = table.int_in_row(column, PAGES_PER_REGION.into(), PAGES)?;
            Ok::<_, RecordingError>(count as u16)
        };
        let walks = column!("walks_per_s");
        Ok(CoverageRow {
            at,
            window: self.read_time(column!("window_us"))?,
            source,
            process: self.read_process_id()?,
            command: Arc::clone(&self.command),
            cpu_cores: table.float_in_row(column!("cpu_cores"))?,
            overhead_percent: self.read_float_unless_null(column!("overhead_percent"))?,
            region: RegionSample {
                region: self.read_region_address()?,
                order: PageOrder::base_or_huge(table.flag_in_row(column!("huge"))),
                present: pages(column!("present_pages"))?,
                accessed: pages(column!("accessed_pages"))?,
                runs: pages(column!("accessed_runs"))?,
                written: pages(column!("written_pages"))?,
                zero_mapped: pages(column!("zero_pages"))?,
                maybe_shared: 0,
                swapped: pages(column!("swapped_pages"))?,
                walks_per_s: table.int_in_row(walks, u32::MAX.into(), "0 to 4294967295")? as u32,
                touches_per_s: None,
                freed: 0,
                file: self.read_file_region()?,
            },
        })
    }

    /// `None`: private memory.
    fn read_file_region(&self) -> Result<Option<FileRegion>> {
        let (inode, table) = (column!("file_inode"), &self.table);
        let small = |column| {
            let number = table.int_in_row(column, u32::MAX.into(), "0 to 4294967295")?;
            Ok::<_, RecordingError>(number as u32)
        };
        self.read_unless_null(inode, || {
            Ok(FileRegion {
                inode: table.int_in_row(inode, MOST, "0 or more")?,
                device: small(column!("file_device"))?,
                index: small(column!("file_index"))?,
            })
        })
    }

    fn read_process_row(&self, at: Duration) -> Result<ProcessRow> {
        let bloat = column!("bloat_bytes");
        Ok(ProcessRow {
            at,
            process: self.read_process_id()?,
            command: Arc::clone(&self.command),
            cpu_cores: self.read_float_unless_null(column!("cpu_cores"))?,
            overhead_percent: self.read_float_unless_null(column!("overhead_percent"))?,
            rss_bytes: self.read_byte_count(column!("rss_bytes"))?,
            huge_bytes: self.read_byte_count(column!("huge_bytes"))?,
            bloat_bytes: self.read_unless_null(bloat, || self.read_byte_count(bloat))?,
        })
    }

    fn read_memory_row(&self, at: Duration) -> Result<MemoryRow> {
        Ok(MemoryRow {
            at,
            used_bytes: self.read_byte_count(column!("used_bytes"))?,
            total_bytes: self.read_byte_count(column!("total_bytes"))?,
            pressure_percent: self.read_float_unless_null(column!("pressure_percent"))?,
            fmfi: self.read_float_unless_null(column!("fmfi"))?,
            manager_cpu_percent: self.read_float_unless_null(column!("manager_cpu_percent"))?,
        })
    }

    fn read_decision_row(&self, at: Duration) -> Result<DecisionRow> {
        let process = self.read_unless_null(column!("pid"), || self.read_process_id())?;
        Ok(DecisionRow {
            at,
            process: process.map(|process| (process, Arc::clone(&self.command))),
            region: self
                .read_unless_null(column!("region_address"), || self.read_region_address())?,
            event: self.table.text_in_row(column!("event"))?.into(),
            reason: self.table.text_in_row(column!("reason"))?.into(),
        })
    }
}

impl<R: ChunkReader + 'static> Iterator for RecordingReader<R> {
    type Item = Result<RecordingRow>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.table.advance_to_next_row() {
                Ok(true) => match self.read_row() {
                    Ok(Some(row)) => return Some(Ok(row)),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                },
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
