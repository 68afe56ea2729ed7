//! Writes rows of any table to a file.

use crate::recording_error::RecordingError;
use crate::schema::{ColumnSchema, ColumnType, TableSchema};
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::Write;
use std::sync::Arc;

/// Number of rows written together. Rows short of this are in memory, and a crash loses them.
const GROUP_ROWS: usize = 1 << 16;

/// One value of a row, of the [`ColumnType`] with the same name.
#[derive(Clone, Copy, Debug)]
pub enum CellValue<'a> {
    /// Written as at most `i64::MAX`.
    Int(u64),
    /// A number.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// A text.
    Text(&'a str),
    /// No value, in an optional column.
    Null,
}

#[derive(Debug)]
struct PendingColumn {
    values: ColumnValues,
    /// Whether each row has a value: Parquet's definition levels; `None` where all have.
    levels: Option<Vec<i16>>,
}

#[derive(Debug)]
enum ColumnValues {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>),
}

impl ColumnValues {
    fn new(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Int => Self::Int(Vec::new()),
            ColumnType::Float => Self::Float(Vec::new()),
            ColumnType::Flag => Self::Flag(Vec::new()),
            ColumnType::Text => Self::Text(Vec::new()),
        }
    }
}

impl PendingColumn {
    fn new(column: &ColumnSchema) -> Self {
        Self { values: ColumnValues::new(column.kind), levels: column.optional.then(Vec::new) }
    }

    fn push_cell(&mut self, value: CellValue) {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(!matches!(value, CellValue::Null)));
        }
        match (&mut self.values, value) {
            // No recorded value exceeds 63 bits.
            (ColumnValues::Int(column), CellValue::Int(value)) => {
                column.push(i64::try_from(value).unwrap_or(i64::MAX));
            }
            (ColumnValues::Float(column), CellValue::Float(value)) => column.push(value),
            (ColumnValues::Flag(column), CellValue::Flag(value)) => column.push(value),
            (ColumnValues::Text(column), CellValue::Text(value)) => column.push(value.into()),
            (_, CellValue::Null) if self.levels.is_some() => {}
            (column, value) => debug_assert!(false, "{value:?} in a column {column:?}"),
        }
    }

    fn write_to_row_group<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        let levels = self.levels.as_deref();
        match &self.values {
            ColumnValues::Int(all) => column.typed::<Int64Type>().write_batch(all, levels, None),
            ColumnValues::Float(all) => column.typed::<DoubleType>().write_batch(all, levels, None),
            ColumnValues::Flag(all) => column.typed::<BoolType>().write_batch(all, levels, None),
            ColumnValues::Text(all) => {
                column.typed::<ByteArrayType>().write_batch(all, levels, None)
            }
        }?;
        column.close()?;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        match &mut self.values {
            ColumnValues::Int(values) => values.clear(),
            ColumnValues::Float(values) => values.clear(),
            ColumnValues::Flag(values) => values.clear(),
            ColumnValues::Text(values) => values.clear(),
        }
        self.levels.iter_mut().for_each(Vec::clear);
    }
}

/// Writes the rows of a table.
pub struct ParquetTableWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    pending: Vec<PendingColumn>,
    rows: usize,
}

impl<W: Write + Send> ParquetTableWriter<W> {
    /// Starts a file. `ascending` are columns with values that usually differ little from the row
    /// before. `about` is further metadata, besides the table's name and version.
    pub fn new(
        table: &TableSchema,
        ascending: &[&str],
        about: Vec<(&str, String)>,
        output: W,
    ) -> Result<Self, RecordingError> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("hawkeye ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(table.key_value_metadata(about)));
        for column in ascending {
            let path = ColumnPath::from(*column);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let schema =
            parse_message_type(&table.parquet_message_type()).map_err(RecordingError::Write)?;
        let file = SerializedFileWriter::new(output, Arc::new(schema), properties.build().into());
        Ok(Self {
            file: file.map_err(RecordingError::Write)?,
            pending: table.columns.iter().map(PendingColumn::new).collect(),
            rows: 0,
        })
    }

    /// Adds a row: a value for each column, in the table's order.
    pub fn push_row(&mut self, row: &[CellValue]) -> Result<(), RecordingError> {
        debug_assert_eq!(row.len(), self.pending.len());
        for (column, value) in self.pending.iter_mut().zip(row) {
            column.push_cell(*value);
        }
        self.rows += 1;
        if self.rows < GROUP_ROWS {
            return Ok(());
        }
        self.write_pending_rows()
    }

    fn write_pending_rows(&mut self) -> Result<(), RecordingError> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        self.write_row_group().map_err(RecordingError::Write)
    }

    fn write_row_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.pending {
            column.write_to_row_group(&mut group)?;
        }
        group.close()?;
        self.file.flush().map_err(|e| ParquetError::External(Box::new(e)))
    }

    /// Writes the rest and the file's directory, without which nothing can be read.
    pub fn finish(mut self) -> Result<W, RecordingError> {
        self.write_pending_rows()?;
        self.file.into_inner().map_err(RecordingError::Write)
    }
}
