//! Files are read as written, and bad ones are refused with a reason and a position.

use hawkeye_policy::{
    CoverageSource, Event, FileRegion, PageOrder, ProcessId, ProcessSample, RegionAddr,
    RegionSample, TranslationOverhead, TranslationOverheadSource,
};
use hawkeye_recording::{
    AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, RECORDING, Recorder,
    RecordingError, RecordingMetadata, RecordingReader, RecordingRow, RecordingRows,
    RecordingWriter,
};
use proptest::prelude::*;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strum::VariantNames;

fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("the file can be written");
    file.seek(SeekFrom::Start(0)).expect("the file is seekable");
    file
}

fn process(pid: u32, start_ticks: u64) -> ProcessId {
    ProcessId { pid, start_ticks }
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
            maybe_shared: 0,
            swapped: 0,
            order: PageOrder::base_or_huge(pages == 512),
            walks_per_s: n as u32 * 7,
            touches_per_s: None,
            freed: 0,
            file: None,
        }
    };
    let exact = TranslationOverhead::new_without_error(12.5, TranslationOverheadSource::Counters);
    let process = process(pid, 99);
    ProcessSample {
        source: CoverageSource::AccessBits,
        overhead: (pid % 2 == 0).then_some(exact),
        cpu_cores: 0.75,
        ..ProcessSample::from_present_pages(process, (0..regions).map(region).collect())
    }
}

fn about() -> RecordingMetadata {
    RecordingMetadata {
        host: "web-7".into(),
        kernel: "6.18.44".into(),
        policy: "hawkeye-g".into(),
        began: Some(Duration::from_secs(1_790_000_000)),
    }
}

fn later(seconds: u64) -> RecordingMetadata {
    RecordingMetadata { began: about().began.map(|t| t + Duration::from_secs(seconds)), ..about() }
}

fn rows_of(at: Duration, command: &str, sample: &ProcessSample) -> Vec<RecordingRow> {
    let window = Duration::from_millis(100);
    let source = AccessSource::from_coverage_source(sample.source, true);
    let command = command.into();
    let rows = CoverageRow::rows_of_sample(at, window, source, &command, sample);
    rows.map(RecordingRow::Region).collect()
}

fn others(at: Duration) -> Vec<RecordingRow> {
    let process = process(7, 3);
    let redis: std::sync::Arc<str> = "redis".into();
    vec![
        RecordingRow::Process(ProcessRow {
            at,
            process,
            command: redis.clone(),
            cpu_cores: None,
            overhead_percent: Some(3.5),
            rss_bytes: 5 << 30,
            huge_bytes: 1 << 30,
            bloat_bytes: Some(77),
        }),
        RecordingRow::Memory(MemoryRow {
            at,
            used_bytes: 6 << 30,
            total_bytes: 8 << 30,
            pressure_percent: None,
            fmfi: Some(0.25),
            manager_cpu_percent: Some(0.5),
        }),
        RecordingRow::Decision(DecisionRow {
            at,
            process: Some((process, redis)),
            region: Some(RegionAddr::containing(0x7f00_0000_0000)),
            event: "promoted".into(),
            reason: "promoted in 0.4 ms: coverage 500".into(),
        }),
        RecordingRow::Decision(DecisionRow {
            at,
            process: None,
            region: None,
            event: "paused".into(),
            reason: "paused".into(),
        }),
    ]
}

fn written(rows: &[RecordingRow]) -> Vec<u8> {
    let mut writer =
        RecordingWriter::new(Vec::new(), &about()).expect("writing to memory succeeds");
    for row in rows {
        writer.write_row(row).expect("the row can be written");
    }
    writer.finish().expect("the recording can be finished")
}

fn recorded(samples: &[(Duration, &str, ProcessSample)]) -> Vec<u8> {
    written(&rows_of_all(samples))
}

fn rows_of_all(samples: &[(Duration, &str, ProcessSample)]) -> Vec<RecordingRow> {
    let of_one =
        |(at, command, sample): &(Duration, &str, ProcessSample)| rows_of(*at, command, sample);
    samples.iter().flat_map(of_one).collect()
}

