use super::super::testing::TestFolder;
use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

fn setting(name: &str, value: &str) -> (TestFolder, PathBuf, KernelSettingsGuard) {
    let folder = TestFolder::new(name);
    let (knob, guard) = (folder.file("knob", value), folder.guard());
    (folder, knob, guard)
}

/// Two settings that a guard has set to 20. Another program has changed the second to 77 since.
fn changed_by_another(name: &str) -> (TestFolder, [PathBuf; 2], KernelSettingsGuard) {
    let folder = TestFolder::new(name);
    let both = ["ours", "theirs"].map(|name| folder.file(name, "10"));
    let mut guard = folder.guard();
    for knob in &both {
        set(&mut guard, knob, "20");
    }
    fs::write(&both[1], "77").expect("the file can be written");
    (folder, both, guard)
}

fn set(guard: &mut KernelSettingsGuard, knob: &Path, value: &str) {
    guard.set(knob, value).expect("the setting can be changed");
}

fn restored(folder: &TestFolder) -> Vec<SettingRestoreReport> {
    let done = restore_leftovers_of_files(&folder.0, &WritableSettingFiles::under(&folder.0));
    done.expect("the record can be read and written")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("the file can be read")
}

#[test]
fn dropping_the_guard_puts_the_first_value_back() {
    let (folder, knob, mut guard) = setting("drop", "10\n");
    set(&mut guard, &knob, "20");
    set(&mut guard, &knob, "30");
    assert_eq!(text(&knob), "30");
    drop(guard);
    assert_eq!(text(&knob), "10");
    assert!(!saved_settings::saved_settings_file_in(&folder.0).exists());
}

#[test]
fn one_setting_is_put_back_and_can_be_changed_again() {
    let (_folder, knob, mut guard) = setting("one", "10\n");
    guard.put_back(&knob).expect("an unchanged setting needs no restoring");
    for _ in 0..2 {
        set(&mut guard, &knob, "20");
        guard.put_back(&knob).expect("the setting can be restored");
        assert_eq!(text(&knob), "10");
    }
}

#[test]
fn the_next_start_restores_a_killed_managers_changes() {
    let (folder, knob, mut guard) = setting("killed", "always [madvise] never\n");
    set(&mut guard, &knob, "always");
    std::mem::forget(guard);
    drop(folder.guard());
    assert_eq!(text(&knob), "madvise");
}

#[test]
fn a_value_changed_by_another_program_stays_at_the_end() {
    let (folder, both, guard) = changed_by_another("others-end");
    drop(guard);
    assert_eq!(both.map(|knob| text(&knob)), ["10", "77"]);
    assert!(!saved_settings::saved_settings_file_in(&folder.0).exists());
}

#[test]
fn a_value_changed_after_a_kill_stays_and_is_reported() {
    let (folder, both, guard) = changed_by_another("others-kill");
    std::mem::forget(guard);
    let said: Vec<String> = restored(&folder).iter().map(ToString::to_string).collect();
    assert_eq!(both.map(|knob| text(&knob)), ["10", "77"]);
    assert!(said[0].ends_with("ours is restored to 10"), "{said:?}");
    assert!(said[1].contains("theirs stays 77"), "{said:?}");
    assert!(said[1].contains("from 20"), "{said:?}");
    assert!(restored(&folder).is_empty(), "a reported change is forgotten");
}

#[test]
fn a_value_changed_by_another_program_is_not_set_again() {
    let folder = TestFolder::new("others-again");
    let knob = folder.file("knob", "10");
    for put_back_first in [false, true] {
        let mut guard = folder.guard();
        set(&mut guard, &knob, "20");
        if put_back_first {
            guard.put_back(&knob).expect("the setting can be restored");
        }
        fs::write(&knob, "77").expect("the file can be written");
        for _ in 0..2 {
            let refused = guard
                .set(&knob, "30")
                .expect_err("a setting changed by another program is refused");
            assert!(matches!(refused, LinuxError::ChangedByOthers { .. }));
            guard.put_back(&knob).expect("nothing has to be restored");
        }
        drop(guard);
        assert_eq!(text(&knob), "77");
        fs::write(&knob, "10").expect("the file can be written");
    }
}

#[test]
fn a_kill_between_two_changes_restores_the_first_value() {
    let folder = TestFolder::new("between");
    let knob = folder.file("knob", "10");
    for left in ["20", "30"] {
        let set = vec!["20".to_owned(), "30".to_owned()];
        let found = "10".to_owned();
        let changes = SettingChanges::from([(knob.clone(), SettingChange { found, set })]);
        saved_settings::write_or_remove_saved_settings(
            &saved_settings::saved_settings_file_in(&folder.0),
            &changes,
        )
        .expect("the record can be written");
        fs::write(&knob, left).expect("the file can be written");
        restored(&folder);
        assert_eq!(text(&knob), "10");
    }
}

