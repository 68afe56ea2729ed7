//! Recordings: what the simulated manager saw is read back, and replayed on other systems.

use crate::workload_toml::reader;
use hawkeye_recording::{
    RecordingMetadata, RecordingRow, RecordingRowsFromManager, RecordingWriter,
};
use hawkeye_sim::engine::ProgramOutcome;
use hawkeye_sim::simulate::{SimulationSetup, simulate, simulate_observed};
use hawkeye_sim::systems;
use hawkeye_sim::trace::{BadRecordHandling, CoverageRowReader, TraceError, TraceReader};
use hawkeye_sim::workloads::{Phase, RecordingReplay, WorkloadSpec};
use std::path::PathBuf;

/// The last quarter is hot from the start.
const HOT_AT_THE_TOP: &str = r#"stream = [
    { area = "heap", part = [0.75, 1.0], pattern = "random", weight = 9999.0, cycles = 60.0 },
    { area = "heap", pattern = "random", weight = 0.00001, cycles = 60.0 },
]"#;

fn setup() -> SimulationSetup {
    SimulationSetup {
        memory_bytes: 256 << 20,
        cores: 2,
        sample: 4_000,
        fragmented: 1.0,
        ..SimulationSetup::default()
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Records the rows of regions; a spoilt recording has a bad one. Returns their number, too.
fn record(name: &str, spoilt: bool) -> (PathBuf, usize) {
    let mut writer = RecordingWriter::new(Vec::new(), &RecordingMetadata::default()).unwrap();
    let (mut from_manager, mut rows) = (RecordingRowsFromManager::default(), 0);
    let system = systems::by_name("hawkeye-g").unwrap();
    let text = reader(64, "pages_per_region = 256", 100.0, HOT_AT_THE_TOP);
    let workload = WorkloadSpec::parse("test", &text).unwrap();
    let plain = simulate(&system, &workload, &setup());
    let observed = simulate_observed(&system, &workload, &setup(), &mut |manager| {
        for row in from_manager.take_new_rows(manager, |_| None) {
            let RecordingRow::Region(mut row) = row else { continue };
            if spoilt && rows == 3 {
                row.region.present = 513;
            }
            rows += 1;
            writer.write_row(&RecordingRow::Region(row)).unwrap();
        }
    });
    assert_eq!(plain, observed, "looking on changes nothing");
    let bytes = writer.finish().unwrap();
    let path = file(name);
    std::fs::write(&path, bytes).unwrap();
    (path, rows)
}

#[test]
fn recording_of_a_manager_is_read_and_replayed() {
    let (path, rows) = record("whole.parquet", false);
    assert!(rows > 64, "{rows}");
    let mut replay = RecordingReplay::default();
    let mut read = 0;
    for row in CoverageRowReader::open(&path, BadRecordHandling::Fail).unwrap() {
        replay.add_row(&row.unwrap());
        read += 1;
    }
    assert_eq!(read, rows);
    let workload = replay.finish("whole").unwrap();
    let process = &workload.processes[0];
    assert_eq!(process.name, "reader");
    assert_eq!(process.areas.iter().map(|area| area.size.0).sum::<u64>(), 64 << 20);
    let hot = process.phases.iter().filter_map(|phase| match phase {
        Phase::Access { streams, .. } => {
            let all: f64 = streams.iter().map(|s| s.weight).sum();
            let top = streams.iter().filter(|s| s.part[0] >= 0.75).map(|s| s.weight);
            Some(top.sum::<f64>() / all)
        }
        _ => None,
    });
    assert!(hot.fold(0.0, f64::max) > 0.9);
    for name in ["linux-4k", "hawkeye"] {
        let system = systems::by_name(name).unwrap();
        let done = simulate(&system, &workload, &setup()).unwrap();
        let program = &done.figures.programs[0];
        assert_eq!(program.outcome, ProgramOutcome::Done);
        // Half of each region is in use; huge pages occupy all of it.
        assert!(program.rss_peak_bytes >= 32 << 20, "{program:?}");
    }
}

#[test]
fn a_bad_row_is_an_error_or_left_out_and_counted() {
    let (path, rows) = record("spoilt.parquet", true);
    let strict = CoverageRowReader::open(&path, BadRecordHandling::Fail).unwrap();
    let strict: Vec<_> = strict.collect();
    assert_eq!(strict.len(), 4, "nothing after the error");
    let error = strict[3].as_ref().expect_err("refused").to_string();
    assert_eq!(error, "row 3: present_pages must be 0 to 512, not 513");
    let mut lenient = CoverageRowReader::open(&path, BadRecordHandling::Skip).unwrap();
    assert_eq!(lenient.by_ref().filter(Result::is_ok).count(), rows - 1);
    assert_eq!(lenient.skipped_rows(), 1);
}

#[test]
fn a_recording_is_no_trace_of_accesses() {
    let (path, _) = record("trace.parquet", false);
    match TraceReader::open(&path, BadRecordHandling::Fail) {
        Err(error @ TraceError::Unsupported { .. }) => {
            assert!(error.to_string().contains("--recording"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let none = CoverageRowReader::open(&file("none.parquet"), BadRecordHandling::Fail).map(drop);
    let told = none.expect_err("refused").to_string();
    assert!(told.starts_with("can't open") && told.contains("none.parquet"), "{told}");
}
