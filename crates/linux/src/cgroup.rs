//! Memory limits of cgroups, version 2 and version 1.

use hawkeye_policy::MemoryUse;
use procfs::process::Process;
use std::fs;
use std::path::{Path, PathBuf};

/// Which cgroup hierarchy controls memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// The unified hierarchy.
    V2,
    /// The `memory` controller's own hierarchy.
    V1,
}

/// One limit above a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// The cgroup's path.
    pub name: String,
    /// Memory in use that reclaim can't simply drop, against the limit.
    pub usage: MemoryUse,
}

/// The hierarchy with the memory controller on this machine, and where it is mounted.
pub fn memory_hierarchy() -> Option<(CgroupVersion, PathBuf)> {
    let root = Path::new("/sys/fs/cgroup");
    let unified = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if unified
        .split_whitespace()
        .any(|controller| controller == "memory")
    {
        return Some((CgroupVersion::V2, root.to_path_buf()));
    }
    let legacy = root.join("memory");
    legacy
        .join("memory.usage_in_bytes")
        .exists()
        .then_some((CgroupVersion::V1, legacy))
}

/// Every limit that applies to the process: its cgroup's and those above it.
pub fn limits(pid: u32) -> Vec<CgroupLimit> {
    let Some((version, root)) = memory_hierarchy() else {
        return Vec::new();
    };
    let Ok(cgroups) = Process::new(pid as i32).and_then(|process| process.cgroups()) else {
        return Vec::new();
    };
    let own = cgroups.into_iter().find(|group| match version {
        CgroupVersion::V2 => group.hierarchy == 0,
        CgroupVersion::V1 => group.controllers.iter().any(|c| c == "memory"),
    });
    let Some(own) = own else { return Vec::new() };
    limits_of(version, &root, Path::new(&own.pathname))
}

/// The limits of the cgroup at `path` under `root` and of its ancestors.
fn limits_of(version: CgroupVersion, root: &Path, path: &Path) -> Vec<CgroupLimit> {
    path.ancestors()
        .filter_map(|group| {
            let folder = root.join(group.strip_prefix("/").unwrap_or(group));
            let usage = usage(version, &folder)?;
            Some(CgroupLimit {
                name: group.display().to_string(),
                usage,
            })
        })
        .collect()
}

/// Use against limit of one cgroup; `None` where it has no limit.
fn usage(version: CgroupVersion, folder: &Path) -> Option<MemoryUse> {
    let number = |file: &str| {
        fs::read_to_string(folder.join(file))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let (limit, current, inactive) = match version {
        CgroupVersion::V2 => {
            // memory.high throttles before memory.max kills: the lower of the two counts.
            let limit = [number("memory.max"), number("memory.high")]
                .into_iter()
                .flatten()
                .min()?;
            (limit, number("memory.current")?, "inactive_file")
        }
        CgroupVersion::V1 => {
            let limit = number("memory.limit_in_bytes")?;
            // "No limit" is written as the largest multiple of the page size.
            if limit >= 1 << 62 {
                return None;
            }
            (
                limit,
                number("memory.usage_in_bytes")?,
                "total_inactive_file",
            )
        }
    };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let droppable = stat
        .lines()
        .find_map(|line| line.strip_prefix(inactive)?.trim().parse::<u64>().ok())
        .unwrap_or(0);
    Some(MemoryUse {
        used_bytes: current.saturating_sub(droppable),
        total_bytes: limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cgroup tree of files, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("hawkeye-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).expect("a temporary folder");
            Self(root)
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_2_counts_the_lowest_limit_and_not_what_reclaim_can_drop() {
        let tree = Tree::new("v2");
        tree.write("app/memory.max", "max\n");
        tree.write("app/memory.high", "1000\n");
        tree.write("app/memory.current", "900\n");
        tree.write(
            "app/memory.stat",
            "anon 500\ninactive_file 300\nactive_file 100\n",
        );
        let limits = limits_of(CgroupVersion::V2, &tree.0, Path::new("/app"));
        let usage = MemoryUse {
            used_bytes: 600,
            total_bytes: 1000,
        };
        assert_eq!(
            limits,
            vec![CgroupLimit {
                name: "/app".into(),
                usage
            }]
        );
    }

    #[test]
    fn version_1_limits_of_ancestors_apply_too_and_no_limit_is_none() {
        let tree = Tree::new("v1");
        for (group, limit) in [("a", "5000"), ("a/b", "9223372036854771712")] {
            tree.write(&format!("{group}/memory.limit_in_bytes"), limit);
            tree.write(&format!("{group}/memory.usage_in_bytes"), "2000");
            tree.write(&format!("{group}/memory.stat"), "total_inactive_file 500\n");
        }
        let limits = limits_of(CgroupVersion::V1, &tree.0, Path::new("/a/b"));
        let usage = MemoryUse {
            used_bytes: 1500,
            total_bytes: 5000,
        };
        assert_eq!(
            limits,
            vec![CgroupLimit {
                name: "/a".into(),
                usage
            }]
        );
    }
}