fn read_all(bytes: &[u8]) -> Result<Vec<RecordingRow>, RecordingError> {
    RecordingReader::new(file(bytes))?.collect()
}

#[test]
fn coverage_is_read_as_it_was_written() {
    // More than a row group, and more than a batch.
    let samples: Vec<_> = (0..9)
        .map(|n| {
            let command = if n % 2 == 0 { "redis" } else { "java" };
            (Duration::from_secs(n), command, sample(n as u32, 9_000, n))
        })
        .collect();
    let bytes = recorded(&samples);
    let expected = rows_of_all(&samples);
    assert_eq!(expected.len(), 81_000);
    let first = &samples[0].2;
    for (row, region) in expected.iter().zip(&first.regions) {
        let RecordingRow::Region(row) = row else {
            panic!("expected a row of a region, got {row:?}")
        };
        assert_eq!((row.process, row.region), (first.process, *region));
        assert_eq!((row.cpu_cores, row.overhead_percent), (0.75, Some(12.5)));
        let window = Duration::from_millis(100);
        assert_eq!((row.source, row.window), (AccessSource::AccessBits, window));
    }
    assert!(read_all(&bytes).expect("the recording can be read") == expected);
    // 8,192 regions (16 GiB) in 120 windows an hour must take at most 10 MB.
    assert!(bytes.len() < 81_000 * 10, "{} bytes", bytes.len());
}

#[test]
fn every_kind_of_row_is_read_as_it_was_written() {
    let at = Duration::from_secs(4);
    let rows = [rows_of(at, "redis", &sample(1, 5, 1)), others(at)].concat();
    let bytes = written(&rows);
    assert_eq!(read_all(&bytes).expect("the recording can be read"), rows);
    assert_eq!(reader(&bytes).origin(), &about());
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes rows of this many minutes, one every ten seconds.
fn minutes(recorder: &mut Recorder, minutes: u64) {
    for second in (0..minutes * 60).step_by(10) {
        let at = Duration::from_secs(second);
        for row in rows_of(at, "redis", &sample(1, 3, second)) {
            recorder.write_row(row).expect("the row can be written");
        }
    }
}

/// An ended recording of this many minutes.
fn ended(recorder: Result<Recorder, RecordingError>, length: u64) {
    let mut recorder = recorder.expect("the recording begins");
    minutes(&mut recorder, length);
    recorder.finish().expect("the recording can be finished");
}

/// A recording of this many minutes, as left by `kill -9`.
fn killed(path: &Path, length: u64) {
    let mut recorder = begun(path);
    minutes(&mut recorder, length);
    std::mem::forget(recorder);
}

fn opened(path: &Path) -> RecordingRows {
    RecordingRows::open(path).expect("the recording can be read")
}

fn rows_at(path: &Path) -> Vec<RecordingRow> {
    let rows = opened(path).collect::<Result<_, _>>();
    rows.expect("valid rows")
}

fn begun(path: &Path) -> Recorder {
    Recorder::begin_file_recording(path, about()).expect("the recording begins")
}

fn reader(bytes: &[u8]) -> RecordingReader<std::fs::File> {
    RecordingReader::new(file(bytes)).expect("the recording can be read")
}

#[test]
fn a_killed_recording_lacks_only_its_last_minute() {
    let path = folder("killed").join("r.parquet");
    killed(&path, 3);
    assert!(!path.exists());
    let rows = opened(&path);
    assert!(rows.is_unfinished() && rows.origin() == &about());
    let rows = rows_at(&path);
    assert_eq!(rows.len(), 2 * 6 * 3);
    assert_eq!(rows.last().map(RecordingRow::time_since_start), Some(Duration::from_secs(110)));
    // The next recording keeps it.
    ended(Recorder::begin_file_recording(&path, about()), 1);
    assert_eq!(rows_at(&path.with_extension("parquet.1")), rows);
    assert!(!opened(&path).is_unfinished());
    assert_eq!(opened(&path).count(), 6 * 3);
    assert!(!path.with_extension("parquet.part").exists());
    let error = Recorder::begin_file_recording(&path.join("under"), about()).err();
    assert!(error.is_some_and(|error| error.to_string().starts_with("can't write ")));
    let error = Recorder::begin_file_recording(&folder("in-the-way"), about()).err();
    assert!(error.is_some_and(|error| error.to_string().contains("directory")));
}

/// Creates a node that no recording may replace, as a stand-in for those in `/dev`.
fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo starts").success());
}

