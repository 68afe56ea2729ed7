//! Files are read as they were written, and bad ones refused with a reason and a place.

use hawkeye_policy::{
    CoverageSource, OutsideRegions, Overhead, OverheadSource, PageOrder, ProcessId, ProcessSample,
    RegionAddr, RegionSample, Terms,
};
use hawkeye_recording::{
    COVERAGE, CoverageReader, CoverageRow, CoverageWriter, RESULTS, RecordingError, ResultRow,
    ResultWriter,
};
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor;
use proptest::prelude::*;
use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

/// A file without a name that holds these bytes.
fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    file.seek(SeekFrom::Start(0)).expect("seekable");
    file
}

fn sample(pid: u32, regions: u64, salt: u64) -> ProcessSample {
    let region = |n: u64| {
        let pages = (n.wrapping_mul(31).wrapping_add(salt) % 513) as u16;
        RegionSample {
            region: RegionAddr::containing(0x7f00_0000_0000 + n * (2 << 20)),
            present: pages,
            accessed: pages / 2,
            runs: pages / 4,
            written: pages / 3,
            zero_mapped: 512 - pages,
            swapped: 0,
            order: PageOrder::of_region(pages == 512),
            walks_per_s: n as u32 * 7,
        }
    };
    let exact = Overhead::exact(12.5, OverheadSource::Counters);
    ProcessSample {
        outside: OutsideRegions::default(),
        faults: None,
        process: ProcessId {
            pid,
            start_ticks: 99,
        },
        source: CoverageSource::AccessBits,
        regions: (0..regions).map(region).collect(),
        first_touches: 0,
        overhead: (pid % 2 == 0).then_some(exact),
        cpu_cores: 0.75,
        terms: Terms::default(),
    }
}

fn recorded(samples: &[(Duration, &str, ProcessSample)]) -> Vec<u8> {
    let mut writer = CoverageWriter::new(Vec::new()).expect("memory can be written to");
    for (at, command, sample) in samples {
        let window = Duration::from_millis(100);
        writer.write(*at, window, command, sample).expect("written");
    }
    writer.finish().expect("finished")
}

fn read(bytes: &[u8]) -> Result<Vec<CoverageRow>, RecordingError> {
    CoverageReader::new(file(bytes))?.collect()
}

#[test]
fn coverage_is_read_as_it_was_written() {
    // More than a row group, and than a batch.
    let samples: Vec<_> = (0..9)
        .map(|n| {
            let command = if n % 2 == 0 { "redis" } else { "java" };
            (Duration::from_secs(n), command, sample(n as u32, 9_000, n))
        })
        .collect();
    let bytes = recorded(&samples);
    let rows = read(&bytes).expect("readable");
    assert_eq!(rows.len(), 81_000);
    let mut expected = samples.iter().flat_map(|(at, command, sample)| {
        sample
            .regions
            .iter()
            .map(move |region| (at, command, sample, region))
    });
    for row in rows {
        let (at, command, sample, region) = expected.next().expect("as many rows");
        assert_eq!((row.at, &*row.command), (*at, *command));
        assert_eq!((row.process, row.source), (sample.process, sample.source));
        assert_eq!(row.overhead_percent, sample.overhead.map(|o| o.percent));
        assert_eq!((row.cpu_cores, row.region), (0.75, *region));
        assert_eq!(row.window, Duration::from_millis(100));
    }
    // 8,192 regions (16 GiB) in 120 windows an hour are to take 10 MB at the most.
    assert!(bytes.len() < 81_000 * 10, "{} bytes", bytes.len());
}

#[test]
fn nothing_recorded_is_a_whole_file() {
    assert_eq!(read(&recorded(&[])).expect("readable"), []);
}

#[test]
fn results_are_a_table_of_plain_parquet() {
    let mut writer = ResultWriter::new(Vec::new()).expect("memory can be written to");
    let row = ResultRow {
        workload: "random",
        system: "hawkeye",
        parameter: "machine.cores",
        value: "4",
        seed: 1,
        program: "random",
        outcome: "done",
        wall_s: 1.5,
        faults: 3,
        ..ResultRow::default()
    };
    writer.write(&row).expect("written");
    let bytes = writer.finish().expect("finished");
    let reader = SerializedFileReader::new(file(&bytes)).expect("Parquet");
    let rows: Vec<_> = reader.into_iter().collect::<Result<_, _>>().expect("rows");
    assert_eq!(rows.len(), 1);
    let place = |name| {
        RESULTS
            .columns
            .iter()
            .position(|c| c.name == name)
            .expect("there")
    };
    assert_eq!(rows[0].get_string(place("value")).expect("text"), "4");
    assert_eq!(rows[0].get_double(place("wall_s")).expect("a number"), 1.5);
    assert_eq!(rows[0].get_long(place("faults")).expect("a count"), 3);
    // And it is no coverage.
    let error = CoverageReader::new(file(&bytes))
        .map(drop)
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "this Parquet file holds the table \"results\", but should hold HawkEye's table \"coverage\""
    );
}

