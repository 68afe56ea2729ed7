//! The profile in the files of a systemd unit: `Profile=` in a section `[X-HawkEye]` of the unit
//! file or of a drop-in. systemd ignores sections with names that begin with `X-`
//! (systemd.unit(5)).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

const SECTION: &str = "X-HawkEye";
const KEY: &str = "Profile";

/// Where units of the system manager are, the highest priority first (systemd.unit(5)). Only root
/// can write there.
const FOLDERS: [&str; 12] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "etc/systemd/system.attached",
    "run/systemd/system",
    "run/systemd/system.attached",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "run/systemd/generator.late",
];
/// What lies beyond is not read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The profile that the files of a unit name, below `root` ("/").
pub(super) fn profile_of_unit(root: &Path, unit: &str) -> Option<String> {
    let names = names_with_drop_ins(unit);
    let in_folders = |name: &str| FOLDERS.map(|folder| root.join(folder).join(name));
    // The unit itself, else its template.
    let own_files = names.iter().take_while(|name| is_unit_or_template(name, unit));
    let own_file = own_files.flat_map(|name| in_folders(name)).find(|path| path.exists());
    // A drop-in hides those of the same name in folders of lower priority.
    let mut drop_ins = BTreeMap::new();
    for folder in names.iter().flat_map(|name| in_folders(&format!("{name}.d"))) {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().map(ToOwned::to_owned);
            if path.extension().is_some_and(|kind| kind == "conf") {
                drop_ins.entry(name).or_insert(path);
            }
        }
    }
    let files = own_file.into_iter().chain(drop_ins.into_values());
    let mut assigned = files.filter_map(|file| assigned_profile(&read_file(&file)?));
    assigned.next_back().filter(|profile| !profile.is_empty())
}

fn is_unit_or_template(name: &str, unit: &str) -> bool {
    name == unit || name.contains("@.") && unit.contains('@')
}

/// The names with drop-ins that apply to a unit, the most specific one first: itself, its template,
/// those of names cut off after a hyphen, and that of its kind.
fn names_with_drop_ins(unit: &str) -> Vec<String> {
    let mut names = vec![unit.to_owned()];
    let Some((stem, kind)) = unit.rsplit_once('.') else { return names };
    let mut stem = stem;
    if let Some((template, _)) = stem.split_once('@') {
        names.push(format!("{template}@.{kind}"));
        stem = template;
    }
    while let Some((shorter, _)) = stem.trim_end_matches('-').rsplit_once('-') {
        names.push(format!("{shorter}-.{kind}"));
        stem = shorter;
    }
    names.push(kind.to_owned());
    names
}

fn read_file(path: &Path) -> Option<String> {
    // Not a pipe, which would never end.
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The last value that a file assigns. An empty one takes back those before it.
fn assigned_profile(text: &str) -> Option<String> {
    let mut in_section = false;
    let mut profile = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            in_section = name == SECTION;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_section) {
            if key.trim_end() == KEY {
                profile = Some(value.trim_start().to_owned());
            }
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_from_its_own_section_only() {
        let text = "[Service]\nProfile=speed\n[X-HawkEye]\n# Profile=never\n Profile = guard \n\
                    Other=1\n[X-Other]\nProfile=balanced\n";
        assert_eq!(assigned_profile(text).as_deref(), Some("guard"));
        assert_eq!(assigned_profile("[X-HawkEye]\nProfile=guard\nProfile=\n").as_deref(), Some(""));
        assert_eq!(assigned_profile("Profile=guard\n[Unit]\n"), None);
    }

    #[test]
    fn drop_ins_of_template_prefix_and_kind_apply() {
        assert_eq!(names_with_drop_ins("redis.service"), ["redis.service", "service"]);
        let found = names_with_drop_ins("my-db-main@1-a.service");
        let expected = [
            "my-db-main@1-a.service",
            "my-db-main@.service",
            "my-db-.service",
            "my-.service",
            "service",
        ];
        assert_eq!(found, expected);
        assert_eq!(names_with_drop_ins("-.slice"), ["-.slice", "slice"]);
    }

    #[test]
    fn the_file_that_systemd_reads_last_decides() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        let write = |path: &str, profile: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            let text = format!("[X-HawkEye]\nProfile={profile}\n");
            fs::write(path, text).expect("the file can be written");
        };
        let profile = |unit| profile_of_unit(root, unit);
        assert_eq!(profile("db@1.service"), None);
        write("usr/lib/systemd/system/db@.service", "balanced");
        assert_eq!(profile("db@1.service").as_deref(), Some("balanced"), "the template");
        write("etc/systemd/system/db@1.service", "speed");
        assert_eq!(
            profile("db@1.service").as_deref(),
            Some("speed"),
            "the unit hides its template"
        );
        assert_eq!(profile("db@2.service").as_deref(), Some("balanced"));
        write("usr/lib/systemd/system/service.d/50-all.conf", "guard");
        assert_eq!(profile("db@1.service").as_deref(), Some("guard"), "a drop-in comes later");
        write("etc/systemd/system/db@1.service.d/10-one.conf", "never");
        assert_eq!(profile("db@1.service").as_deref(), Some("guard"), "by the name of the file");
        write("etc/systemd/system/db@.service.d/50-all.conf", "");
        assert_eq!(profile("db@1.service"), None, "an empty value takes the others back");
        assert_eq!(profile("web.service").as_deref(), Some("guard"));
        write("etc/systemd/system/web.service.d/notes.txt", "never");
        assert_eq!(profile("web.service").as_deref(), Some("guard"), "not a drop-in");
    }
}