#[test]
fn nothing_but_regular_files_is_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = folder("nodes");
    let [node, to_node, to_link, nowhere, file, to_file] =
        ["node", "to-node", "to-link", "nowhere", "file", "to-file"].map(|name| folder.join(name));
    fifo(&node);
    std::fs::write(&file, "older").expect("the file can be written");
    let links = [(&node, &to_node), (&to_file, &to_link), (&folder.join("none"), &nowhere)];
    for (target, link) in links.into_iter().chain([(&PathBuf::from("file"), &to_file)]) {
        symlink(target, link).expect("the link can be created");
    }
    let mut before = parts_in(&folder);
    before.sort();
    let assert_refused = |path: &Path, needed: &str, began: Result<Recorder, RecordingError>| {
        let name = path.display();
        let error = began.err().unwrap_or_else(|| panic!("{name} is replaced or set aside"));
        let said =
            format!("can't record to {name}: it exists and is not a {needed}; name another path");
        assert_eq!(error.to_string(), said);
    };
    for path in [&node, &to_node, &to_link, &nowhere] {
        assert_refused(path, "regular file", Recorder::begin_file_recording(path, about()));
    }
    for path in [&node, &to_node, &to_file, &nowhere] {
        assert_refused(path, "folder", Recorder::continue_in_folder(path, u64::MAX, about()));
    }
    let mut after = parts_in(&folder);
    after.sort();
    assert_eq!(after, before);
    let found = std::fs::symlink_metadata(&node).expect("the node exists");
    assert!(found.file_type().is_fifo());
    // A link to a file is kept like the file; the file that it leads to stays as it is.
    ended(Recorder::begin_file_recording(&to_file, about()), 1);
    let kept = std::fs::read_link(folder.join("to-file.1")).expect("the link is kept");
    assert_eq!(kept, Path::new("file"));
    assert_eq!(std::fs::read(&file).expect("the file can be read"), b"older");
    assert_eq!(rows_at(&to_file).len(), 6 * 3);
}

#[test]
fn a_node_that_appears_while_a_recording_runs_stays_and_nothing_is_lost() {
    use std::os::unix::fs::FileTypeExt;
    let folder = folder("late-nodes");
    // The node appears after this many minutes, at the file's place or at that of the older file.
    for (minutes_before, suffix) in [(1, ""), (3, ""), (1, ".1"), (3, ".1")] {
        let path = folder.join(format!("after-{minutes_before}{suffix}.parquet"));
        let node = PathBuf::from(format!("{}{suffix}", path.display()));
        let mut recorder = begun(&path);
        minutes(&mut recorder, minutes_before);
        fifo(&node);
        minutes(&mut recorder, 4);
        let ended = recorder.finish();
        let found = std::fs::symlink_metadata(&node).expect("the node exists");
        assert!(found.file_type().is_fifo(), "{} is replaced", node.display());
        // Rows that are late get the time of those before them, so all are there.
        let rows = (minutes_before as usize + 4) * 6 * 3;
        let (place, parts) = (path.display(), path.with_extension("parquet.part"));
        if suffix.is_empty() || minutes_before == 1 {
            let error = ended.expect_err("a node is in the way").to_string();
            let said = format!("it stays in {}: can't record to ", parts.display());
            assert!(error.starts_with(&said), "{error}");
            assert_eq!(rows_at(&parts).len(), rows, "{place}");
            assert_eq!(parts_in(&parts).len(), 4, "{place}");
        } else {
            // There was no older file to keep there.
            ended.expect("the recording can be finished");
            assert_eq!(rows_at(&path).len(), rows, "{place}");
        }
    }
    // A link at the older file's place is replaced, and never what it leads to.
    let path = folder.join("linked.parquet");
    std::os::unix::fs::symlink("gone", folder.join("linked.parquet.1")).expect("can be made");
    for _ in 0..2 {
        let mut recorder = begun(&path);
        minutes(&mut recorder, 1);
        recorder.finish().expect("the recording can be finished");
    }
    let path = folder.join("older.parquet");
    fifo(&folder.join("older.parquet.1"));
    let error = Recorder::begin_file_recording(&path, about()).err().expect("it is in the way");
    assert!(error.to_string().contains("older.parquet.1: it exists"), "{error}");
}

