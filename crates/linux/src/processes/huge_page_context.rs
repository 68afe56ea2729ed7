//! What decides whether a process gets huge pages, apart from how it uses its memory. That is its
//! mappings and their advice, the kernel's settings, and its cgroup. This module
//! only reads.

use crate::error::Result;
use crate::machine_lease::thp_settings::{
    SHMEM_ENABLED, SHRINK_UNDERUSED, THP_DIR, enabled_file, read_setting,
};
use crate::processes::mappings::{Mapping, vm};
use crate::processes::memory_maps::{self, field_bytes};
use crate::processes::mounts::MountedFileSystems;
use crate::processes::process;
use crate::processes::process_attributes::read_process_attributes;
use crate::processes::program_text::{KernelTextRule, TextMapping};
use crate::processes::shared_mappings::SharedMapping;
use crate::processes::user_names::UserNames;
use hawkeye_policy::ProcessAttributes;
use procfs::process::{MMapPath, MemoryMap, VmFlags};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Everything around a process that huge pages depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HugePageContext {
    /// Its command, user, cgroup, unit and pod.
    pub identity: ProcessAttributes,
    /// Whether it or an ancestor set `PR_SET_THP_DISABLE`.
    pub thp_disabled: bool,
    /// Its mappings that hold memory, by address.
    pub places: Vec<MappingGroup>,
    /// Its shared memory, touched or not, by address.
    pub shared_memory: Vec<SharedMapping>,
    /// Its program text in pieces of at least 2 MiB, by address.
    pub text: Vec<TextMapping>,
    /// Which text on other file systems than tmpfs this kernel makes huge.
    pub text_rule: KernelTextRule,
    /// The kernel's settings.
    pub settings: ThpSettings,
}

/// One mapping, or several neighbours that differ only in their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MappingGroup {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Description of the mapping: `heap`, `anonymous`, `stack`, or a file.
    pub what: String,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Part of it in huge pages, in bytes.
    pub huge_bytes: u64,
    /// The owner's advice about huge pages.
    pub advice: HugePageAdvice,
    /// Why no part of it can become huge, as a clause; `None` if some part can.
    pub ineligible: Option<String>,
}

/// An owner's advice about huge pages for a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePageAdvice {
    /// No advice.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// The kernel's settings of transparent huge pages. `None`: the kernel lacks the setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThpSettings {
    /// Which mappings get huge pages of 2 MiB at faults and from khugepaged: `always`, `madvise`,
    /// `never`.
    pub enabled: Option<String>,
    /// The file with that setting.
    pub enabled_file: String,
    /// Which faults wait for a huge page.
    pub defrag: Option<String>,
    /// Whether khugepaged may compact memory.
    pub khugepaged_defrag: Option<String>,
    /// Most empty base pages in a region that khugepaged makes huge.
    pub khugepaged_max_ptes_none: Option<String>,
    /// How long khugepaged sleeps after each scan, in milliseconds.
    pub khugepaged_scan_sleep_ms: Option<String>,
    /// Base pages that khugepaged looks at in each scan.
    pub khugepaged_pages_to_scan: Option<String>,
    /// Whether the kernel splits huge pages with more empty base pages than that when memory runs
    /// out (since 6.12).
    pub shrink_underused: Option<String>,
    /// Huge pages in shared memory.
    pub shmem_enabled: Option<String>,
}

impl HugePageContext {
    /// Reads the huge-page context of a process.
    pub fn of_process(pid: u32) -> Result<Self> {
        let users = UserNames::default();
        let status = process::read_proc_entry(pid, process::read_status)?;
        let mounts = MountedFileSystems::of_process(pid);
        let (mut shared_memory, mut text) = (Vec::new(), Vec::new());
        let groups = memory_maps::read_smaps(pid, |map| {
            shared_memory.extend(SharedMapping::from_smaps(&map, &mounts));
            text.extend(TextMapping::from_smaps(&map, &mounts));
            Some(mapping_group_from_smaps(&map))
        })?;
        let mut identity = read_process_attributes(pid, &users)?;
        let user = users.name_within_time(identity.uid, Duration::from_secs(1));
        (identity.user, identity.user_pending) = (user.text, user.pending);
        Ok(Self {
            identity,
            thp_disabled: status.thp_enabled == Some(false),
            shared_memory,
            text,
            text_rule: KernelTextRule::of_running_kernel(),
            places: merge_equal_neighbours(groups.into_iter()),
            settings: ThpSettings::read(),
        })
    }
}

