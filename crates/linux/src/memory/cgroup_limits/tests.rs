//! Cgroups in folders that imitate the kernel's.

use super::*;
use crate::machine_lease::thp_settings::testing::TestFolder;
use hawkeye_test_support::event_constructors::process_with_pid;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

fn use_of(used_bytes: u64, total_bytes: u64) -> Option<MemoryUse> {
    Some(MemoryUse { used_bytes, total_bytes })
}

/// A cgroup that is assumed until then.
fn cgroup_until(path: impl Into<PathBuf>, until: Duration) -> KnownCgroup {
    KnownCgroup { path: path.into(), until, idle_until: until, cpu: None }
}

fn memory_use(files: &CgroupFiles) -> Option<MemoryUse> {
    files.read_use().expect("the files can be read").map(|found| found.usage)
}

#[test]
fn version_2_counts_the_lowest_limit_and_not_what_reclaim_can_drop() {
    let tree = TestFolder::new("v2");
    tree.file("app/memory.max", "max\n");
    tree.file("app/memory.high", "1000\n");
    tree.file("app/memory.current", "900\n");
    tree.file("app/memory.swap.max", "max\n");
    let stat = "anon 500\ninactive_file 300\nactive_file 100\n";
    tree.file("app/memory.stat", stat);
    tree.file(
        "app/memory.pressure",
        "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=4\n",
    );
    let folder = tree.0.join("app");
    let open = || {
        let opened = CgroupFiles::open(CgroupVersion::V2, &folder, Duration::ZERO);
        opened.expect("the files can be read")
    };
    assert_eq!(memory_use(&open()), use_of(600, 1000));
    assert_eq!(open().pressure_percent(false), Some(12.5));
    tree.file("app/memory.max", "800\n");
    assert_eq!(memory_use(&open()), use_of(600, 800));
    tree.file("app/memory.pressure", "\n");
    assert_eq!(open().pressure_percent(false), None);
}

#[test]
fn version_1_kills_at_the_limit_of_memory_and_swap_too() {
    let tree = TestFolder::new("v1-swap");
    let unlimited = "9223372036854771712\n";
    tree.file("a/memory.limit_in_bytes", "5000\n");
    tree.file("a/memory.usage_in_bytes", "2000\n");
    tree.file("a/memory.memsw.limit_in_bytes", unlimited);
    tree.file("a/memory.memsw.usage_in_bytes", "4000\n");
    let folder = tree.0.join("a");
    let usage = || {
        let opened = CgroupFiles::open(CgroupVersion::V1, &folder, Duration::ZERO);
        memory_use(&opened.expect("the files can be read"))
    };
    assert_eq!(usage(), use_of(2000, 5000));
    tree.file("a/memory.memsw.limit_in_bytes", "6000\n");
    assert_eq!(usage(), use_of(4000, 6000));
}

#[test]
fn swap_that_is_left_is_the_least_of_all_groups_above() {
    let tree = TestFolder::new("swap");
    tree.file("a/memory.swap.max", "max\n");
    tree.file("a/b/memory.swap.max", "5000\n");
    tree.file("a/b/memory.swap.current", "2000\n");
    tree.file("a/b/c/memory.swap.max", "9000\n");
    let left = |home: &str| least_remaining_swap_of_ancestors(&tree.0, Path::new(home));
    assert_eq!(left("/a"), None);
    assert_eq!(left("/a/b"), Some(3000));
    assert_eq!(left("/a/b/c"), Some(3000));
    tree.file("a/b/memory.swap.max", "0\n");
    assert_eq!(left("/a/b/c"), Some(0));
}

