//! What is in the files.

use crate::error::RecordingError;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{FileMetaData, KeyValue};

/// How a column is stored. Nothing is ever null.
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
    }
}

const fn float(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Float,
    }
}

const fn flag(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Flag,
    }
}

const fn text(name: &'static str) -> Column {
    Column {
        name,
        kind: Type::Text,
    }
}

/// Coverage over time: a row for each region with anything in it, of each process, in each sampling window. Rows
/// are in order of time, within it by process, within that by address.
pub const COVERAGE: Table = Table {
    name: "coverage",
    version: 1,
    columns: &[
        int("time_us"),
        int("window_us"),
        text("source"),
        int("pid"),
        int("start_ticks"),
        text("command"),
        float("cpu_cores"),
        float("overhead_percent"),
        int("region_address"),
        flag("huge"),
        int("present_pages"),
        int("accessed_pages"),
        int("accessed_runs"),
        int("written_pages"),
        int("zero_pages"),
        int("swapped_pages"),
        int("walks_per_s"),
    ],
};

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

impl Table {
    /// The same as Parquet writes schemas down.
    pub(crate) fn message(&self) -> String {
        let fields = self.columns.iter().map(|column| {
            let (physical, logical) = column.kind.declared();
            format!("required {physical} {}{logical};", column.name)
        });
        let fields = fields.collect::<Vec<_>>().join(" ");
        format!("message {} {{ {fields} }}", self.name)
    }

    pub(crate) fn metadata(&self) -> Vec<KeyValue> {
        vec![
            KeyValue::new(TABLE_KEY.to_owned(), self.name.to_owned()),
            KeyValue::new(VERSION_KEY.to_owned(), self.version.to_string()),
        ]
    }

    /// Where each of the columns is in a file; an error if that is no file of this table that can be read.
    pub(crate) fn find_in(&self, file: &FileMetaData) -> Result<Vec<usize>, RecordingError> {
        let pairs = file.key_value_metadata().map_or(&[][..], Vec::as_slice);
        let value = |key: &str| {
            let found = pairs.iter().find(|pair| pair.key == key);
            found.and_then(|pair| pair.value.as_deref())
        };
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
            if found.max_def_level() > 0 || found.max_rep_level() > 0 {
                return Err(wrong("is nullable or repeated"));
            }
            Ok(place)
        });
        places.collect()
    }
}