#[test]
fn a_recording_without_rows_leaves_the_older_one() {
    let folder = folder("mistyped");
    let path = folder.join("r.parquet");
    ended(Recorder::begin_file_recording(&path, about()), 2);
    for rows in [0, 1] {
        let mut mistyped = begun(&path);
        assert!(mistyped.is_empty());
        minutes(&mut mistyped, rows);
        assert_eq!(mistyped.is_empty(), rows == 0);
        drop(mistyped);
        assert_eq!(parts_in(&folder), ["r.parquet"]);
        assert_eq!(rows_at(&path).len(), 2 * 6 * 3);
    }
    ended(Recorder::begin_file_recording(&path, about()), 0);
    assert_eq!(rows_at(&path).len(), 0);
    assert_eq!(rows_at(&path.with_extension("parquet.1")).len(), 2 * 6 * 3);
}

#[test]
fn a_folder_continues_after_a_restart_and_keeps_the_newest_parts() {
    let folder = folder("ring");
    let began = |minute: u64| later(60 * minute);
    ended(Recorder::continue_in_folder(&folder, u64::MAX, began(0)), 2);
    let mut second =
        Recorder::continue_in_folder(&folder, u64::MAX, began(9)).expect("the recording continues");
    minutes(&mut second, 1);
    let bytes = second.finished_part_bytes();
    second.finish().expect("the recording can be finished");
    let rows = rows_at(&folder);
    let times: Vec<u64> = rows.iter().map(|row| row.time_since_start().as_secs()).collect();
    assert_eq!((times[0], times.len()), (0, 3 * 6 * 3));
    assert_eq!(times.last(), Some(&(9 * 60 + 50)));
    assert!(times.is_sorted());
    // Room for the previous parts, and not for one more.
    ended(Recorder::continue_in_folder(&folder, bytes, began(20)), 2);
    let kept = rows_at(&folder);
    assert_eq!(kept.first().map(|row| row.time_since_start().as_secs()), Some(0));
    assert_eq!(kept.last().map(|row| row.time_since_start().as_secs()), Some(110));
    assert_eq!(kept.len(), 2 * 6 * 3);
}

#[test]
fn files_in_the_folder_that_are_no_parts_do_not_count_and_are_not_removed() {
    let folder = folder("not-alone");
    for name in ["+0000001.parquet", "0.parquet", "sales.parquet"] {
        std::fs::write(folder.join(name), "not of ours").expect("the file can be written");
    }
    let mut recorder =
        Recorder::continue_in_folder(&folder, 1, about()).expect("the recording begins");
    assert_eq!(recorder.finished_part_bytes(), 0);
    minutes(&mut recorder, 3);
    recorder.finish().expect("the recording can be finished");
    let mut kept = parts_in(&folder);
    kept.sort();
    assert_eq!(kept, ["+0000001.parquet", "0.parquet", "00000002.parquet", "sales.parquet"]);
}

#[test]
fn time_starts_with_the_oldest_row_that_is_kept() {
    let folder = folder("rotated");
    ended(Recorder::continue_in_folder(&folder, u64::MAX, about()), 4);
    for rotated in ["00000000.parquet", "00000001.parquet"] {
        std::fs::remove_file(folder.join(rotated)).expect("the part exists");
    }
    ended(Recorder::continue_in_folder(&folder, u64::MAX, later(600)), 1);
    let rows = rows_at(&folder);
    let first_and_last = rows.first().zip(rows.last());
    let seconds = first_and_last.map(|(first, last)| {
        (first.time_since_start().as_secs(), last.time_since_start().as_secs())
    });
    // From the second minute on to the end of the first after the restart.
    assert_eq!(seconds, Some((0, 600 + 50 - 120)));
    // Time of the first of these rows.
    assert_eq!(opened(&folder).origin(), &later(120));
}

