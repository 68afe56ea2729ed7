//! What is in the files.

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

    /// As it is written in a Parquet schema.
    fn declared(self) -> (&'static str, &'static str) {
        match self {
            Self::Int => ("INT64", ""),
            Self::Float => ("DOUBLE", ""),
            Self::Flag => ("BOOLEAN", ""),
            Self::Text => ("BYTE_ARRAY", " (UTF8)"),
        }
    }
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, with its unit.
    pub name: &'static str,
    /// How it is stored.
    pub kind: Type,
    /// Whether it is null in rows that it does not concern.
    pub optional: bool,
}

/// A table: what a file says that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, in the file's metadata under `hawkeye.table`.
    pub name: &'static str,
    /// Its version, under `hawkeye.version`: one more whenever a column changes its meaning or goes. A column more
    /// is no new version; readers look for columns by name.
    pub version: u32,
    /// Its columns.
    pub columns: &'static [Column],
}

const fn int(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Int,
        optional: false,
    }
}

const fn float(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Float,
        optional: false,
    }
}

const fn flag(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Flag,
        optional: false,
    }
}

const fn text(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Text,
        optional: false,
    }
}

const fn optional(column: Column) -> Column {
    Column {
        optional: true,
        ..column
    }
}

/// What was seen and done over time. Rows are of several kinds, by the column `kind`, in order of time; columns that do not
/// concern a kind are null in its rows.
pub const RECORDING: Table = Table {
    name: "recording",
    version: 1,
    columns: &[
        int("time_us"),
        text("kind"),
        optional(int("unix_us")),
        optional(text("host")),
        optional(int("pid")),
        optional(int("start_ticks")),
        optional(text("command")),
        optional(int("window_us")),
        optional(text("source")),
        optional(float("cpu_cores")),
        optional(float("overhead_percent")),
        optional(int("region_address")),
        optional(flag("huge")),
        optional(int("present_pages")),
        optional(int("accessed_pages")),
        optional(int("accessed_runs")),
        optional(int("written_pages")),
        optional(int("zero_pages")),
        optional(int("swapped_pages")),
        optional(int("walks_per_s")),
        optional(int("rss_bytes")),
        optional(int("huge_bytes")),
        optional(int("bloat_bytes")),
        optional(int("used_bytes")),
        optional(int("total_bytes")),
        optional(float("pressure_percent")),
        optional(float("fmfi")),
        optional(float("manager_cpu_percent")),
        optional(text("event")),
        optional(text("reason")),
    ],
};

/// The place of a column of [`RECORDING`], found while compiling.
macro_rules! column {
    ($name:literal) => {
        const { $crate::schema::RECORDING.place($name) }
    };
}
pub(crate) use column;

/// What came of simulated runs: a row for each program of each.
pub const RESULTS: Table = Table {
    name: "results",
    version: 1,
    columns: &[
        text("workload"),
        text("system"),
        text("parameter"),
        text("value"),
        int("seed"),
        text("program"),
        text("outcome"),
        float("wall_s"),
        float("accesses"),
        float("overhead_percent"),
        int("faults"),
        float("system_s"),
        int("rss_peak_bytes"),
        int("huge_peak_bytes"),
        int("promoted"),
        int("split"),
        int("recovered_bytes"),
        float("manager_cpu_s"),
        float("zeroing_cpu_s"),
    ],
};

/// Pages by size in simulated runs: a row for each size of each program of each run that had or wanted any.
pub const SIZES: Table = Table {
    name: "sizes",
    version: 1,
    columns: &[
        text("workload"),
        text("system"),
        text("parameter"),
        text("value"),
        int("seed"),
        text("program"),
        int("page_bytes"),
        int("faults"),
        int("fallbacks"),
        int("mapped_end_bytes"),
        int("mapped_mean_bytes"),
    ],
};

const TABLE_KEY: &str = "hawkeye.table";
const VERSION_KEY: &str = "hawkeye.version";

/// What a file says under a key.
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
    /// Which of its columns has this name. To be asked while compiling: one that isn't there ends that.
    pub(crate) const fn place(&self, name: &str) -> usize {
        let mut at = 0;
        while !same(self.columns[at].name, name) {
            at += 1;
        }
        at
    }

    /// The same as Parquet writes schemas down.
    pub(crate) fn message(&self) -> String {
        let fields = self.columns.iter().map(|column| {
            let (physical, logical) = column.kind.declared();
            let repetition = if column.optional {
                "optional"
            } else {
                "required"
            };
            format!("{repetition} {physical} {}{logical};", column.name)
        });
        let fields = fields.collect::<Vec<_>>().join(" ");
        format!("message {} {{ {fields} }}", self.name)
    }

    /// What a file says of itself; `more` are pairs of its own.
    pub(crate) fn metadata(&self, more: Vec<KeyValue>) -> Vec<KeyValue> {
        let table = KeyValue::new(TABLE_KEY.to_owned(), self.name.to_owned());
        let version = KeyValue::new(VERSION_KEY.to_owned(), self.version.to_string());
        [vec![table, version], more].concat()
    }

    /// Where each of the columns is in a file; an error if that is no file of this table that can be read.
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
                return Err(wrong("has another type"));
            }
            if found.max_def_level() > i16::from(column.optional) || found.max_rep_level() > 0 {
                return Err(wrong("is nullable or repeated"));
            }
            Ok(place)
        });
        places.collect()
    }
}
