//! Recordings to report on.

use hawkeye_policy::{FileRegion, PageOrder, ProcessId, RegionAddr, RegionSample};
use hawkeye_recording::{
    AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingMetadata, RecordingRow,
    RecordingWriter,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

pub fn hawkeye(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye"));
    command.args(words).output().expect("hawkeye starts")
}

/// Records two processes over 100 windows. The first one's upper memory is hot and becomes huge.
/// Both map the file that is all memory of the second one.
pub fn record(path: &Path) {
    write_recording(path, "web-7", (0..100).flat_map(rows));
}

/// The same with texts that nothing on this machine writes.
pub fn record_with_forged_texts(path: &Path) {
    let mut rows: Vec<RecordingRow> = (0..100).flat_map(rows).collect();
    for row in &mut rows {
        if let RecordingRow::Decision(row) = row {
            row.event = "constructor".into();
        }
    }
    write_recording(path, "{{data}}", rows);
}

fn write_recording(path: &Path, host: &str, rows: impl IntoIterator<Item = RecordingRow>) {
    let about = RecordingMetadata {
        host: host.into(),
        policy: "hawkeye-g".into(),
        ..RecordingMetadata::default()
    };
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = RecordingWriter::new(file, &about).expect("the recording begins");
    for row in rows {
        writer.write_row(&row).expect("the row can be written");
    }
    writer.finish().expect("the recording can be finished");
}

fn region(n: u64) -> RegionAddr {
    RegionAddr::containing(0x7f00_0000_0000 + (n << 21))
}

fn rows(window: u64) -> Vec<RecordingRow> {
    let at = Duration::from_secs(30 * (window + 1));
    let mut rows = Vec::new();
    for (pid, command, regions) in [(7, "redis-server", 128), (8, "java", 32)] {
        let command: Arc<str> = command.into();
        let process = ProcessId { pid, start_ticks: 9 };
        let is_huge = |n: u64| pid == 7 && n >= 96 && n - 96 < window;
        for n in 0..regions {
            let accessed = (n * 4) as u16;
            rows.push(RecordingRow::Region(CoverageRow {
                at,
                window: Duration::from_secs(1),
                source: AccessSource::AccessBits,
                process,
                command: command.clone(),
                cpu_cores: 0.75,
                overhead_percent: Some(30.0),
                region: RegionSample {
                    accessed: if is_huge(n) { 512 } else { accessed },
                    runs: 9,
                    order: PageOrder::base_or_huge(is_huge(n)),
                    walks_per_s: 100 * n as u32,
                    file: (n < 32).then_some(FileRegion { inode: 77, device: 1, index: n as u32 }),
                    ..RegionSample::new_full_and_untouched(region(n))
                },
            }));
        }
        rows.push(RecordingRow::Process(ProcessRow {
            at,
            process,
            command: command.clone(),
            cpu_cores: Some(0.75),
            overhead_percent: Some(30.0),
            rss_bytes: regions << 21,
            huge_bytes: (0..regions).filter(|n| is_huge(*n)).count() as u64 * (2 << 20),
            bloat_bytes: Some(4096),
        }));
        if pid == 7 && window < 32 {
            rows.push(RecordingRow::Decision(DecisionRow {
                at,
                process: Some((process, command)),
                region: Some(region(96 + window)),
                event: "promoted".into(),
                reason: "promoted in 0.4 ms: the test said so".into(),
            }));
        }
    }
    rows.push(RecordingRow::Memory(MemoryRow {
        at,
        used_bytes: 6 << 30,
        total_bytes: 8 << 30,
        pressure_percent: Some(0.5),
        fmfi: None,
        manager_cpu_percent: Some(1.25),
    }));
    rows
}
