//! Processes that the kernel has killed for lack of memory.

use crate::memory::cgroup_limits::{CgroupVersion, find_memory_hierarchy};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Most cgroups that are looked at.
const MOST_CGROUPS: usize = 10_000;

/// Kills, as the kernel counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OomKills {
    /// Kills since the machine was started; `None` where the kernel does not count them.
    pub oom_kills_since_boot: Option<u64>,
    /// Cgroups with kills since they were made, most kills first. A cgroup that was removed
    /// meanwhile is missing.
    pub cgroups: Vec<CgroupOomKills>,
}

/// Kills in one cgroup, without those in cgroups below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupOomKills {
    /// Path of the cgroup.
    pub cgroup: String,
    /// Kills since it was made.
    pub oom_kills: u64,
}

/// The kills so far, on this machine.
pub fn read_oom_kills() -> OomKills {
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    OomKills {
        oom_kills_since_boot: count_of_oom_kills(&vmstat),
        cgroups: find_memory_hierarchy()
            .map_or_else(Vec::new, |(version, root)| read_cgroups(version, &root)),
    }
}

fn read_cgroups(version: CgroupVersion, root: &Path) -> Vec<CgroupOomKills> {
    let file = match version {
        CgroupVersion::V2 => "memory.events.local",
        // Here the kernel counts kills in the cgroup itself only.
        CgroupVersion::V1 => "memory.oom_control",
    };
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    for _ in 0..MOST_CGROUPS {
        let Some(folder) = folders.pop() else { break };
        let events = fs::read_to_string(folder.join(file)).unwrap_or_default();
        if let Some(oom_kills) = count_of_oom_kills(&events).filter(|kills| *kills > 0) {
            let below = folder.strip_prefix(root).unwrap_or(&folder);
            let cgroup = Path::new("/").join(below).display().to_string();
            found.push(CgroupOomKills { cgroup, oom_kills });
        }
        folders.extend(subfolders(&folder));
    }
    found.sort_by(|a, b| b.oom_kills.cmp(&a.oom_kills).then_with(|| a.cgroup.cmp(&b.cgroup)));
    found
}

fn subfolders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

/// The number in the line `oom_kill NUMBER`.
fn count_of_oom_kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;

    #[test]
    fn each_cgroup_counts_its_own_kills_and_the_most_come_first() {
        let events = |kills| format!("low 0\noom 7\noom_kill {kills}\noom_group_kill 9\n");
        let v2 = TestFolder::new("kills-v2");
        for (group, kills) in [("a", 0), ("a/b", 3), ("c", 12)] {
            v2.file(&format!("{group}/memory.events.local"), &events(kills));
        }
        let found = |version, root| -> Vec<(String, u64)> {
            let groups = read_cgroups(version, root).into_iter();
            groups.map(|group| (group.cgroup, group.oom_kills)).collect()
        };
        let of_v2 = found(CgroupVersion::V2, &v2.0);
        assert_eq!(of_v2, [("/c".to_owned(), 12), ("/a/b".to_owned(), 3)]);
        let v1 = TestFolder::new("kills-v1");
        v1.file("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert_eq!(found(CgroupVersion::V1, &v1.0), [("/".to_owned(), 2)]);
    }

    #[test]
    fn this_kernel_counts_kills() {
        assert!(read_oom_kills().oom_kills_since_boot.is_some());
    }
}
