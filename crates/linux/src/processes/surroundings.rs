//! What decides whether a process gets huge pages, beside how it uses its memory: its mappings and what was said
//! about them, its allocator, the kernel's settings, its cgroup. Only read.

use crate::error::{LinuxError, Result};
use crate::processes::identity::identify;
use crate::processes::mappings::{Ineligible, Mapping, vm};
use crate::processes::user_names::UserNames;
use crate::takeover::thp_settings::{THP_DIR, enabled_file, read_setting};
use hawkeye_policy::Identity;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, VmFlags};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Everything around a process that huge pages depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// Who it is.
    pub identity: Identity,
    /// Whether it or an ancestor said `PR_SET_THP_DISABLE`.
    pub thp_disabled: bool,
    /// Its mappings with memory in them, by address.
    pub places: Vec<Place>,
    /// What hands out its memory.
    pub allocator: Allocator,
    /// What a Java virtual machine was told; `None` where it is none.
    pub java: Option<JavaFlags>,
    /// The kernel's settings.
    pub settings: Settings,
}

/// One mapping, or several that differ in nothing but their addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Place {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// What is mapped, in words: `heap`, `anonymous`, `stack`, a file.
    pub what: String,
    /// Resident, in bytes.
    pub resident_bytes: u64,
    /// Of these, under huge pages.
    pub huge_bytes: u64,
    /// What its owner said about huge pages.
    pub advice: Advice,
    /// Why no part of it can become huge, as a clause; `None`: it can.
    pub ineligible: Option<String>,
    /// Whether it is memory shared with others by tmpfs, `memfd` or System V.
    pub shared_memory: bool,
}

/// What an owner said about huge pages for a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// Nothing.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// What hands out a process's memory, as far as its libraries and environment tell. One that is linked statically
/// can't be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Allocator {
    /// The C library's.
    Glibc {
        /// `glibc.malloc.hugetlb` of `GLIBC_TUNABLES`: 1 asks for huge pages by madvise, 2 takes them from the pool.
        hugetlb: Option<u32>,
        /// All of `GLIBC_TUNABLES`.
        tunables: Option<String>,
    },
    /// jemalloc as a library.
    Jemalloc {
        /// `thp` of `MALLOC_CONF`.
        thp: Option<String>,
        /// All of `MALLOC_CONF`.
        conf: Option<String>,
    },
    /// tcmalloc as a library.
    Tcmalloc,
    /// mimalloc as a library.
    Mimalloc,
    /// Not known.
    #[default]
    Unknown,
}

/// Options of a Java virtual machine that concern huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JavaFlags {
    /// `-XX:+UseTransparentHugePages`: the heap is advised.
    pub transparent: bool,
    /// `-XX:+UseLargePages`: the heap comes from the hugetlb pool.
    pub large_pages: bool,
}

/// The kernel's settings of transparent huge pages; `None`: it has no such setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Who gets huge pages of 2 MiB at faults and from khugepaged: `always`, `madvise`, `never`.
    pub enabled: Option<String>,
    /// The file that says so.
    pub enabled_file: String,
    /// Who waits for a huge page at a fault.
    pub defrag: Option<String>,
    /// Whether khugepaged may compact memory.
    pub khugepaged_defrag: Option<String>,
    /// So many base pages of a region may be empty, and khugepaged makes it huge.
    pub khugepaged_max_ptes_none: Option<String>,
    /// How long khugepaged sleeps after each scan, in milliseconds.
    pub khugepaged_scan_sleep_ms: Option<String>,
    /// So many base pages khugepaged looks at in each scan.
    pub khugepaged_pages_to_scan: Option<String>,
    /// Huge pages in memory that is shared.
    pub shmem_enabled: Option<String>,
}

impl Surroundings {
    /// Reads them.
    ///
    /// # Errors
    /// The process is gone, or somebody else's.
    pub fn of(pid: u32) -> Result<Self> {
        let gone = |_| LinuxError::NoSuchProcess(pid);
        let users = UserNames::default();
        let process = crate::processes::process::entry(pid).map_err(gone)?;
        let status = process.status().map_err(gone)?;
        let maps = process.smaps().map_err(gone)?;
        let libraries: Vec<String> = maps.iter().filter_map(library).collect();
        // These two are there as long as the process is; zombies have none.
        let command_line = process.cmdline().unwrap_or_default();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        Ok(Self {
            identity: named(identify(pid, &users)?, &users),
            thp_disabled: status.thp_enabled == Some(false),
            places: merged(maps.iter().map(place)),
            allocator: allocator(&libraries, &variables(&environment)),
            java: java(&libraries, &command_line),
            settings: settings(),
        })
    }
}

/// Waits a little for the name of the process's user.
fn named(mut identity: Identity, users: &UserNames) -> Identity {
    let user = users.name_within(identity.uid, Duration::from_secs(1));
    identity.user = user.text;
    identity.user_pending = user.pending;
    identity
}

