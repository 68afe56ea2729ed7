use super::*;
use hawkeye_manager::Event;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::process::Command;

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("journal.jsonl")
    }
}

fn lines(text: &str) -> JournalLines {
    JournalLines { text: format!("{{\"event\":\"{text}\"}}\n").into_bytes(), entries: 1, missed: 0 }
}

fn events(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let event = |line| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        match line["entries"].as_u64() {
            Some(n) => format!("{n} {}", line["event"].as_str().unwrap_or_default()),
            None => line["event"].as_str().unwrap_or_default().to_owned(),
        }
    };
    text.lines().map(event).collect()
}

#[test]
fn entries_become_lines_with_the_time_of_day() {
    let mut journal = Journal::default();
    journal.apply_event(Duration::from_secs(10), Event::Paused);
    journal.apply_event(Duration::from_secs(70), Event::Resumed);
    let lines = JournalLines::from_entries_after(&journal, 1, Duration::from_secs(130));
    assert_eq!((lines.entries, lines.missed), (1, 0));
    let line: Value = serde_json::from_slice(&lines.text).expect("one line of JSON");
    assert_eq!(line["event"], "resumed");
    assert_eq!(line["at_s"], 70.0);
    let time = line["time_unix_s"].as_f64().expect("a time");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ago = now.expect("the clock is after 1970").as_secs_f64() - time;
    assert!((60.0..600.0).contains(&ago), "{ago}");
}

#[test]
fn at_its_size_limit_the_file_is_rotated() {
    let folder = TestFolder::new();
    // Two lines of 14 bytes fit.
    let mut file = JournalFile::new(&folder.file(), 30);
    for n in 0..5 {
        file.append(&lines(&n.to_string())).expect("the append succeeds");
    }
    assert_eq!(events(&folder.file()), ["4"]);
    assert_eq!(events(&path_with_suffix(&folder.file(), ".1")), ["2", "3"]);
    // A new daemon appends to the same file. A line longer than the limit is written nevertheless.
    let mut file = JournalFile::new(&folder.file(), 30);
    file.append(&lines("5")).expect("the append succeeds");
    assert_eq!(events(&folder.file()), ["4", "5"]);
    file.append(&lines(&"x".repeat(50))).expect("the append succeeds");
    assert_eq!(events(&path_with_suffix(&folder.file(), ".1")), ["4", "5"]);
    let mode = fs::metadata(folder.file()).expect("the file exists").mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_disk_loses_entries_and_says_how_many() {
    let mut file = JournalFile::new(Path::new("/dev/full"), 1000);
    let error = file.append(&lines("a")).expect_err("the disk is full");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    file.append(&lines("b")).expect_err("the disk is still full");
    assert_eq!(file.lost, 2);
    // The same journal on a disk with room.
    let folder = TestFolder::new();
    file.path = folder.file();
    file.append(&lines("c")).expect("the append succeeds");
    assert_eq!(events(&folder.file()), ["2 lost", "c"]);
    file.append(&lines("d")).expect("the append succeeds");
    assert_eq!(events(&folder.file()), ["2 lost", "c", "d"]);
}

#[test]
fn an_incomplete_line_on_a_full_disk_is_removed() {
    let folder = TestFolder::new();
    let Some(_mounted) = SmallTmpfs::small(folder.0.path()) else {
        return this_test!().skip("no tmpfs can be mounted here");
    };
    let mut file = JournalFile::new(&folder.file(), 1 << 30);
    let long = "x".repeat(3000);
    let mut written = 0;
    // The disk has room for 4 pages; lines don't end at page boundaries.
    while file.append(&lines(&long)).is_ok() && written < 100 {
        written += 1;
    }
    let kept = events(&folder.file());
    let lost = file.lost;
    fs::write(folder.file(), "").expect("the file can be emptied");
    let after = file.append(&lines("y"));
    let then = events(&folder.file());
    assert_eq!((kept.len(), lost), (written, 1));
    assert!((1..100).contains(&written));
    after.expect("the append succeeds");
    assert_eq!(then, ["1 lost", "y"]);
}

/// A tmpfs of 16 KiB; unmounted when dropped.
struct SmallTmpfs(PathBuf);

impl SmallTmpfs {
    fn small(folder: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let options = ["-t", "tmpfs", "-o", "size=16k", "none"];
        let output = mount.args(options).arg(folder).output().ok()?;
        output.status.success().then(|| Self(folder.to_owned()))
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        // A lazy unmount, because a failed test may hold the file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_removed_folder_loses_entries_until_it_is_back() {
    let folder = TestFolder::new();
    let mut file = JournalFile::new(&folder.file(), 1000);
    file.append(&lines("a")).expect("the append succeeds");
    fs::remove_dir_all(folder.0.path()).expect("the removal succeeds");
    file.append(&lines("b")).expect_err("the folder is missing");
    fs::create_dir(folder.0.path()).expect("the folder can be created");
    file.append(&lines("c")).expect("the append succeeds");
    assert_eq!(events(&folder.file()), ["1 lost", "c"]);
    // Rotation by another program is followed too.
    fs::rename(folder.file(), folder.0.path().join("old")).expect("the file can be renamed");
    file.append(&lines("d")).expect("the append succeeds");
    assert_eq!(events(&folder.file()), ["d"]);
}

#[test]
fn a_device_is_not_rotated() {
    let mut file = JournalFile::new(Path::new("/dev/null"), 1);
    for _ in 0..3 {
        file.append(&lines("a")).expect("the append succeeds");
    }
    assert!(!Path::new("/dev/null.1").exists());
}

#[test]
fn nothing_is_written_to_a_file_of_another_user() {
    use std::os::unix::fs::{chown, lchown, symlink};
    let folder = TestFolder::new();
    let (theirs, target) = (folder.file(), folder.0.path().join("target"));
    fs::write(&theirs, "").expect("the file can be written");
    if chown(&theirs, Some(65534), None).is_err() {
        return;
    }
    let mut file = JournalFile::new(&theirs, u64::MAX);
    let refused = file.append(&lines("a")).expect_err("the file belongs to another user");
    assert!(refused.to_string().contains("user 65534"), "{refused}");
    assert_eq!(fs::read(&theirs).expect("the file can be read"), b"");
    fs::remove_file(&theirs).expect("the removal succeeds");
    symlink(&target, &theirs).expect("the link can be created");
    lchown(&theirs, Some(65534), None).expect("root can change the owner of a link");
    file.append(&lines("b")).expect_err("the link belongs to another user");
    assert!(!target.exists());
    fs::remove_file(&theirs).expect("the removal succeeds");
    file.append(&lines("c")).expect("the file is our own now");
    assert_eq!(events(&theirs), ["2 lost", "c"]);
}