#[test]
fn limits_of_ancestors_apply_and_each_group_is_one() {
    let tree = TestFolder::new("v1");
    for (group, limit) in [("a", "5000"), ("a/b", "9223372036854771712"), ("c", "7")] {
        tree.file(&format!("{group}/memory.limit_in_bytes"), limit);
        tree.file(&format!("{group}/memory.usage_in_bytes"), "2000");
        tree.file(&format!("{group}/memory.stat"), "total_inactive_file 500\n");
    }
    let mut groups = CgroupLimits {
        hierarchy: Some((CgroupVersion::V1, tree.0.clone())),
        ..CgroupLimits::default()
    };
    for (pid, home) in [(1, "/a/b"), (2, "/a"), (3, "/"), (4, "/gone/x")] {
        let home = cgroup_until(home, Duration::from_secs(10));
        groups.homes.insert(process_with_pid(pid), home);
    }
    let all = [1, 2, 3, 4].map(process_with_pid);
    let found = groups.read_limited_cgroups(Duration::from_secs(1), &all);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].name, "/a");
    assert_eq!(Some(found[0].usage), use_of(1500, 5000));
    assert_eq!(found[0].members, [process_with_pid(1), process_with_pid(2)]);
    // It was moved, and is looked for again.
    assert_eq!(groups.processes_with_unknown_limits(), &all[3..]);
    assert_eq!(groups.homes[&all[3]].until, Duration::from_secs(1));
    let usage = |groups: &CgroupLimits, path: &str| {
        groups.memory_use_of_cgroup(Path::new(path)).expect("it can be read")
    };
    assert_eq!(usage(&groups, "/a"), use_of(1500, 5000));
    assert_eq!(usage(&groups, "/a/b"), None);
    let _ = fs::remove_dir_all(tree.0.join("a"));
    assert_eq!(usage(&groups, "/a"), None);
    assert_eq!(groups.read_limited_cgroups(Duration::from_secs(2), &all), []);
}

#[test]
fn files_stay_open_and_a_limit_that_did_not_change_is_assumed_for_five_seconds() {
    let tree = TestFolder::new("v2-open");
    tree.file("a/memory.max", "1000\n");
    tree.file("a/memory.current", "100\n");
    let mut groups = CgroupLimits {
        hierarchy: Some((CgroupVersion::V2, tree.0.clone())),
        most_descriptors: 2,
        ..CgroupLimits::default()
    };
    let process = process_with_pid(1);
    let mut read = |second, most_descriptors| {
        groups.most_descriptors = most_descriptors;
        groups.homes.insert(process, cgroup_until("/a", Duration::MAX));
        let found = groups.read_limited_cgroups(Duration::from_secs(second), &[process]);
        found.first().map(|group| group.usage)
    };
    // A new cgroup may get its limit a moment later.
    assert_eq!(read(0, 2), use_of(100, 1000));
    tree.file("a/memory.max", "2000\n");
    assert_eq!(read(1, 2), use_of(100, 2000));
    assert_eq!(read(2, 2), use_of(100, 2000));
    tree.file("a/memory.max", "3000\n");
    tree.file("a/memory.current", "200\n");
    assert_eq!(read(3, 2), use_of(200, 2000));
    assert_eq!(read(7, 2), use_of(200, 3000));
    // Where too few files can be open, each read opens them.
    read(8, 0);
    tree.file("a/memory.max", "4000\n");
    assert_eq!(read(9, 0), use_of(200, 4000));
}