#[test]
fn an_impossible_start_time_is_ignored() {
    for (began_s, is_kept) in [(253_402_300_799, true), (253_402_300_800, false)] {
        let about = RecordingMetadata { began: Some(Duration::from_secs(began_s)), ..about() };
        let writer = RecordingWriter::new(Vec::new(), &about).expect("writing to memory succeeds");
        let bytes = writer.finish().expect("the recording can be finished");
        assert_eq!(reader(&bytes).origin().began.is_some(), is_kept);
    }
}

#[test]
fn a_removed_part_is_not_an_error() {
    let folder = folder("removed");
    let mut recorder =
        Recorder::continue_in_folder(&folder, 1, about()).expect("the recording begins");
    minutes(&mut recorder, 2);
    std::fs::remove_file(folder.join("00000000.parquet")).expect("the part exists");
    recorder.finish().expect("the recording can be finished");
    let kept = rows_at(&folder);
    assert_eq!(kept.len(), 6 * 3);
    assert_eq!(parts_in(&folder), ["00000001.parquet"]);
}

#[test]
fn a_part_that_cannot_be_finished_is_removed_and_its_rows_count_as_lost() {
    let folder = folder("full");
    let mut recorder =
        Recorder::continue_in_folder(&folder, u64::MAX, about()).expect("the recording begins");
    minutes(&mut recorder, 1);
    // A folder that blocks the file's path.
    let in_the_way = folder.join("00000000.parquet");
    std::fs::create_dir(&in_the_way).expect("the folder can be created");
    let at = Duration::from_secs(60);
    let row = rows_of(at, "redis", &sample(1, 1, 0)).remove(0);
    assert!(recorder.write_row(row.clone()).is_err());
    assert_eq!(recorder.abandon_open_part(), 6 * 3);
    assert_eq!(parts_in(&folder), ["00000000.parquet"]);
    // Writing continues.
    std::fs::remove_dir(&in_the_way).expect("the folder is empty");
    recorder.write_row(row).expect("the row can be written");
    assert_eq!(recorder.abandon_open_part(), 1);
    assert_eq!(parts_in(&folder), [""; 0]);
    assert_eq!(recorder.abandon_open_part(), 0);
}

