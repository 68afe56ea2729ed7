//! The table that files contain.

use crate::recording_error::RecordingError;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{FileMetaData, KeyValue};

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// INT64.
    Int,
    /// DOUBLE.
    Float,
    /// BOOLEAN.
    Flag,
    /// BYTE_ARRAY, in UTF-8.
    Text,
}

impl ColumnType {
    fn parquet_type(self) -> PhysicalType {
        match self {
            Self::Int => PhysicalType::INT64,
            Self::Float => PhysicalType::DOUBLE,
            Self::Flag => PhysicalType::BOOLEAN,
            Self::Text => PhysicalType::BYTE_ARRAY,
        }
    }
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSchema {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Its storage type.
    pub kind: ColumnType,
    /// Whether it is null in rows of kinds that do not use it.
    pub optional: bool,
}

/// A table, as named in a file's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSchema {
    /// Its name, in the file's metadata under `hawkeye.table`.
    pub name: &'static str,
    /// Its version, under `hawkeye.version`. It rises by one whenever a column is removed or
    /// changes its meaning. A new column is no new version: readers find columns by name, and
    /// refuse a file that lacks one.
    pub version: u32,
    /// Its columns.
    pub columns: &'static [ColumnSchema],
}

impl ColumnSchema {
    const fn required_column(name: &'static str, kind: ColumnType) -> Self {
        Self { name, kind, optional: false }
    }

    const fn optional_column(name: &'static str, kind: ColumnType) -> Self {
        Self { name, kind, optional: true }
    }
}

/// Observations and actions over time. The column `kind` gives a row's kind. Rows are in order of
/// time; columns that a kind does not use are null in its rows.
pub const RECORDING: TableSchema = TableSchema {
    name: "recording",
    version: 1,
    columns: &[
        ColumnSchema::required_column("time_us", ColumnType::Int),
        ColumnSchema::required_column("kind", ColumnType::Text),
        ColumnSchema::optional_column("unix_us", ColumnType::Int),
        ColumnSchema::optional_column("host", ColumnType::Text),
        ColumnSchema::optional_column("pid", ColumnType::Int),
        ColumnSchema::optional_column("start_ticks", ColumnType::Int),
        ColumnSchema::optional_column("command", ColumnType::Text),
        ColumnSchema::optional_column("window_us", ColumnType::Int),
        ColumnSchema::optional_column("source", ColumnType::Text),
        ColumnSchema::optional_column("cpu_cores", ColumnType::Float),
        ColumnSchema::optional_column("overhead_percent", ColumnType::Float),
        ColumnSchema::optional_column("region_address", ColumnType::Int),
        ColumnSchema::optional_column("huge", ColumnType::Flag),
        ColumnSchema::optional_column("present_pages", ColumnType::Int),
        ColumnSchema::optional_column("accessed_pages", ColumnType::Int),
        ColumnSchema::optional_column("accessed_runs", ColumnType::Int),
        ColumnSchema::optional_column("written_pages", ColumnType::Int),
        ColumnSchema::optional_column("zero_pages", ColumnType::Int),
        ColumnSchema::optional_column("swapped_pages", ColumnType::Int),
        ColumnSchema::optional_column("walks_per_s", ColumnType::Int),
        ColumnSchema::optional_column("rss_bytes", ColumnType::Int),
        ColumnSchema::optional_column("huge_bytes", ColumnType::Int),
        ColumnSchema::optional_column("bloat_bytes", ColumnType::Int),
        ColumnSchema::optional_column("used_bytes", ColumnType::Int),
        ColumnSchema::optional_column("total_bytes", ColumnType::Int),
        ColumnSchema::optional_column("pressure_percent", ColumnType::Float),
        ColumnSchema::optional_column("fmfi", ColumnType::Float),
        ColumnSchema::optional_column("manager_cpu_percent", ColumnType::Float),
        ColumnSchema::optional_column("event", ColumnType::Text),
        ColumnSchema::optional_column("reason", ColumnType::Text),
        ColumnSchema::optional_column("file_device", ColumnType::Int),
        ColumnSchema::optional_column("file_inode", ColumnType::Int),
        ColumnSchema::optional_column("file_index", ColumnType::Int),
    ],
};

/// The index of a column of [`RECORDING`], found at compile time.
macro_rules! column {
    ($name:literal) => {
        const { $crate::schema::RECORDING.column_index($name) }
    };
}
pub(crate) use column;

const TABLE_KEY: &str = "hawkeye.table";
const VERSION_KEY: &str = "hawkeye.version";

pub(crate) fn metadata_value<'a>(file: &'a FileMetaData, key: &str) -> Option<&'a str> {
    let pairs = file.key_value_metadata().map_or(&[][..], Vec::as_slice);
    pairs.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref())
}

const fn is_equal_text(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl TableSchema {
    /// For use at compile time: a missing column stops the compilation.
    pub(crate) const fn column_index(&self, name: &str) -> usize {
        let mut at = 0;
        while !is_equal_text(self.columns[at].name, name) {
            at += 1;
        }
        at
    }

    pub(crate) fn parquet_message_type(&self) -> String {
        let fields = self.columns.iter().map(|column| {
            let repetition = if column.optional { "optional" } else { "required" };
            let logical = match column.kind {
                ColumnType::Text => " (UTF8)",
                _ => "",
            };
            let ColumnSchema { name, kind, .. } = column;
            format!("{repetition} {} {name}{logical};", kind.parquet_type())
        });
        let fields = fields.collect::<Vec<_>>().join(" ");
        format!("message {} {{ {fields} }}", self.name)
    }

    /// A file's metadata; `more` are further pairs.
    pub(crate) fn key_value_metadata(&self, more: Vec<(&str, String)>) -> Vec<KeyValue> {
        let own = [(TABLE_KEY, self.name.to_owned()), (VERSION_KEY, self.version.to_string())];
        let pairs = own.into_iter().chain(more);
        pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect()
    }

    /// Positions of the columns in a file; an error if the file is no readable file of this table.
    pub(crate) fn column_positions_in_file(
        &self,
        file: &FileMetaData,
    ) -> Result<Vec<usize>, RecordingError> {
        let value = |key: &str| metadata_value(file, key);
        let other = |found: String| RecordingError::OtherTable { found, wanted: self.name };
        let table = value(TABLE_KEY).ok_or_else(|| other("none of HawkEye's tables".to_owned()))?;
        if table != self.name {
            return Err(other(format!("the table {table:?}")));
        }
        let found = value(VERSION_KEY).and_then(|text| text.parse().ok());
        let found = found.ok_or_else(|| other(format!("a table {table:?} without a version")))?;
        if found > self.version {
            return Err(RecordingError::Newer { table: self.name, found, known: self.version });
        }
        let there = file.schema_descr();
        let places = self.columns.iter().map(|column| {
            let wrong =
                |problem| RecordingError::Column { table: self.name, column: column.name, problem };
            let mut places = there.columns().iter();
            let place = places.position(|found| found.path().string() == column.name);
            let place = place.ok_or_else(|| wrong("is missing"))?;
            let found = there.column(place);
            if found.physical_type() != column.kind.parquet_type() {
                return Err(wrong("has the wrong type"));
            }
            if found.max_def_level() > i16::from(column.optional) || found.max_rep_level() > 0 {
                return Err(wrong("is nullable or repeated"));
            }
            Ok(place)
        });
        places.collect()
    }
}