#[test]
fn while_use_stays_the_same_under_half_of_the_limit_only_limits_are_read_too() {
    let tree = TestFolder::new("v2-quiet");
    let (current, stat) = ("a/memory.current", "a/memory.stat");
    tree.file("a/memory.max", "1000\n");
    tree.file(current, "400\n");
    tree.file(stat, "inactive_file 100\n");
    tree.file("a/memory.pressure", "some avg10=1.00 total=9\n");
    let mut groups = CgroupLimits {
        hierarchy: Some((CgroupVersion::V2, tree.0.clone())),
        most_descriptors: 9,
        ..CgroupLimits::default()
    };
    let process = process_with_pid(1);
    groups.homes.insert(process, cgroup_until("/a", Duration::MAX));
    let mut read = |second| {
        let found = groups.read_limited_cgroups(Duration::from_secs(second), &[process]);
        found.first().map(|group| (group.usage.used_bytes, group.usage.total_bytes))
    };
    let first = [0, 1, 2].map(&mut read);
    assert_eq!(first, [Some((300, 1000)); 3]);
    tree.file(stat, "inactive_file 50\n");
    assert_eq!(read(20), Some((300, 1000)));
    // A new limit counts within five seconds, though use stays the same.
    tree.file("a/memory.max", "900\n");
    assert_eq!([24, 25].map(&mut read), [Some((300, 1000)), Some((350, 900))]);
    // A change of use counts at once.
    tree.file(current, "404\n");
    assert_eq!(read(26), Some((354, 900)));
    assert_eq!([27, 28].map(&mut read), [Some((354, 900)); 2]);
    // What reclaim can drop is read again after a while.
    tree.file(stat, "inactive_file 0\n");
    assert_eq!([55, 56].map(&mut read), [Some((354, 900)), Some((404, 900))]);
    tree.file("a/memory.max", "2000\n");
    assert_eq!([60, 61].map(&mut read), [Some((404, 900)), Some((404, 2000))]);
    // Near a limit use stays the same because of reclaim.
    for (used, droppable) in [(1500, 0), (1500, 400)] {
        tree.file(current, &format!("{used}\n"));
        tree.file(stat, &format!("inactive_file {droppable}\n"));
        assert_eq!(read(62), Some((used - droppable, 2000)));
    }
}

#[test]
fn while_use_stays_the_same_only_the_absence_of_pressure_is_kept() {
    let tree = TestFolder::new("v2-pressure");
    tree.file("a/memory.max", "1000\n");
    tree.file("a/memory.current", "400\n");
    let files = || {
        let opened = CgroupFiles::open(CgroupVersion::V2, &tree.0.join("a"), Duration::ZERO);
        opened.expect("the files can be read")
    };
    assert_eq!(files().pressure_percent(true), None);
    tree.file("a/memory.pressure", "some avg10=40.00 total=9\n");
    let files = files();
    assert_eq!(files.pressure_percent(true), Some(40.0));
    // The end of an episode shows at once.
    tree.file("a/memory.pressure", "some avg10=0.00 total=9\n");
    assert_eq!(files.pressure_percent(true), Some(0.0));
    tree.file("a/memory.pressure", "some avg10=7.00 total=9\n");
    assert_eq!(files.pressure_percent(true), Some(0.0));
    assert_eq!(files.pressure_percent(false), Some(7.0));
}

/// The names of the cgroups that are read, and the homes of processes with others. Every cgroup
/// has a limit. Root delegated `/user`.
fn read_and_unknown_cgroups(homes: impl IntoIterator<Item = String>) -> (Vec<String>, Vec<String>) {
    let mut groups = CgroupLimits::default();
    let until = Duration::from_secs(10);
    let processes: Vec<ProcessId> = (1..)
        .map(process_with_pid)
        .zip(homes)
        .map(|(process, home)| {
            groups.homes.insert(process, cgroup_until(home, until));
            process
        })
        .collect();
    let read = groups.read_cgroups_within_bounds(
        &processes,
        |it| it.starts_with("/user"),
        |it| {
            Ok(Some(CgroupMemory {
                name: it.display().to_string(),
                usage: MemoryUse { used_bytes: 1, total_bytes: 2 },
                pressure_percent: None,
                members: Vec::new(),
            }))
        },
    );
    let home = |process: &ProcessId| groups.homes[process].path.display().to_string();
    let unknown = groups.processes_with_unknown_limits().iter().map(home).collect();
    (read.into_iter().map(|group| group.name).collect(), unknown)
}

#[test]
fn a_user_with_thousands_of_cgroups_takes_little_time_and_hides_no_others() {
    let of_user = (0..2000).map(|index| format!("/user/{index}"));
    let of_root = (0..100).map(|index| format!("/system/{index}"));
    let (names, unknown) = read_and_unknown_cgroups(of_user.chain(of_root));
    let under = |prefix| names.iter().filter(|name| name.starts_with(prefix)).count();
    assert_eq!((under("/user"), under("/system/"), names.len()), (25, 100, 127));
    // Beside `/user` itself, 24 were read.
    let of_user = unknown.iter().filter(|home| home.starts_with("/user/")).count();
    assert_eq!((of_user, unknown.len()), (2000 - 24, 2000 - 24));
}