fn parts_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the recording can be read");
    let names = entries.map(|entry| entry.expect("the recording can be read").file_name());
    names.map(|n| n.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_part_that_is_damaged_is_named() {
    let path = folder("damaged").join("r.parquet");
    killed(&path, 3);
    let part = path.with_extension("parquet.part").join("00000001.parquet");
    std::fs::write(&part, "no Parquet").expect("the file can be written");
    let mut rows = opened(&path);
    let error_text = rows.find_map(Result::err).expect("an error").to_string();
    let named = "00000001.parquet: this is not a complete Parquet";
    assert!(error_text.contains(named), "{error_text}");
    assert!(rows.next().is_none());
    // Nothing is deleted without a request.
    drop(begun(&path));
    let aside = path.with_extension("parquet.part.damaged-1");
    assert!(aside.join("00000001.parquet").exists());
}

/// Files and folders under a path with a mode that gives access to other users.
fn open_to_others(path: &Path) -> Vec<PathBuf> {
    let found = std::fs::metadata(path).expect("the file exists");
    let mut open = Vec::new();
    if found.permissions().mode() & 0o077 != 0 {
        open.push(path.to_owned());
    }
    if found.is_dir() {
        for entry in std::fs::read_dir(path).expect("the folder can be read").flatten() {
            open.extend(open_to_others(&entry.path()));
        }
    }
    open
}

#[test]
fn an_unreadable_older_recording_is_set_aside() {
    let folder = folder("left");
    let (path, part) = (folder.join("a.parquet"), folder.join("a.parquet.part"));
    let aside = |number| folder.join(format!("a.parquet.part.damaged-{number}"));
    std::fs::write(&path, "older").expect("the file can be written");
    let damages = ["cut", "second", "folder", "link", "file"];
    for (number, damage) in damages.into_iter().enumerate() {
        match damage {
            "link" => std::os::unix::fs::symlink("/tmp", &part).expect("the link can be created"),
            "file" => std::fs::write(&part, "").expect("the file can be written"),
            damage => {
                killed(&path, 3);
                let one = if damage == "cut" { 0 } else { 1 };
                let one = part.join(format!("{one:08}.parquet"));
                std::fs::remove_file(&one).expect("the part was finished");
                if damage == "folder" {
                    std::fs::create_dir(&one).expect("the folder can be created");
                } else {
                    std::fs::write(&one, "PAR1").expect("the file can be written");
                }
            }
        }
        let recorder = Recorder::begin_file_recording(&path, about()).expect(damage);
        assert_eq!(open_to_others(&part), Vec::<PathBuf>::new(), "{damage}");
        drop(recorder);
        let aside = std::fs::symlink_metadata(aside(number + 1));
        assert!(aside.is_ok(), "{damage}");
    }
    let kept = aside(1).join("00000001.parquet");
    assert!(kept.exists(), "nothing is lost");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn foreign_files_in_a_folder_do_not_stop_a_recording() {
    let folder = folder("anything");
    let parts = folder.join("new/parts");
    ended(Recorder::continue_in_folder(&parts, u64::MAX, about()), 2);
    std::fs::create_dir(parts.join("00000009.parquet")).expect("the folder can be created");
    let largest = parts.join(format!("{}.parquet", u64::MAX));
    std::fs::write(&largest, "not of ours").expect("the file can be written");
    std::os::unix::fs::symlink(&largest, parts.join("00000002.parquet.tmp"))
        .expect("the link can be created");
    ended(Recorder::continue_in_folder(&parts, u64::MAX, about()), 2);
    assert_eq!(std::fs::read(&largest).expect("the file can be read"), b"not of ours");
    std::fs::remove_dir(parts.join("00000009.parquet")).expect("the folder is empty");
    std::fs::remove_file(&largest).expect("the removal succeeds");
    assert_eq!(open_to_others(&parts), Vec::<PathBuf>::new());
    std::fs::remove_dir_all(&parts).expect("the removal succeeds");
    std::fs::write(&parts, "").expect("the file can be written");
    Recorder::continue_in_folder(&parts, u64::MAX, about())
        .expect("the recorder sets the file aside");
    let _ = std::fs::remove_dir_all(&folder);
}

/// A file's bytes with some replaced by equally many others.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = bytes.to_vec();
    let found = |at: &usize| bytes[*at..].starts_with(old);
    let places: Vec<usize> = (0..bytes.len()).filter(found).collect();
    assert!(!places.is_empty(), "the text to replace is missing");
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    bytes
}

#[test]
fn a_file_that_is_not_a_recording_is_refused_with_the_reason() {
    let whole = recorded(&[(Duration::ZERO, "redis", sample(1, 10, 0))]);
    let error_text = |bytes: &[u8]| {
        let error = read_all(bytes).expect_err("the file is refused");
        error.to_string()
    };
    assert!(error_text(b"").starts_with("this is not a complete Parquet file"));
    assert!(error_text(b"I  0023c790,2\n").starts_with("this is not a complete Parquet file"));
    let cut = error_text(&whole[..whole.len() - 9]);
    assert!(cut.contains("cut off"), "{cut}");
    let version = b"hawkeye.version\x18\x01";
    let newer = [&version[..], b"9"].concat();
    let newer = error_text(&replaced(&whole, &[&version[..], b"1"].concat(), &newer));
    assert_eq!(
        newer,
        "this file has version 9 of the table \"recording\", and this program knows version 1: use a newer hawkeye"
    );
    let stranger = error_text(&replaced(&whole, b"hawkeye.table", b"hawkeye.other"));
    assert!(stranger.contains("none of HawkEye's tables"), "{stranger}");
    let missing = error_text(&replaced(&whole, b"accessed_runs", b"accessed_ruin"));
    assert_eq!(missing, "the column \"accessed_runs\" of the table \"recording\" is missing");
}

#[test]
fn shared_memory_has_its_file() {
    let mut mixed = sample(1, 6, 3);
    for (region, index) in mixed.regions.iter_mut().skip(3).zip([0, 7, u32::MAX]) {
        region.file = Some(FileRegion { inode: 1 << 40, device: u32::MAX, index });
    }
    let rows = rows_of(Duration::ZERO, "postgres", &mixed);
    let bytes = written(&rows);
    assert_eq!(read_all(&bytes).expect("the recording can be read"), rows);
    // The first builds did not write these columns.
    let older = read_all(&replaced(&bytes, b"file_index", b"mile_index"));
    let error = older.expect_err("the file is refused").to_string();
    assert_eq!(error, "the column \"file_index\" of the table \"recording\" is missing");
}

#[test]
fn very_long_texts_are_cut() {
    let decision = |reason: &str| {
        RecordingRow::Decision(DecisionRow {
            at: Duration::ZERO,
            process: None,
            region: None,
            event: "promoted".into(),
            reason: reason.into(),
        })
    };
    let whole = "x".repeat(1024);
    // The cut is within a character, which goes too.
    let long = format!("x{}", "ä".repeat(5000));
    let cut = format!("x{}", "ä".repeat(511));
    let rows = read_all(&written(&[decision(&whole), decision(&long)]));
    assert_eq!(rows.expect("the recording can be read"), [decision(&whole), decision(&cut)]);
    let host = "y".repeat(5000);
    let about = RecordingMetadata { host, ..about() };
    let writer = RecordingWriter::new(Vec::new(), &about).expect("writing to memory succeeds");
    let bytes = writer.finish().expect("the recording can be finished");
    assert_eq!(reader(&bytes).origin().host.len(), 1024);
}

#[test]
fn an_invalid_value_is_reported_with_its_row_and_reading_continues() {
    let mut bad = sample(1, 4, 0);
    bad.regions[2].accessed = 600;
    let bytes = recorded(&[(Duration::ZERO, "redis", bad)]);
    let errors: Vec<_> =
        reader(&bytes).map(|row| row.err().map_or_else(String::new, |e| e.to_string())).collect();
    let bad = "row 2: accessed_pages must be 0 to 512, not 600";
    assert_eq!(errors, ["", "", bad, ""]);
}

#[test]
fn time_that_goes_back_is_an_error() {
    let sample = sample(1, 1, 0);
    let at = |s| (Duration::from_secs(s), "redis", sample.clone());
    let error = read_all(&recorded(&[at(2), at(1)])).expect_err("the file is refused");
    let error_text = error.to_string();
    let row_1 = error_text.starts_with("row 1: time_us must be no earlier");
    assert!(row_1, "{error_text}");
}

#[test]
fn the_documentation_names_every_column() {
    let text = include_str!("../../../docs/use/recordings.md");
    let version = format!("## `{}`, version {}", RECORDING.name, RECORDING.version);
    assert!(text.contains(&version), "{version}");
    for column in RECORDING.columns {
        let in_table = format!("| `{}` |", column.name);
        assert!(text.contains(&in_table), "{in_table}");
    }
}

#[test]
fn the_documentation_lists_every_kind_of_decision() {
    let text = include_str!("../../../docs/use/recordings.md");
    let row = text.lines().find(|line| line.starts_with("| `event` |")).expect("the column");
    // Samples are rows of their own. The journal only counts the others.
    let others =
        ["sampled", "promotion-tried", "searched", "not-split", "call-refused", "measured"];
    for event in Event::VARIANTS {
        assert_ne!(row.contains(&format!("`{event}`")), others.contains(event), "{event}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any damage to a file gives rows, then possibly an error, and an end.
    #[test]
    fn a_damaged_file_is_read_or_gives_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let [first, second] = [1, 2].map(Duration::from_secs);
        let redis = rows_of(first, "redis", &sample(1, 40, 3));
        let java = rows_of(second, "java", &sample(2, 60, 5));
        let mut bytes = written(&[redis, others(first), java, others(second)].concat());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(reader) = RecordingReader::new(file(&bytes)) {
            let mut ended = false;
            for row in reader.take(10_000) {
                prop_assert!(!ended, "a row after the end");
                match row {
                    Ok(RecordingRow::Region(row)) => prop_assert!(row.region.present <= 512),
                    Ok(_) => {}
                    Err(RecordingError::Value { .. }) => {}
                    Err(_) => ended = true,
                }
            }
        }
    }
}
