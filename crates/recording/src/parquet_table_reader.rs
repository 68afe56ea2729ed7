//! Reads rows of any table from a file, some thousand at a time.

use crate::recording_error::{RecordingError, Result};
use crate::schema::{ColumnType, TableSchema, metadata_value};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use std::panic::{AssertUnwindSafe, catch_unwind};

const BATCH_ROWS: usize = 4096;
/// Texts are cut after this many bytes. None that HawkEye writes is as long.
const MOST_TEXT_BYTES: usize = 1024;

enum TypedColumnReader {
    Int(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Float(ColumnReaderImpl<DoubleType>, Vec<f64>),
    Flag(ColumnReaderImpl<BoolType>, Vec<bool>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
}

struct DecodedColumn {
    source: TypedColumnReader,
    /// Definition levels: whether each row has a value. Empty where all have.
    levels: Vec<i16>,
    /// Index of each row's value among the values; empty where all rows have one.
    places: Vec<Option<usize>>,
}

/// The Parquet library trusts some figures of a file, and panics on damaged ones.
fn catch_parquet_panic<T>(row: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nothing is read after a panic: the error ends the reading.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(RecordingError::Read { row, message: "the file is damaged".to_owned() })
    })
}

fn read_batch_into<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<usize, ParquetError> {
    values.clear();
    let (rows, _, _) = reader.read_records(BATCH_ROWS, Some(levels), None, values)?;
    Ok(rows)
}

impl DecodedColumn {
    /// Decodes more rows; returns how many.
    fn decode_next_batch(&mut self) -> Result<usize, ParquetError> {
        self.levels.clear();
        let rows = self.source.read_next_batch(&mut self.levels)?;
        self.places.clear();
        let mut next = 0..;
        let places = self.levels.iter().map(|level| match level {
            0 => None,
            _ => next.next(),
        });
        self.places.extend(places);
        Ok(rows)
    }
}

impl TypedColumnReader {
    fn new(kind: ColumnType, reader: ColumnReader) -> Self {
        match kind {
            ColumnType::Int => Self::Int(get_typed_column_reader(reader), Vec::new()),
            ColumnType::Float => Self::Float(get_typed_column_reader(reader), Vec::new()),
            ColumnType::Flag => Self::Flag(get_typed_column_reader(reader), Vec::new()),
            ColumnType::Text => Self::Text(get_typed_column_reader(reader), Vec::new()),
        }
    }

    fn read_next_batch(&mut self, levels: &mut Vec<i16>) -> Result<usize, ParquetError> {
        match self {
            Self::Int(reader, values) => read_batch_into(reader, levels, values),
            Self::Float(reader, values) => read_batch_into(reader, levels, values),
            Self::Flag(reader, values) => read_batch_into(reader, levels, values),
            Self::Text(reader, values) => read_batch_into(reader, levels, values),
        }
    }
}