#[test]
fn deep_nesting_is_not_read_to_its_end() {
    let deep = |root: &str| format!("{root}{}", "/x".repeat(500));
    let (names, unknown) = read_and_unknown_cgroups([deep("/system")]);
    assert_eq!(names.iter().map(|name| name.len()).max(), Some("/system".len() + 2 * 30));
    assert_eq!(unknown, [deep("/system")]);
    let (of_user, unknown) = read_and_unknown_cgroups([deep("/user")]);
    assert_eq!((of_user.len(), unknown.len()), (26, 1));
    // Outer limits hold for it all the same.
    assert!(names.contains(&"/system".to_owned()));
}

#[test]
fn limits_of_cgroups_that_are_out_of_sight_are_unknown_and_no_others() {
    let mut groups = CgroupLimits::default();
    let [inside, outside] = [1, 2].map(process_with_pid);
    for (process, home) in [(inside, "/a"), (outside, "/../b")] {
        groups.homes.insert(process, cgroup_until(home, Duration::MAX));
    }
    // One of which the cgroup can't be read.
    let unread = process_with_pid(3);
    let all = [inside, outside, unread];
    groups.read_cgroups_within_bounds(&all, |_| false, |_| Ok(None));
    assert_eq!(groups.processes_with_unknown_limits(), [outside, unread]);
}

#[test]
fn a_limit_that_cannot_be_read_is_unknown_and_not_absent() {
    let tree = TestFolder::new("v2-unreadable");
    // A read of it fails, as with too many open files.
    tree.file("a/memory.max/x", "");
    tree.file("c/memory.max", "1000\n");
    tree.file("c/memory.current/x", "");
    tree.file("d/memory.max", "max\n");
    tree.file("a/b/memory.max", "max\n");
    tree.file("e/memory.max", "1000\n");
    tree.file("e/memory.current", "400\n");
    let mut groups = CgroupLimits {
        hierarchy: Some((CgroupVersion::V2, tree.0.clone())),
        ..CgroupLimits::default()
    };
    let homes = ["/a/b", "/c", "/d", "/e"];
    let processes = [1, 2, 3, 4].map(process_with_pid);
    let find = |groups: &mut CgroupLimits| {
        for (process, home) in processes.into_iter().zip(homes) {
            groups.homes.insert(process, cgroup_until(home, Duration::MAX));
        }
    };
    find(&mut groups);
    let found = groups.read_limited_cgroups(Duration::from_secs(1), &processes);
    assert_eq!(found.iter().map(|group| &group.name[..]).collect::<Vec<_>>(), ["/e"]);
    assert_eq!(groups.processes_with_unknown_limits(), &processes[..2]);
    assert!(groups.memory_use_of_cgroup(Path::new("/a")).is_err());
    for (home, left) in [
        (Some("/a/b"), Some(0)),
        (Some("/c"), Some(0)),
        (Some("/d"), None),
        (Some("/e"), Some(600)),
        (Some("/../e"), Some(0)),
        (None, Some(0)),
    ] {
        let found = groups.remaining_memory_bytes_below(home.map(PathBuf::from));
        assert_eq!(found, left, "{home:?}");
    }
    // It is read again at the next look.
    let _ = fs::remove_dir_all(tree.0.join("a/memory.max"));
    tree.file("a/memory.max", "1000\n");
    tree.file("a/memory.current", "100\n");
    find(&mut groups);
    let found = groups.read_limited_cgroups(Duration::from_secs(2), &processes);
    assert_eq!(found.iter().map(|group| &group.name[..]).collect::<Vec<_>>(), ["/a", "/e"]);
    assert_eq!(groups.processes_with_unknown_limits(), &processes[1..2]);
}

