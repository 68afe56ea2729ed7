//! The table that files contain.

use crate::error::RecordingError;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{FileMetaData, KeyValue};

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// INT64.
    Int,
    /// DOUBLE.
    Float,
    /// BOOLEAN.
    Flag,
    /// BYTE_ARRAY, in UTF-8.
    Text,
}

impl Type {
    fn physical(self) -> PhysicalType {
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
pub struct Column {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Its storage type.
    pub kind: Type,
    /// Whether it is null in rows of kinds that do not use it.
    pub optional: bool,
}

/// A table, as named in a file's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, in the file's metadata under `hawkeye.table`.
    pub name: &'static str,
    /// Its version, under `hawkeye.version`. It rises by one whenever a column is removed or
    /// changes its meaning. A new column is no new version, because readers find columns by name.
    pub version: u32,
    /// Its columns.
    pub columns: &'static [Column],
}

impl Column {
    const fn required(name: &'static str, kind: Type) -> Self {
        Self {
            name,
            kind,
            optional: false,
        }
    }

    const fn optional(name: &'static str, kind: Type) -> Self {
        Self {
            optional: true,
            ..Self::required(name, kind)
        }
    }
}

/// Observations and actions over time. The column `kind` gives a row's kind. Rows are in order of
/// time; columns that a kind does not use are null in its rows.
pub const RECORDING: Table = Table {
    name: "recording",
    version: 1,
    columns: &[
        Column::required("time_us", Type::Int),
        Column::required("kind", Type::Text),
        Column::optional("unix_us", Type::Int),
        Column::optional("host", Type::Text),
        Column::optional("pid", Type::Int),
        Column::optional("start_ticks", Type::Int),
        Column::optional("command", Type::Text),
        Column::optional("window_us", Type::Int),
        Column::optional("source", Type::Text),
        Column::optional("cpu_cores", Type::Float),
        Column::optional("overhead_percent", Type::Float),
        Column::optional("region_address", Type::Int),
        Column::optional("huge", Type::Flag),
        Column::optional("present_pages", Type::Int),
        Column::optional("accessed_pages", Type::Int),
        Column::optional("accessed_runs", Type::Int),
        Column::optional("written_pages", Type::Int),
        Column::optional("zero_pages", Type::Int),
        Column::optional("swapped_pages", Type::Int),
        Column::optional("walks_per_s", Type::Int),
        Column::optional("rss_bytes", Type::Int),
        Column::optional("huge_bytes", Type::Int),
        Column::optional("bloat_bytes", Type::Int),
        Column::optional("used_bytes", Type::Int),
        Column::optional("total_bytes", Type::Int),
        Column::optional("pressure_percent", Type::Float),
        Column::optional("fmfi", Type::Float),
        Column::optional("manager_cpu_percent", Type::Float),
        Column::optional("event", Type::Text),
        Column::optional("reason", Type::Text),
    ],
};

/// The index of a column of [`RECORDING`], found at compile time.
macro_rules! column {
    ($name:literal) => {
        const { $crate::schema::RECORDING.place($name) }
    };
}
pub(crate) use column;

const TABLE_KEY: &str = "hawkeye.table";
const VERSION_KEY: &str = "hawkeye.version";

/// A file's metadata under a key.
pub(crate) fn said<'a>(file: &'a FileMetaData, key: &str) -> Option<&'a str> {
    let pairs = file.key_value_metadata().map_or(&[][..], Vec::as_slice);
    let found = pairs.iter().find(|pair| pair.key == key);
    found.and_then(|pair| pair.value.as_deref())
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl Table {
    /// Index of the column with this name. For use at compile time: a missing column stops the
    /// compilation.
    pub(crate) const fn place(&self, name: &str) -> usize {
        let mut at = 0;
        while !same(self.columns[at].name, name) {
            at += 1;
        }
        at
    }

    /// The schema in Parquet's notation.
    pub(crate) fn message(&self) -> String {
        let fields = self.columns.iter().map(|column| {
            let repetition = match column.optional {
                true => "optional",
                false => "required",
            };
            let logical = match column.kind {
                Type::Text => " (UTF8)",
                _ => "",
            };
            let Column { name, kind, .. } = column;
            format!("{repetition} {} {name}{logical};", kind.physical())
        });
        let fields = fields.collect::<Vec<_>>().join(" ");
        format!("message {} {{ {fields} }}", self.name)
    }

    /// A file's metadata; `more` are further pairs.
    pub(crate) fn metadata(&self, more: Vec<(&str, String)>) -> Vec<KeyValue> {
        let own = [
            (TABLE_KEY, self.name.to_owned()),
            (VERSION_KEY, self.version.to_string()),
        ];
        let pairs = own.into_iter().chain(more);
        pairs
            .map(|(key, value)| KeyValue::new(key.to_owned(), value))
            .collect()
    }

    /// Positions of the columns in a file; an error if the file is no readable file of this table.
    pub(crate) fn find_in(&self, file: &FileMetaData) -> Result<Vec<usize>, RecordingError> {
        let value = |key: &str| said(file, key);
        let other = |found: String| RecordingError::OtherTable {
            found,
            wanted: self.name,
        };
        let table = value(TABLE_KEY).ok_or_else(|| other("none of HawkEye's tables".to_owned()))?;
        if table != self.name {
            return Err(other(format!("the table {table:?}")));
        }
        let version = value(VERSION_KEY).and_then(|text| text.parse().ok());
        let version: u32 =
            version.ok_or_else(|| other(format!("a table {table:?} without a version")))?;
        if version > self.version {
            return Err(RecordingError::Newer {
                table: self.name,
                found: version,
                known: self.version,
            });
        }
        let there = file.schema_descr();
        let places = self.columns.iter().map(|column| {
            let wrong = |problem| RecordingError::Column {
                table: self.name,
                column: column.name,
                problem,
            };
            let mut places = there.columns().iter();
            let place = places.position(|found| found.path().string() == column.name);
            let place = place.ok_or_else(|| wrong("is missing"))?;
            let found = there.column(place);
            if found.physical_type() != column.kind.physical() {
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