fn format_value_or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// The text up to the last whole character within the limit; `None` if it is not UTF-8.
fn cut_text(bytes: &[u8]) -> Option<&str> {
    let start = bytes.get(..MOST_TEXT_BYTES).unwrap_or(bytes);
    match std::str::from_utf8(start) {
        Ok(text) => Some(text),
        // The cut is within a character.
        Err(error) if error.error_len().is_none() && start.len() < bytes.len() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

pub(crate) struct ParquetTableReader<R: ChunkReader> {
    file: SerializedFileReader<R>,
    table: &'static TableSchema,
    /// Position of each of the table's columns in the file.
    places: Vec<usize>,
    next_group: usize,
    /// Rows of the open row group not decoded yet, according to its metadata.
    group_left: u64,
    columns: Vec<DecodedColumn>,
    /// The current row within the decoded ones, and their number.
    at: usize,
    decoded: usize,
    row: u64,
    started: bool,
}

impl<R: ChunkReader + 'static> ParquetTableReader<R> {
    pub(crate) fn new(table: &'static TableSchema, input: R) -> Result<Self> {
        let file = catch_parquet_panic(0, || {
            SerializedFileReader::new(input).map_err(RecordingError::NotParquet)
        })?;
        let places = table.column_positions_in_file(file.metadata().file_metadata())?;
        Ok(Self {
            file,
            table,
            places,
            next_group: 0,
            group_left: 0,
            columns: Vec::new(),
            at: 0,
            decoded: 0,
            row: 0,
            started: false,
        })
    }

    /// Goes to the next row; false at the end. After an error there are no further rows.
    pub(crate) fn advance_to_next_row(&mut self) -> Result<bool> {
        if self.started {
            self.row += 1;
            self.at += 1;
        }
        self.started = true;
        while self.at >= self.decoded {
            let more = catch_parquet_panic(self.row, || {
                let open = self.group_left > 0 || self.open_next_row_group()?;
                if open {
                    self.decode_next_batch()?;
                }
                Ok(open)
            })?;
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn error_at_current_row(&self, message: impl ToString) -> RecordingError {
        RecordingError::Read { row: self.row, message: message.to_string() }
    }

    fn open_next_row_group(&mut self) -> Result<bool> {
        if self.next_group >= self.file.num_row_groups() {
            return Ok(false);
        }
        let group = self.file.get_row_group(self.next_group);
        let group = group.map_err(|error| self.error_at_current_row(error))?;
        let rows = u64::try_from(group.metadata().num_rows())
            .map_err(|_| self.error_at_current_row("its row group has an invalid length"))?;
        let readers = self.places.iter().zip(self.table.columns).map(|(place, column)| {
            let source = TypedColumnReader::new(column.kind, group.get_column_reader(*place)?);
            Ok(DecodedColumn { source, levels: Vec::new(), places: Vec::new() })
        });
        let readers: Result<Vec<_>, ParquetError> = readers.collect();
        let readers = readers.map_err(|error| self.error_at_current_row(error))?;
        drop(group);
        self.columns = readers;
        self.group_left = rows;
        self.next_group += 1;
        Ok(true)
    }

    fn decode_next_batch(&mut self) -> Result<()> {
        let mut read = None;
        for index in 0..self.columns.len() {
            let rows = self.columns[index].decode_next_batch();
            let rows = rows.map_err(|error| self.error_at_current_row(error))?;
            if *read.get_or_insert(rows) != rows {
                return Err(self.error_at_current_row("its columns have different lengths"));
            }
        }
        let rows = read.unwrap_or(0);
        if rows == 0 && self.group_left > 0 || rows as u64 > self.group_left {
            return Err(
                self.error_at_current_row("its row group has another length than its header says")
            );
        }
        self.group_left -= rows as u64;
        self.at = 0;
        self.decoded = rows;
        Ok(())
    }

    /// A text of the file's metadata, cut if it is very long.
    pub(crate) fn metadata_value(&self, key: &str) -> Option<&str> {
        let value = metadata_value(self.file.metadata().file_metadata(), key)?;
        cut_text(value.as_bytes())
    }

    /// Position of this row's value of a column; `None` where it has none.
    fn locate_value(&self, column: usize) -> Option<(&TypedColumnReader, usize)> {
        let column = self.columns.get(column)?;
        let place = column.places.get(self.at).copied();
        Some((&column.source, place.unwrap_or(Some(self.at))?))
    }

    pub(crate) fn is_null_cell(&self, column: usize) -> bool {
        self.locate_value(column).is_none()
    }

    /// An integer of this row, at most `most`.
    pub(crate) fn int_in_row(
        &self,
        column: usize,
        most: u64,
        allowed: &'static str,
    ) -> Result<u64> {
        let value = match self.locate_value(column) {
            Some((TypedColumnReader::Int(_, values), place)) => values.get(place).copied(),
            _ => None,
        };
        let fits = value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value <= most);
        fits.ok_or_else(|| self.invalid_value_error(column, allowed, format_value_or_null(value)))
    }

    pub(crate) fn flag_in_row(&self, column: usize) -> bool {
        match self.locate_value(column) {
            Some((TypedColumnReader::Flag(_, values), place)) => values.get(place) == Some(&true),
            _ => false,
        }
    }

    /// A number of this row, at least 0.
    pub(crate) fn float_in_row(&self, column: usize) -> Result<f64> {
        let value = match self.locate_value(column) {
            Some((TypedColumnReader::Float(_, values), place)) => values.get(place).copied(),
            _ => None,
        };
        let fits = value.filter(|value| value.is_finite() && *value >= 0.0);
        let allowed = "finite and not negative";
        fits.ok_or_else(|| self.invalid_value_error(column, allowed, format_value_or_null(value)))
    }

    /// A text of this row, cut if it is very long; empty where it has no value.
    pub(crate) fn text_in_row(&self, column: usize) -> Result<&str> {
        let bytes = match self.locate_value(column) {
            Some((TypedColumnReader::Text(_, values), place)) => {
                values.get(place).map_or(&[][..], ByteArray::data)
            }
            _ => &[],
        };
        cut_text(bytes)
            .ok_or_else(|| self.invalid_value_error(column, "text in UTF-8", format!("{bytes:?}")))
    }

    pub(crate) fn invalid_value_error(
        &self,
        column: usize,
        allowed: &'static str,
        found: String,
    ) -> RecordingError {
        let column = self.table.columns.get(column).map_or("", |c| c.name);
        RecordingError::Value { row: self.row, column, allowed, found }
    }
}