#[test]
fn unwritable_settings_are_kept_and_the_others_restored() {
    let folder = TestFolder::new("kept");
    let (bad, good) = (folder.0.join("bad"), folder.file("good", "20"));
    // Reading the setting fails as well.
    fs::create_dir(&bad).expect("the folder can be created");
    let change = || SettingChange { found: "10".into(), set: vec!["20".into()] };
    let changes = SettingChanges::from([(bad.clone(), change()), (good.clone(), change())]);
    saved_settings::write_or_remove_saved_settings(
        &saved_settings::saved_settings_file_in(&folder.0),
        &changes,
    )
    .expect("the record can be written");
    let mut guard = folder.guard();
    assert_eq!(text(&good), "10");
    set(&mut guard, &good, "30");
    drop(guard);
    assert_eq!(text(&good), "10");
    let kept = text(&saved_settings::saved_settings_file_in(&folder.0));
    assert!(kept.contains("bad") && !kept.contains("good"), "{kept}");
    fs::remove_dir(&bad).expect("the folder can be removed");
    fs::write(&bad, "20").expect("the file can be written");
    drop(folder.guard());
    assert_eq!(text(&bad), "10");
    assert!(!saved_settings::saved_settings_file_in(&folder.0).exists());
}

#[test]
fn a_file_that_can_not_be_used_is_set_aside_and_the_start_goes_on() {
    let folder = TestFolder::new("damaged");
    let knob = folder.file("knob", "10");
    let file = saved_settings::saved_settings_file_in(&folder.0);
    type PutFile = fn(&Path) -> io::Result<()>;
    let all: [(&str, PutFile); 5] = [
        ("half", |file| fs::write(file, "{\"/sys/x\": ")),
        ("foreign path", |file| fs::write(file, r#"{"/etc/motd": "1"}"#)),
        ("open to all", |file| {
            fs::write(file, "{}")?;
            fs::set_permissions(file, Permissions::from_mode(0o666))
        }),
        ("a folder", |file| fs::create_dir(file)),
        ("a link", |file| symlink("/dev/zero", file)),
    ];
    for (number, (what, put)) in all.iter().enumerate() {
        put(&file).expect(what);
        let mut guard = folder.guard();
        guard.set(&knob, "20").expect(what);
        drop(guard);
        assert_eq!(text(&knob), "10", "{what}");
        let aside = format!("settings.json.damaged-{}", number + 1);
        assert!(fs::symlink_metadata(folder.0.join(aside)).is_ok(), "{what}");
    }
}

/// A start would replace a record that it cannot read.
#[test]
fn a_record_that_cannot_be_read_prevents_the_start_and_a_restore() {
    let folder = TestFolder::new("unreadable");
    let no_folder = folder.file("file", "");
    let started = KernelSettingsGuard::restore_leftovers_and_start(&no_folder).map(drop);
    for done in [started, restore_leftover_settings(&no_folder).map(drop)] {
        let failed = done.expect_err("the record cannot be read");
        assert!(matches!(failed, LinuxError::File { doing: "reading", .. }), "{failed}");
    }
}

#[test]
fn a_restore_without_a_usable_record_fails_and_keeps_it() {
    let folder = TestFolder::new("unusable");
    let file = folder.file("settings.json", r#"{"version": 3}"#);
    for _ in 0..2 {
        let failed = restore_leftover_settings(&folder.0).expect_err("the record is unusable");
        assert!(matches!(failed, LinuxError::UnusableRecord { .. }), "{failed}");
        assert_eq!(text(&file), r#"{"version": 3}"#);
    }
}

#[test]
fn files_that_are_not_settings_are_not_written() {
    let folder = TestFolder::new("beside");
    let knob = folder.file("knob", "10");
    let mut guard =
        KernelSettingsGuard::restore_leftovers_and_start(&folder.0).expect("the guard starts");
    let refused = guard.set(&knob, "20").expect_err("a file that is not a setting is refused");
    assert!(matches!(refused, LinuxError::NotASetting(_)));
    assert_eq!(text(&knob), "10");
}

#[test]
fn the_guard_restores_changes_made_through_a_handle() {
    let (_folder, knob, guard) = setting("handle", "10\n");
    let handle = guard.handle();
    handle.set(&knob, "20").expect("the setting can be changed");
    assert_eq!(text(&knob), "20");
    handle.put_back(&knob).expect("the setting can be restored");
    handle.set(&knob, "30").expect("the setting can be changed again");
    drop(guard);
    assert_eq!(text(&knob), "10");
    assert!(handle.set(&knob, "40").is_err());
    handle.put_back(&knob).expect("the setting can be restored");
    assert_eq!(text(&knob), "10");
}

#[test]
fn what_restores_at_a_signal_waits_for_a_slow_change() {
    let folder = TestFolder::new("slow");
    let knob = folder.0.join("knob");
    nix::unistd::mkfifo(&knob, nix::sys::stat::Mode::S_IRWXU).expect("the pipe can be created");
    let mut guard = folder.guard();
    let waits = std::thread::scope(|scope| {
        // Each side of the pipe waits for the other.
        let change = scope.spawn(|| set(&mut guard, &knob, "20"));
        fs::write(&knob, "10").expect("the pipe can be written");
        let record = saved_settings::saved_settings_file_in(&folder.0);
        while !record.exists() && !change.is_finished() {
            std::thread::yield_now();
        }
        let waits = CHANGE.try_lock().is_err();
        assert_eq!(text(&knob), "20");
        fs::write(&knob, "20").expect("the pipe can be written");
        waits
    });
    // Dropping it would wait for the other side of the pipe.
    std::mem::forget(guard);
    assert!(waits, "the setting could be restored before it was changed");
    drop(prevent_setting_changes());
}
