//! The memory cgroup of a process, also where the reader is in a container.
//!
//! The kernel shows paths from the root of the reader's cgroup namespace. A container with the
//! machine's own `/sys/fs/cgroup` sees all cgroups below it, and others by `/../x`: its namespace's
//! place below the mount point turns those into paths there.

use super::{CgroupVersion, find_memory_hierarchy};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
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
    Some(path_below_mount(namespace_root(), &shown))
}

/// Whether a cgroup is not below the mount point: it belongs to another container. The limits there
/// are not those of the root, and can't be read.
pub(crate) fn leads_out(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// The path below the mount point of one that is shown in the namespace that begins at
/// `namespace_root`. One that leads out even so stays as it is.
pub(crate) fn path_below_mount(namespace_root: &Path, shown: &Path) -> PathBuf {
    let mut path = namespace_root.to_owned();
    for part in shown.components() {
        match part {
            Component::ParentDir if !path.pop() => return shown.to_owned(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Where this process's cgroup namespace begins below the mount point: the root, except where a
/// container sees the machine's own hierarchy.
pub(crate) fn namespace_root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| find_namespace_root().unwrap_or_else(|| "/".into()))
}

fn find_namespace_root() -> Option<PathBuf> {
    let (version, mount) = find_memory_hierarchy()?;
    let own = std::process::id();
    let shown = shown_cgroup_of_pid(version, own)?;
    namespace_root_below(&mount, &shown, &own.to_string())
}

/// Searches for the cgroup that contains process `own`, which is shown as `shown`.
fn namespace_root_below(mount: &Path, shown: &Path, own: &str) -> Option<PathBuf> {
    let shown = shown.strip_prefix("/").ok()?;
    let contains_own = |folder: &Path| {
        let pids = fs::read_to_string(folder.join("cgroup.procs"));
        pids.is_ok_and(|pids| pids.lines().any(|pid| pid == own))
    };
    if contains_own(&mount.join(shown)) {
        return Some("/".into());
    }
    let mut searched = 0;
    let mut folders = vec![mount.to_owned()];
    while let Some(folder) = folders.pop() {
        searched += 1;
        if searched > MAX_SEARCHED {
            return None;
        }
        if folder.ends_with(shown) && contains_own(&folder) {
            let root = folder.ancestors().nth(shown.components().count())?;
            return Some(Path::new("/").join(root.strip_prefix(mount).ok()?));
        }
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_folder = |it: &fs::DirEntry| it.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(inside.filter(is_folder).map(|it| it.path()));
    }
    None
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
    fn paths_that_lead_out_of_the_namespace_are_found_below_the_mount_or_stay() {
        let below = |root: &str, shown: &str| path_below_mount(Path::new(root), Path::new(shown));
        for (root, shown, expected) in [
            ("/", "/", "/"),
            ("/", "/a/b", "/a/b"),
            ("/", "/..app/x", "/..app/x"),
            ("/", "/../x", "/../x"),
            ("/pods/ours", "/", "/pods/ours"),
            ("/pods/ours", "/../theirs/x", "/pods/theirs/x"),
            ("/pods/ours", "/../../system/db", "/system/db"),
            ("/pods/ours", "/../../..", "/../../.."),
        ] {
            assert_eq!(below(root, shown), Path::new(expected), "{root} {shown}");
            assert_eq!(leads_out(Path::new(expected)), expected.starts_with("/../"));
        }
    }

    #[test]
    fn the_namespace_begins_where_this_process_is_found() {
        let tree = TestFolder::new("namespace");
        tree.file("cgroup.procs", "1\n");
        tree.file("pods/a/cgroup.procs", "70\n");
        tree.file("pods/b/main/cgroup.procs", "7\n8\n");
        let root = |shown: &str, own: &str| namespace_root_below(&tree.0, Path::new(shown), own);
        // The usual case: the path is the one below the mount point.
        assert_eq!(root("/pods/b/main", "7"), Some("/".into()));
        assert_eq!(root("/", "1"), Some("/".into()));
        // A container with the machine's own hierarchy.
        assert_eq!(root("/main", "7"), Some("/pods/b".into()));
        assert_eq!(root("/", "7"), Some("/pods/b/main".into()));
        assert_eq!(root("/", "9"), None);
    }
}