impl ThpSettings {
    /// Reads the settings of this machine.
    pub fn read() -> Self {
        let folder = Path::new(THP_DIR);
        let read = |name: &str| read_setting(&folder.join(name)).ok();
        let enabled_file = enabled_file();
        Self {
            enabled: read_setting(&enabled_file).ok(),
            enabled_file: enabled_file.display().to_string(),
            defrag: read("defrag"),
            khugepaged_defrag: read("khugepaged/defrag"),
            khugepaged_max_ptes_none: read("khugepaged/max_ptes_none"),
            khugepaged_scan_sleep_ms: read("khugepaged/scan_sleep_millisecs"),
            khugepaged_pages_to_scan: read("khugepaged/pages_to_scan"),
            shrink_underused: read(SHRINK_UNDERUSED),
            shmem_enabled: read(SHMEM_ENABLED),
        }
    }
}

fn mapping_group_from_smaps(map: &MemoryMap) -> MappingGroup {
    let has = |flag: VmFlags| map.extension.vm_flags.contains(flag);
    let path = match &map.pathname {
        MMapPath::Path(path) => Some(path.display().to_string()),
        _ => None,
    };
    // The owner's advice is reported in `advice`, because the owner can change it.
    let mut mapping = Mapping::from_smaps(map);
    mapping.flags &= !(vm::NOHUGEPAGE | vm::MERGEABLE);
    let huge = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"];
    MappingGroup {
        start: map.address.0,
        end: map.address.1,
        what: match (&map.pathname, path) {
            (MMapPath::Heap, _) => "heap".to_owned(),
            (MMapPath::Stack | MMapPath::TStack(_), _) => "stack".to_owned(),
            (_, Some(path)) => path,
            _ => "anonymous".to_owned(),
        },
        resident_bytes: field_bytes(map, "Rss"),
        huge_bytes: huge.iter().map(|name| field_bytes(map, name)).sum(),
        advice: match (has(VmFlags::HG), has(VmFlags::NH)) {
            (_, true) => HugePageAdvice::NoHuge,
            (true, false) => HugePageAdvice::Huge,
            (false, false) => HugePageAdvice::None,
        },
        ineligible: mapping.eligible_range().err().map(|why| why.to_string()),
    }
}

/// Mappings with memory. Equal neighbours are merged.
fn merge_equal_neighbours(places: impl Iterator<Item = MappingGroup>) -> Vec<MappingGroup> {
    let mut merged: Vec<MappingGroup> = Vec::new();
    for place in places.filter(|place| place.resident_bytes > 0) {
        let alike = merged.last_mut().filter(|last| {
            last.end == place.start
                && last.what == place.what
                && last.advice == place.advice
                && last.ineligible == place.ineligible
        });
        match alike {
            Some(last) => {
                last.end = place.end;
                last.resident_bytes += place.resident_bytes;
                last.huge_bytes += place.huge_bytes;
            }
            None => merged.push(place),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_neighbours_are_merged_and_empty_mappings_skipped() {
        let place = |start, end, what: &str, resident_bytes| MappingGroup {
            start,
            end,
            what: what.into(),
            resident_bytes,
            ..MappingGroup::default()
        };
        let places = [
            place(0, 10, "heap", 4),
            place(10, 20, "heap", 5),
            place(20, 30, "anonymous", 6),
            place(40, 50, "anonymous", 7),
            place(60, 70, "anonymous", 0),
        ];
        let found = merge_equal_neighbours(places.into_iter()).into_iter();
        let sizes: Vec<_> = found.map(|p| (p.start, p.end, p.resident_bytes)).collect();
        assert_eq!(sizes, [(0, 20, 9), (20, 30, 6), (40, 50, 7)]);
    }

    #[test]
    fn our_own_are_readable() -> Result<()> {
        let own = HugePageContext::of_process(std::process::id())?;
        assert!(own.places.iter().any(|place| place.what == "heap"));
        let mut stacks = own.places.iter().filter(|place| place.what == "stack");
        assert!(stacks.any(|stack| stack.ineligible.is_some()));
        Ok(())
    }
}
