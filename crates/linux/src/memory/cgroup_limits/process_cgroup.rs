//! The memory cgroup of a process, also where the reader is in a container.
//!
//! The kernel shows paths from the root of the reader's cgroup namespace, `/../x` for others. A
//! container with the machine's own `/sys/fs/cgroup` can read all of them: its own place below the
//! mount point turns what is shown into paths there.

use super::{CgroupVersion, cgroup_folder, find_memory_hierarchy};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Most cgroups in which this process is searched for.
const MAX_SEARCHED: usize = 20_000;

/// The cgroup in which a process was found.
#[derive(Clone, Debug)]
pub(crate) struct ProcessCgroup {
    version: CgroupVersion,
    path: PathBuf,
}

impl ProcessCgroup {
    pub(crate) fn new(version: CgroupVersion, path: PathBuf) -> Self {
        Self { version, path }
    }

    /// Whether a process is still there.
    pub(crate) fn is_still_of(&self, pid: u32) -> bool {
        memory_cgroup_of_pid(self.version, pid).as_ref() == Some(&self.path)
    }
}

/// The cgroup of a process, below the mount point or [leading out](leads_out) of it; `None` if the
/// process has ended.
pub(super) fn memory_cgroup_of_pid(version: CgroupVersion, pid: u32) -> Option<PathBuf> {
    let shown = shown_cgroup_of_pid(version, pid)?;
    Some(OwnPlace::of_this_process().path_below_mount(&shown))
}

/// Whether a cgroup is not below the mount point: it belongs to another container. The limits there
/// are not those of the root, and can't be read.
pub(crate) fn leads_out(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// This process's cgroup as it is shown, and where it is below the mount point. The two differ in
/// a container: its view begins at a cgroup of its own, or only that cgroup is mounted.
#[derive(Debug, PartialEq)]
pub(crate) struct OwnPlace {
    shown: PathBuf,
    /// `None`: it was not found, so no limits are known.
    below_mount: Option<PathBuf>,
}

impl OwnPlace {
    /// That of this process, for its life.
    pub(crate) fn of_this_process() -> &'static Self {
        static PLACE: OnceLock<OwnPlace> = OnceLock::new();
        PLACE.get_or_init(|| {
            let root = || OwnPlace { shown: "/".into(), below_mount: Some("/".into()) };
            let Some((version, mount)) = find_memory_hierarchy() else { return root() };
            let shown = || shown_cgroup_of_pid(version, std::process::id());
            let Some(mut before) = shown() else { return root() };
            // Something may move this process right after its start, but not again and again.
            for _ in 0..16 {
                let place = OwnPlace::search(version, &mount, before.clone(), std::process::id());
                match shown() {
                    Some(now) if now != before => before = now,
                    _ => return place,
                }
            }
            OwnPlace { shown: before, below_mount: None }
        })
    }

    /// Searches for the cgroup that contains the process `own`, which is shown as `shown`.
    fn search(version: CgroupVersion, mount: &Path, shown: PathBuf, own: u32) -> Self {
        // Threads, which are listed in threaded cgroups too. The first one has the process's id.
        let file = match version {
            CgroupVersion::V2 => "cgroup.threads",
            CgroupVersion::V1 => "tasks",
        };
        let own = own.to_string();
        let contains_own = |folder: &Path| {
            let threads = fs::read_to_string(folder.join(file));
            threads.is_ok_and(|threads| threads.lines().any(|thread| thread == own))
        };
        let usual = cgroup_folder(mount, &shown);
        let found =
            std::iter::once(usual).chain(folders_breadth_first(mount)).find(|it| contains_own(it));
        let below = found.as_deref().and_then(|folder| folder.strip_prefix(mount).ok());
        Self { shown, below_mount: below.map(|below| Path::new("/").join(below)) }
    }

    /// The path below the mount point of a cgroup that is shown as `shown`. One that is not below
    /// it [leads out](leads_out).
    pub(crate) fn path_below_mount(&self, shown: &Path) -> PathBuf {
        self.follow(shown)
            .unwrap_or_else(|| Path::new("/..").join(shown.strip_prefix("/").unwrap_or(shown)))
    }

    /// Follows the way from this process's cgroup to the other one.
    fn follow(&self, shown: &Path) -> Option<PathBuf> {
        let mut path = self.below_mount.clone()?;
        let shared = self.shown.components().zip(shown.components());
        let shared = shared.take_while(|(own, other)| own == other).count();
        for part in self.shown.components().skip(shared) {
            // The way down from an unknown place is not known.
            (part != Component::ParentDir && path.pop()).then_some(())?;
        }
        for part in shown.components().skip(shared) {
            match part {
                Component::ParentDir => path.pop().then_some(())?,
                part => path.push(part),
            }
        }
        Some(path)
    }
}

