//! Results of simulated runs as Parquet files: two tables, described in `docs/use/recordings.md`.

use hawkeye_recording::{
    CellValue, ColumnSchema, ColumnType, ParquetTableWriter, RecordingError, TableSchema,
};
use std::io::Write;

/// Row fields are named after their [`ColumnType`] and [`CellValue`].
type Text<'a> = &'a str;
type Int = u64;
type Float = f64;

/// A row with a value for each column of its table.
pub trait TableRow {
    /// The table.
    const TABLE: TableSchema;
    /// The values, in the order of its columns.
    fn column_values(&self) -> Vec<CellValue<'_>>;
}

/// Defines a row and its table: each field is a column.
macro_rules! define_table_row {
    (
        $(#[$about:meta])*
        $row:ident<$life:lifetime> of $table:literal, version $version:literal {
            $($(#[$doc:meta])* $column:ident: $kind:ident $(<$text:lifetime>)?,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $row<$life> {
            $($(#[$doc])* pub $column: $kind $(<$text>)?,)*
        }

        impl TableRow for $row<'_> {
            const TABLE: TableSchema = TableSchema {
                name: $table,
                version: $version,
                columns: &[$(ColumnSchema {
                    name: stringify!($column),
                    kind: ColumnType::$kind,
                    optional: false,
                },)*],
            };

            fn column_values(&self) -> Vec<CellValue<'_>> {
                vec![$(CellValue::$kind(self.$column),)*]
            }
        }
    };
}

define_table_row! {
    /// One program of one run.
    ProgramResultRow<'a> of "results", version 1 {
        /// The workload.
        workload: Text<'a>,
        /// The system.
        system: Text<'a>,
        /// What was varied, as a dotted key; empty where nothing was.
        parameter: Text<'a>,
        /// Its value, as it was given.
        value: Text<'a>,
        /// The seed.
        seed: Int,
        /// The program.
        program: Text<'a>,
        /// How it ended: done, killed or unfinished.
        outcome: Text<'a>,
        /// From its start to its end, in seconds.
        wall_s: Float,
        /// Accesses that it made.
        accesses: Float,
        /// Share of its cycles in page walks, in per cent.
        overhead_percent: Float,
        /// Page faults.
        faults: Int,
        /// Time that it waited for the kernel, in seconds.
        system_s: Float,
        /// Largest resident memory, in bytes.
        rss_peak_bytes: Int,
        /// Largest memory under huge pages, in bytes.
        huge_peak_bytes: Int,
        /// Regions promoted, of the whole run.
        promoted: Int,
        /// Huge pages split, of the whole run.
        split: Int,
        /// Memory recovered, in bytes, of the whole run.
        recovered_bytes: Int,
        /// CPU time of the manager, in seconds, of the whole run.
        manager_cpu_s: Float,
        /// CPU time of the thread that zeroes free memory, in seconds, of the whole run.
        zeroing_cpu_s: Float,
    }
}

define_table_row! {
    /// Pages of one size of one program of one run: of each size that it ever had, or was to have.
    PageSizeResultRow<'a> of "sizes", version 1 {
        /// The workload.
        workload: Text<'a>,
        /// The system.
        system: Text<'a>,
        /// What was varied, as a dotted key; empty where nothing was.
        parameter: Text<'a>,
        /// Its value, as it was given.
        value: Text<'a>,
        /// The seed.
        seed: Int,
        /// The program.
        program: Text<'a>,
        /// The size, in bytes.
        page_bytes: Int,
        /// First touches that mapped one.
        faults: Int,
        /// First touches that should have, and got a smaller one.
        fallbacks: Int,
        /// Memory mapped by them at the program's end, in bytes.
        mapped_end_bytes: Int,
        /// The same on average over its time, in bytes.
        mapped_mean_bytes: Int,
    }
}

/// Writes a file of one table.
///
/// # Errors
/// The file can't be written.
pub fn write_parquet_table<R: TableRow, W: Write + Send>(
    rows: impl IntoIterator<Item = R>,
    output: W,
) -> Result<W, RecordingError> {
    let mut table = ParquetTableWriter::new(&R::TABLE, &[], Vec::new(), output)?;
    for row in rows {
        table.push_row(&row.column_values())?;
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_recording::RecordingReader;
    use parquet::file::reader::SerializedFileReader;
    use parquet::record::RowAccessor;
    use std::io::{Seek, SeekFrom};

    #[test]
    fn results_are_a_table_of_plain_parquet() {
        let row = ProgramResultRow {
            workload: "random",
            system: "hawkeye",
            parameter: "machine.cores",
            value: "4",
            seed: 1,
            program: "random",
            outcome: "done",
            wall_s: 1.5,
            faults: 3,
            ..ProgramResultRow::default()
        };
        let file = tempfile::tempfile().expect("a temporary file");
        let mut file = write_parquet_table([row], file).expect("written");
        file.seek(SeekFrom::Start(0)).expect("seekable");
        let reader = file.try_clone().expect("another handle");
        let reader = SerializedFileReader::new(reader).expect("Parquet");
        let rows: Vec<_> = reader.into_iter().collect::<Result<_, _>>().expect("rows");
        assert_eq!(rows.len(), 1);
        let place = |name| {
            let mut columns = ProgramResultRow::TABLE.columns.iter();
            columns.position(|c| c.name == name).expect("there")
        };
        assert_eq!(rows[0].get_string(place("value")).expect("text"), "4");
        assert_eq!(rows[0].get_double(place("wall_s")).expect("a number"), 1.5);
        assert_eq!(rows[0].get_long(place("faults")).expect("a count"), 3);
        // It is also refused as a coverage file.
        let error = RecordingReader::new(file).map(drop).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "this Parquet file holds the table \"results\", but should hold HawkEye's table \"recording\""
        );
    }

    #[test]
    fn the_documentation_names_every_column() {
        let text = include_str!("../../../docs/use/recordings.md");
        for table in [ProgramResultRow::TABLE, PageSizeResultRow::TABLE] {
            let version = format!("## `{}`, version {}", table.name, table.version);
            assert!(text.contains(&version), "{version}");
            for column in table.columns {
                let row = format!("| `{}` |", column.name);
                assert!(text.contains(&row), "{} of {}", column.name, table.name);
            }
        }
    }
}