#[test]
fn a_name_that_is_no_text_hides_a_process_from_no_outer_limit() {
    let hostile = PathBuf::from("/system/a").join(OsStr::from_bytes(b"\xff")).join("b");
    let mut groups = CgroupLimits::default();
    let process = process_with_pid(1);
    groups.homes.insert(process, cgroup_until(hostile, Duration::MAX));
    let mut read = Vec::new();
    let no_limit = |path: &Path| {
        read.push(path.to_owned());
        Ok(None)
    };
    groups.read_cgroups_within_bounds(&[process], |_| false, no_limit);
    assert_eq!(read, ["/", "/system", "/system/a"].map(PathBuf::from));
    assert_eq!(groups.processes_with_unknown_limits(), [process]);
}

/// Looks for the cgroups of these processes, each `age_s` old and with `cpu_ms` used, and now
/// in `home`. Returns the path that is assumed for process 1.
fn cgroup_assumed_at(
    groups: &mut CgroupLimits,
    at_s: u64,
    pids: &[u32],
    (age_s, cpu_ms): (u64, Option<u64>),
    home: Option<&str>,
) -> Option<String> {
    let processes: Vec<ProcessId> = pids.iter().copied().map(process_with_pid).collect();
    let age = |_| Duration::from_secs(age_s);
    let cpu = |_| cpu_ms.map(Duration::from_millis);
    let home = |_| home.map(PathBuf::from);
    groups.update_cgroups_of_processes(Duration::from_secs(at_s), &processes, age, cpu, home);
    let known = groups.homes.get(&process_with_pid(1));
    known.map(|known| known.path.display().to_string())
}

#[test]
fn a_process_that_moved_is_found_again_and_one_that_ended_forgotten() {
    let mut groups = CgroupLimits::default();
    let mut look = |at_s, pids, home| {
        // It always runs.
        let cpu_ms = Some(at_s);
        cgroup_assumed_at(&mut groups, at_s, pids, (60, cpu_ms), home).unwrap_or_default()
    };
    assert_eq!(look(0, &[1], Some("/a")), "/a");
    assert_eq!(look(4, &[1, 2], Some("/b")), "/a");
    assert_eq!(look(5, &[1], Some("/b")), "/b");
    assert_eq!(look(6, &[2], Some("/b")), "");
    assert_eq!(look(7, &[1], Some("/b")), "/b");
    assert_eq!(look(20, &[1], None), "");
}

#[test]
fn a_process_that_does_not_run_is_looked_for_again_after_a_minute() {
    let moves_found = |cpu_ms: fn(u64) -> Option<u64>| -> Vec<u64> {
        let mut groups = CgroupLimits::default();
        let mut before = None;
        let looks = 0..130;
        let mut is_new = |at_s: &u64| {
            // It moves all the time.
            let home = format!("/{at_s}");
            let facts = (900, cpu_ms(*at_s));
            let seen = cgroup_assumed_at(&mut groups, *at_s, &[1], facts, Some(&home));
            std::mem::replace(&mut before, seen.clone()) != seen
        };
        looks.filter(|at_s| is_new(at_s)).collect()
    };
    assert_eq!(moves_found(|_| Some(7)), [0, 60, 120]);
    // It runs after 31 s, which shows at the next check.
    assert_eq!(moves_found(|at_s| Some(7 + at_s / 32)), [0, 35, 65, 100]);
    assert_eq!(moves_found(|at_s| (at_s > 20).then_some(7)), [0, 5, 10, 15, 20, 25, 85]);
}

#[test]
fn a_process_that_has_just_started_is_looked_for_again_soon() {
    let mut groups = CgroupLimits::default();
    for (at_s, age_s, seen, home) in [(0, 2, "/", "/"), (1, 3, "/a", "/"), (2, 4, "/a", "/a")] {
        // It waits for its start while it is moved.
        let found = cgroup_assumed_at(&mut groups, at_s, &[1], (age_s, Some(1)), Some(seen));
        assert_eq!(found.as_deref(), Some(home));
    }
}