/// Folders of the hierarchy, the outermost first. Those that belong to another user are left out:
/// they could be thousands, and no manager is in them.
fn folders_breadth_first(mount: &Path) -> impl Iterator<Item = PathBuf> {
    let owner = |folder: &Path| fs::symlink_metadata(folder).map(|it| (it.is_dir(), it.uid())).ok();
    let of_mount = owner(mount);
    let mut folders = VecDeque::from([mount.to_owned()]);
    std::iter::from_fn(move || {
        let folder = folders.pop_front()?;
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten().map(|it| it.path());
        folders.extend(inside.filter(|inner| owner(inner) == of_mount));
        Some(folder)
    })
    .take(MAX_SEARCHED)
}

fn shown_cgroup_of_pid(version: CgroupVersion, pid: u32) -> Option<PathBuf> {
    shown_memory_cgroup(version, &fs::read(format!("/proc/{pid}/cgroup")).ok()?)
}

/// The cgroup by the lines of `/proc/PID/cgroup`: `ID:CONTROLLERS:PATH`. Names are bytes, and users
/// choose them.
fn shown_memory_cgroup(version: CgroupVersion, text: &[u8]) -> Option<PathBuf> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match version {
            CgroupVersion::V2 => id == b"0",
            CgroupVersion::V1 => controllers.split(|byte| *byte == b',').any(|it| it == b"memory"),
        };
        is_it.then(|| OsStr::from_bytes(path).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;

    #[test]
    fn the_memory_cgroup_is_found_whatever_bytes_its_name_has() {
        let text = b"12:cpu,memory:/a:b/\xff\n1:name=systemd:/x\n0::/c\n";
        let shown = |version| shown_memory_cgroup(version, text);
        assert_eq!(shown(CgroupVersion::V1), Some(OsStr::from_bytes(b"/a:b/\xff").into()));
        assert_eq!(shown(CgroupVersion::V2), Some("/c".into()));
        assert_eq!(shown_memory_cgroup(CgroupVersion::V2, b"1:name=systemd:/x\n"), None);
    }

    #[test]
    fn cgroups_are_found_from_our_own_place_or_lead_out() {
        for (own, below_mount, shown, expected) in [
            ("/", "/", "/", "/"),
            ("/a", "/a", "/a/b", "/a/b"),
            ("/a/b", "/a/b", "/c", "/c"),
            ("/", "/", "/..app/x", "/..app/x"),
            ("/", "/", "/../x", "/../../x"),
            // A container with the machine's own hierarchy.
            ("/", "/pods/ours", "/", "/pods/ours"),
            ("/main", "/pods/ours/main", "/", "/pods/ours"),
            ("/main", "/pods/ours/main", "/../theirs/x", "/pods/theirs/x"),
            ("/", "/pods/ours", "/../../system/db", "/system/db"),
            ("/", "/pods/ours", "/../../..", "/../../../.."),
            // A container that shows the machine's paths, but sees only its own cgroup.
            ("/docker/1", "/", "/docker/1/x", "/x"),
            ("/docker/1", "/", "/docker/2", "/../docker/2"),
        ] {
            let place = OwnPlace { shown: own.into(), below_mount: Some(below_mount.into()) };
            let found = place.path_below_mount(Path::new(shown));
            assert_eq!(found, Path::new(expected), "{own} {below_mount} {shown}");
            assert_eq!(leads_out(&found), expected.starts_with("/../"));
        }
        let outside = OwnPlace { shown: "/../b".into(), below_mount: Some("/pods/b".into()) };
        assert!(leads_out(&outside.path_below_mount(Path::new("/x"))));
        let nowhere = OwnPlace { shown: "/a".into(), below_mount: None };
        assert!(leads_out(&nowhere.path_below_mount(Path::new("/a"))));
    }

    #[test]
    fn our_own_place_is_the_cgroup_with_this_process() {
        let tree = TestFolder::new("own-place");
        tree.file("cgroup.threads", "1\n");
        tree.file("pods/a/cgroup.threads", "70\n");
        tree.file("pods/b/main/cgroup.threads", "7\n8\n");
        let place = |shown: &str, own| {
            OwnPlace::search(CgroupVersion::V2, &tree.0, shown.into(), own).below_mount
        };
        // The usual case: the path is the one below the mount point.
        assert_eq!(place("/pods/b/main", 7), Some("/pods/b/main".into()));
        assert_eq!(place("/", 1), Some("/".into()));
        // A container with the machine's own hierarchy.
        assert_eq!(place("/main", 7), Some("/pods/b/main".into()));
        assert_eq!(place("/", 7), Some("/pods/b/main".into()));
        assert_eq!(place("/docker/5", 1), Some("/".into()));
        assert_eq!(place("/", 9), None);
    }
}
