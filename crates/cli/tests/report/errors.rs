//! What can't be read or written is reported in one sentence.

use crate::recordings::{folder, hawkeye, record};
use hawkeye_recording::RECORDING;
use std::path::Path;

fn error_line(words: &[&str]) -> String {
    let output = hawkeye(words);
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).expect("the text is UTF-8");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the text is UTF-8")
}

#[test]
fn unreadable_recordings_are_reported() {
    let folder = folder("errors");
    let path = folder.join("malformed");
    std::fs::write(&path, "time,pid,region\n1,2,3\n").expect("the file can be written");
    let said = error_line(&["report", text(&path)]);
    assert!(said.contains("malformed: this is not a complete Parquet file"), "{said}");
    let said = error_line(&["report", text(&folder.join("none"))]);
    for part in ["can't open", "No such file"] {
        assert!(said.contains(part), "{said}");
    }
    let empty = folder.join("empty.part");
    std::fs::create_dir(&empty).expect("the folder can be created");
    let said = error_line(&["report", text(&empty)]);
    assert!(said.contains("empty.part is empty"), "{said}");
}

/// Replaces the one row group of a file's directory by 2,147,483,647 that are not there.
fn with_huge_directory(whole: &[u8]) -> Vec<u8> {
    // A list of one structure, which begins with a list of columns (Thrift's compact protocol).
    let columns = u8::try_from(RECORDING.columns.len()).expect("some columns");
    let old = [0x19, 0x1c, 0x19, 0xfc, columns];
    let new = [0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0x19, 0xfc, columns];
    let at = whole.windows(old.len()).rposition(|bytes| bytes == old).expect("a row group");
    let (trailer, added) = (whole.len() - 8, new.len() - old.len());
    let length = whole[trailer..][..4].try_into().expect("4 bytes");
    let length = u32::from_le_bytes(length) + added as u32;
    let directory = [&whole[..at], &new, &whole[at + old.len()..trailer]].concat();
    [&directory, &length.to_le_bytes()[..], b"PAR1"].concat()
}

#[test]
fn a_recording_that_needs_too_much_memory_is_reported() {
    let folder = folder("huge");
    let path = folder.join("r.parquet");
    record(&path);
    let whole = std::fs::read(&path).expect("the file can be read");
    std::fs::write(&path, with_huge_directory(&whole)).expect("the file can be written");
    let output = hawkeye(&["report", text(&path)]);
    let said = String::from_utf8(output.stderr).expect("the text is UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let wanted = "r.parquet needs over 1024 MiB of memory, the most that a file of its length";
    assert!(said.contains(wanted), "{said}");
    // The user's own limit, in KiB.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -v 512000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_hawkeye")]);
    let output = limited.args(["report", text(&path)]).output().expect("the shell starts");
    let said = String::from_utf8(output.stderr).expect("the text is UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let wanted = "over 500 MiB of memory, your limit (`ulimit -v`), or it is damaged";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn errors_name_the_file_that_cant_be_written() {
    let folder = folder("unwritable");
    let whole = folder.join("whole.parquet");
    record(&whole);
    let under = whole.join("under");
    let said = error_line(&["report", text(&whole), "--html", text(&under)]);
    for part in ["can't", "under: "] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn missing_processes_are_reported_before_anything_is_written() {
    let folder = folder("gone");
    let path = folder.join("r.parquet");
    // Above the largest possible pid (PID_MAX_LIMIT).
    let said = error_line(&["record", "4194305", "-o", text(&path)]);
    assert!(said.contains("there is no process 4194305"), "{said}");
    assert_eq!(std::fs::read_dir(&folder).expect("the folder can be read").count(), 0);
}

#[test]
fn a_report_has_the_same_figures_as_text_and_json() {
    let folder = folder("whole");
    let path = folder.join("r.parquet");
    record(&path);
    let output = hawkeye(&["report", text(&path)]);
    let said = String::from_utf8(output.stdout).expect("the text is UTF-8");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("redis-server"), "{said}");
    let output = hawkeye(&["report", "--json", text(&path)]);
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the output is JSON");
    assert_eq!(json["processes"][0]["promoted"], 32);
    assert_eq!(json["processes"][0]["huge_end_bytes"], 32 * (2 << 20));
    assert_eq!(json["decisions"]["total"], 32);
}