/// A file's bytes with some replaced by as many others.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    let mut found = false;
    while at + old.len() <= bytes.len() {
        if &bytes[at..at + old.len()] == old {
            bytes[at..at + old.len()].copy_from_slice(new);
            found = true;
        }
        at += 1;
    }
    assert!(found, "nothing to be replaced");
    bytes
}

#[test]
fn what_is_no_recording_is_refused_in_a_sentence() {
    let whole = recorded(&[(Duration::ZERO, "redis", sample(1, 10, 0))]);
    let told = |bytes: &[u8]| read(bytes).expect_err("refused").to_string();
    assert!(told(b"").starts_with("this is no whole Parquet file"));
    assert!(told(b"I  0023c790,2\n").starts_with("this is no whole Parquet file"));
    let cut = told(&whole[..whole.len() - 9]);
    assert!(cut.contains("cut off"), "{cut}");
    let version = b"hawkeye.version\x18\x01";
    let newer = [&version[..], b"9"].concat();
    let newer = told(&replaced(&whole, &[&version[..], b"1"].concat(), &newer));
    assert_eq!(
        newer,
        "this file has version 9 of the table \"coverage\", and this program knows version 1: use a newer hawkeye"
    );
    let stranger = told(&replaced(&whole, b"hawkeye.table", b"hawkeye.other"));
    assert!(stranger.contains("none of HawkEye's tables"), "{stranger}");
    let missing = told(&replaced(&whole, b"accessed_runs", b"accessed_ruin"));
    assert_eq!(
        missing,
        "the column \"accessed_runs\" of the table \"coverage\" is missing"
    );
}

#[test]
fn a_value_that_cant_be_has_a_place_and_rows_after_it() {
    let mut bad = sample(1, 4, 0);
    bad.regions[2].accessed = 600;
    let bytes = recorded(&[(Duration::ZERO, "redis", bad)]);
    let rows: Vec<_> = CoverageReader::new(file(&bytes))
        .expect("a recording")
        .collect();
    assert_eq!(rows.len(), 4);
    let told: Vec<String> = rows
        .into_iter()
        .filter_map(Result::err)
        .map(|e| e.to_string())
        .collect();
    assert_eq!(told, ["row 2: accessed_pages must be 0 to 512, not 600"]);
}

#[test]
fn time_that_goes_back_is_told() {
    let sample = sample(1, 1, 0);
    let at = |s| (Duration::from_secs(s), "redis", sample.clone());
    let error = read(&recorded(&[at(2), at(1)])).expect_err("refused");
    assert!(
        error
            .to_string()
            .starts_with("row 1: time_us must be no earlier"),
        "{error}"
    );
}

#[test]
fn the_documentation_names_every_column() {
    let text = include_str!("../../../docs/recordings.md");
    for table in [&COVERAGE, &RESULTS] {
        let version = format!("## `{}`, version {}", table.name, table.version);
        assert!(text.contains(&version), "{version}");
        for column in table.columns {
            let row = format!("| `{}` |", column.name);
            assert!(text.contains(&row), "{} of {}", column.name, table.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is done to a file: rows, then perhaps an error, and an end.
    #[test]
    fn damaged_files_are_told_or_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let samples = [
            (Duration::from_secs(1), "redis", sample(1, 40, 3)),
            (Duration::from_secs(2), "java", sample(2, 60, 5)),
        ];
        let mut bytes = recorded(&samples);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(reader) = CoverageReader::new(file(&bytes)) {
            let mut ended = false;
            for row in reader.take(10_000) {
                prop_assert!(!ended, "a row after the end");
                match row {
                    Ok(row) => prop_assert!(row.region.present <= 512),
                    Err(RecordingError::Value { .. }) => {}
                    Err(_) => ended = true,
                }
            }
        }
    }
}