fn settings() -> Settings {
    let folder = Path::new(THP_DIR);
    let read = |name: &str| read_setting(&folder.join(name)).ok();
    let enabled_file = enabled_file();
    Settings {
        enabled: read_setting(&enabled_file).ok(),
        enabled_file: enabled_file.display().to_string(),
        defrag: read("defrag"),
        khugepaged_defrag: read("khugepaged/defrag"),
        khugepaged_max_ptes_none: read("khugepaged/max_ptes_none"),
        khugepaged_scan_sleep_ms: read("khugepaged/scan_sleep_millisecs"),
        khugepaged_pages_to_scan: read("khugepaged/pages_to_scan"),
        shmem_enabled: read("shmem_enabled"),
    }
}

/// Name of the file that is mapped, without its folder.
fn library(map: &MemoryMap) -> Option<String> {
    match &map.pathname {
        MMapPath::Path(path) => Some(path.file_name()?.to_string_lossy().into_owned()),
        _ => None,
    }
}

fn place(map: &MemoryMap) -> Place {
    let has = |flag: VmFlags| map.extension.vm_flags.contains(flag);
    let flags = [
        (map.perms.contains(MMPermissions::WRITE), vm::WRITE),
        (map.perms.contains(MMPermissions::SHARED), vm::SHARED),
        (has(VmFlags::GD), vm::GROWSDOWN),
        (has(VmFlags::UM), vm::UFFD_MISSING),
        (has(VmFlags::UW), vm::UFFD_WP),
        (has(VmFlags::PF), vm::PFNMAP),
        (has(VmFlags::IO), vm::IO),
        (has(VmFlags::HT), vm::HUGETLB),
        (has(VmFlags::MM), vm::MIXEDMAP),
    ];
    let path = match &map.pathname {
        MMapPath::Path(path) => Some(path.display().to_string()),
        _ => None,
    };
    // Of what owners said is told apart: it is theirs to change.
    let mapping = Mapping {
        range: map.address.0..map.address.1,
        flags: flags
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, flag)| flag)
            .sum(),
        file_backed: map.inode != 0 || path.is_some(),
    };
    let bytes = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
    let huge = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"];
    let shared_files = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"];
    Place {
        start: map.address.0,
        end: map.address.1,
        shared_memory: matches!(map.pathname, MMapPath::Vsys(_))
            || path
                .as_ref()
                .is_some_and(|path| shared_files.iter().any(|start| path.starts_with(start))),
        what: match (&map.pathname, path) {
            (MMapPath::Heap, _) => "heap".to_owned(),
            (MMapPath::Stack | MMapPath::TStack(_), _) => "stack".to_owned(),
            (_, Some(path)) => path,
            _ => "anonymous".to_owned(),
        },
        resident_bytes: bytes("Rss"),
        huge_bytes: huge.iter().map(|name| bytes(name)).sum(),
        advice: match (has(VmFlags::HG), has(VmFlags::NH)) {
            (_, true) => Advice::NoHuge,
            (true, false) => Advice::Huge,
            (false, false) => Advice::None,
        },
        ineligible: match mapping.eligible() {
            Ok(_) | Err(Ineligible::NoHugePage) => None,
            Err(why) => Some(why.to_string()),
        },
    }
}

/// Places with memory; neighbours that are alike are one.
fn merged(places: impl Iterator<Item = Place>) -> Vec<Place> {
    let mut merged: Vec<Place> = Vec::new();
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

/// The environment that a process was started with.
fn variables(environ: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(environ);
    text.split('\0')
        .filter_map(|variable| variable.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn allocator(libraries: &[String], variables: &BTreeMap<String, String>) -> Allocator {
    let has = |name: &str| libraries.iter().any(|library| library.starts_with(name));
    // Whatever is loaded beside the C library replaces its allocator.
    if has("libjemalloc") {
        let conf = ["MALLOC_CONF", "_RJEM_MALLOC_CONF"];
        let thp = conf.iter().find_map(|name| {
            let options = variables.get(*name)?.split(',');
            options.rev().find_map(|option| option.strip_prefix("thp:"))
        });
        return Allocator::Jemalloc {
            thp: thp.map(str::to_owned),
            conf: variables.get("MALLOC_CONF").cloned(),
        };
    }
    if has("libtcmalloc") {
        return Allocator::Tcmalloc;
    }
    if has("libmimalloc") {
        return Allocator::Mimalloc;
    }
    if has("libc.so.6") || has("libc-2.") {
        let tunables = variables.get("GLIBC_TUNABLES");
        let hugetlb = tunables.and_then(|tunables| {
            let mut last_first = tunables.rsplit(':');
            last_first.find_map(|it| it.strip_prefix("glibc.malloc.hugetlb=")?.parse().ok())
        });
        return Allocator::Glibc {
            hugetlb,
            tunables: tunables.cloned(),
        };
    }
    Allocator::Unknown
}

fn java(libraries: &[String], command_line: &[String]) -> Option<JavaFlags> {
    libraries
        .iter()
        .find(|library| library.as_str() == "libjvm.so")?;
    // The last of several counts.
    let on = |flag: &str| {
        let said = command_line.iter().rev().find_map(|word| {
            let switch = word.strip_prefix("-XX:")?;
            let (sign, name) = switch.split_at_checked(1)?;
            (name == flag).then_some(sign == "+")
        });
        said.unwrap_or(false)
    };
    Some(JavaFlags {
        transparent: on("UseTransparentHugePages"),
        large_pages: on("UseLargePages"),
    })
}

#[cfg(test)]
mod tests;
