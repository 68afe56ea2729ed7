//! Shared memory of a process, and what keeps a mapping of it from huge pages.
//!
//! `MADV_COLLAPSE` makes shared memory huge only where address and file offset are congruent modulo
//! 2 MiB. Without a setting that requests huge pages, the kernel chooses addresses that are not.
//! Nothing outside of the program can move a mapping, so the setting must change before the program
//! starts. `docs/design/shared-memory.md` has what was measured.

use crate::processes::mappings::IneligibleReason;
use crate::processes::memory_maps::{self, field_bytes};
use crate::processes::mounts::MountedFileSystems;
use hawkeye_policy::{FileRegion, HUGE_PAGE_BYTES, RegionAddr};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, VmFlags};
use serde::Serialize;
use thiserror::Error;

/// A mapping of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedMapping {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Offset in the file that `start` maps, in bytes.
    pub file_offset: u64,
    /// Device of the file (major, minor).
    pub device: (i32, i32),
    /// Inode of the file; the segment's id of System V memory.
    pub inode: u64,
    /// What is mapped, as `/proc/PID/maps` shows it.
    pub what: String,
    /// Its kind.
    pub kind: SharedMemoryKind,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Part of it in huge pages, in bytes.
    pub huge_bytes: u64,
    /// Why no part of it can become huge; `None` if some part can.
    pub obstacle: Option<SharedMemoryObstacle>,
}

/// Kinds of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SharedMemoryKind {
    /// Without a file system that a user can mount: `memfd`, System V, shared anonymous memory.
    Internal,
    /// A file on a tmpfs.
    TmpfsFile,
    /// Pages of the hugetlb pool.
    HugeTlb,
}

/// What keeps a mapping of shared memory from huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Error)]
#[serde(tag = "obstacle", rename_all = "kebab-case")]
pub enum SharedMemoryObstacle {
    /// Huge already, from the hugetlb pool.
    #[error("{}", IneligibleReason::HugeTlb)]
    HugeTlb,
    /// Its process has huge pages disabled (`PR_SET_THP_DISABLE`).
    #[error("its process has huge pages disabled (PR_SET_THP_DISABLE)")]
    ThpDisabled,
    /// Registered with userfaultfd: its monitor sees and answers each fault.
    #[error("{}", IneligibleReason::Userfaultfd)]
    Userfaultfd,
    /// Its owner called `madvise(MADV_NOHUGEPAGE)`.
    #[error("{}", IneligibleReason::NoHugePage)]
    NoHugePage,
    /// Address and file offset are not congruent modulo 2 MiB.
    #[error(
        "address and file offset are not congruent modulo 2 MiB: the address is {by_bytes:#x} too high"
    )]
    Misaligned {
        /// Bytes by which the address would have to be lower.
        by_bytes: u64,
    },
    /// Aligned, but no whole 2 MiB of the file are mapped.
    #[error("it does not map a whole 2 MiB of its file")]
    TooSmall,
}

impl SharedMemoryObstacle {
    /// Whether the memory is huge without transparent huge pages.
    pub fn is_huge_already(self) -> bool {
        self == Self::HugeTlb
    }

    /// What would let such memory become huge from the next start of its program on, as a clause.
    /// `None`: only the program itself can change it. `shmem_enabled` is the kernel's setting of
    /// that name.
    pub fn remedy(self, kind: SharedMemoryKind, shmem_enabled: Option<&str>) -> Option<String> {
        let Self::Misaligned { .. } = self else {
            return None;
        };
        let itself = "or let the program map it at a multiple of 2 MiB";
        match kind {
            SharedMemoryKind::Internal => match shmem_enabled {
                Some("never" | "deny") => Some(format!(
                    "set shmem_enabled=advise before the program starts, so that the kernel aligns it, {itself}"
                )),
                Some(_) => Some(format!(
                    "start the program again: shmem_enabled lets the kernel align what is mapped from now on, {itself}"
                )),
                None => Some("let the program map it at a multiple of 2 MiB".to_owned()),
            },
            SharedMemoryKind::TmpfsFile => Some(format!(
                "remount its tmpfs with huge=advise before the program starts, so that the kernel aligns it, {itself}"
            )),
            SharedMemoryKind::HugeTlb => None,
        }
    }
}

impl SharedMapping {
    /// A mapping of `smaps`; `None` if it is no shared memory.
    pub(crate) fn from_smaps(map: &MemoryMap, mounts: &MountedFileSystems) -> Option<Self> {
        if !map.perms.contains(MMPermissions::SHARED) {
            return None;
        }
        let has = |flags| map.extension.vm_flags.intersects(flags);
        let kind = kind_of_map(map, mounts)?;
        let (start, end) = map.address;
        let by_bytes = start.wrapping_sub(map.offset) % HUGE_PAGE_BYTES;
        let first_whole = start.next_multiple_of(HUGE_PAGE_BYTES);
        // The first reason that applies is reported.
        let obstacles = [
            (kind == SharedMemoryKind::HugeTlb, SharedMemoryObstacle::HugeTlb),
            (has(VmFlags::UM | VmFlags::UW), SharedMemoryObstacle::Userfaultfd),
            (has(VmFlags::NH), SharedMemoryObstacle::NoHugePage),
            (end - start < HUGE_PAGE_BYTES, SharedMemoryObstacle::TooSmall),
            (by_bytes != 0, SharedMemoryObstacle::Misaligned { by_bytes }),
            (first_whole + HUGE_PAGE_BYTES > end, SharedMemoryObstacle::TooSmall),
        ];
        Some(Self {
            start,
            end,
            file_offset: map.offset,
            device: map.dev,
            inode: map.inode,
            what: name_of_map(map),
            kind,
            resident_bytes: field_bytes(map, "Rss"),
            huge_bytes: field_bytes(map, "ShmemPmdMapped") + field_bytes(map, "FilePmdMapped"),
            obstacle: obstacles.into_iter().find(|(holds, _)| *holds).map(|(_, what)| what),
        })
    }

    /// Mapped bytes.
    pub fn mapped_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// What would let it become huge, see [`SharedMemoryObstacle::remedy`].
    pub fn remedy(&self, shmem_enabled: Option<&str>) -> Option<String> {
        self.obstacle?.remedy(self.kind, shmem_enabled)
    }
}

/// The name that `/proc/PID/maps` shows for a file that a process maps at a region. `None` if it
/// maps another file there, or if that file cannot be read. It may wait for a lock of the process.
pub fn name_of_mapped_file(pid: u32, region: RegionAddr, file: FileRegion) -> Option<String> {
    let (major, minor) = file.device_numbers();
    let is_mapped_there = |map: &MemoryMap| {
        let (start, end) = map.address;
        let device = (i32::try_from(major).ok(), i32::try_from(minor).ok());
        let is_file = (Some(map.dev.0), Some(map.dev.1)) == device && map.inode == file.inode;
        is_file && start <= region.start() && region.start() < end
    };
    let names = memory_maps::read_maps(pid, |map| is_mapped_there(&map).then(|| name_of_map(&map)));
    names.ok()?.pop()
}

fn name_of_map(map: &MemoryMap) -> String {
    match &map.pathname {
        MMapPath::Path(path) => path.display().to_string(),
        MMapPath::Vsys(key) => format!("System V segment, key {key:#x}"),
        MMapPath::Other(name) => name.clone(),
        _ => "shared memory".to_owned(),
    }
}

/// `None`: a file or a device, which is no shared memory.
fn kind_of_map(map: &MemoryMap, mounts: &MountedFileSystems) -> Option<SharedMemoryKind> {
    let has = |flags| map.extension.vm_flags.intersects(flags);
    // A container's `/dev` is a tmpfs with devices on it.
    if has(VmFlags::PF | VmFlags::IO | VmFlags::MM) {
        return None;
    }
    let path = match &map.pathname {
        MMapPath::Path(path) => path.to_str().unwrap_or_default(),
        MMapPath::Vsys(_) => "/SYSV",
        // Shared anonymous memory to which its process gave a name (PR_SET_VMA_ANON_NAME).
        MMapPath::Other(name) if name.starts_with("anon_shmem:") => "/dev/zero (deleted)",
        _ => return None,
    };
    let internal = ["/memfd:", "/SYSV", "/dev/zero (deleted)"];
    if has(VmFlags::HT) || path.starts_with("/anon_hugepage") {
        Some(SharedMemoryKind::HugeTlb)
    } else if mounts.is_tmpfs(map.dev) {
        Some(SharedMemoryKind::TmpfsFile)
    } else {
        let known = internal.iter().any(|start| path.starts_with(start));
        known.then_some(SharedMemoryKind::Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use procfs::process::MemoryMaps;

    const H: u64 = HUGE_PAGE_BYTES;

    fn mounts() -> MountedFileSystems {
        MountedFileSystems::parse(b"36 35 0:27 / /dev/shm rw - tmpfs tmpfs rw\n")
    }

    fn line(start: u64, end: u64, perms: &str, offset: u64, device: &str, path: &str) -> String {
        format!("{start:x}-{end:x} {perms} {offset:08x} {device} 77 {path}\n")
    }

    /// With the fields of `smaps` that are read.
    fn with_flags(line: String, resident_kb: u64, flags: &str) -> String {
        format!("{line}Rss: {resident_kb} kB\nShmemPmdMapped: 0 kB\nVmFlags: {flags}\n")
    }

    fn read(text: &str) -> Vec<SharedMapping> {
        let maps = MemoryMaps::from_buf_read(text.as_bytes()).expect("the text is valid");
        maps.iter().filter_map(|map| SharedMapping::from_smaps(map, &mounts())).collect()
    }

    fn obstacle_of(text: &str) -> Option<SharedMemoryObstacle> {
        let found = read(text);
        assert_eq!(found.len(), 1, "{text}");
        found[0].obstacle
    }

    #[test]
    fn address_and_offset_must_be_congruent() {
        let misaligned = |by_bytes| Some(SharedMemoryObstacle::Misaligned { by_bytes });
        for (start, offset, expected) in [
            (16 * H, 0, None),
            (16 * H, 3 * H, None),
            (16 * H + 0x5000, 0x5000, None),
            (16 * H + 0x5000, 3 * H + 0x5000, None),
            (16 * H + 0x5000, 0, misaligned(0x5000)),
            (16 * H, 0x1000, misaligned(H - 0x1000)),
            (16 * H + 0x1000, 0x5000, misaligned(H - 0x4000)),
        ] {
            let text = line(start, start + 4 * H, "rw-s", offset, "00:01", "/memfd:x (deleted)");
            assert_eq!(obstacle_of(&text), expected, "{text}");
        }
    }

    #[test]
    fn mappings_without_a_whole_region_are_too_small() {
        let too_small = Some(SharedMemoryObstacle::TooSmall);
        for (start, end, expected) in [
            (16 * H, 17 * H, None),
            (16 * H, 17 * H - 0x1000, too_small),
            // Congruent, but neither half holds a whole region.
            (16 * H + 0x1000, 18 * H - 0x1000, too_small),
            (16 * H + 0x1000, 18 * H, None),
        ] {
            let text = line(start, end, "rw-s", start % H, "00:01", "/SYSV00000000 (deleted)");
            assert_eq!(obstacle_of(&text), expected, "{text}");
        }
    }

    #[test]
    fn flags_of_smaps_keep_a_mapping_from_huge_pages() {
        for (flags, expected) in [
            ("rd wr sh mr mw me ms", None),
            ("rd wr sh ms ht", Some(SharedMemoryObstacle::HugeTlb)),
            ("rd wr sh ms um", Some(SharedMemoryObstacle::Userfaultfd)),
            ("rd wr sh ms uw nh", Some(SharedMemoryObstacle::Userfaultfd)),
            ("rd wr sh ms nh", Some(SharedMemoryObstacle::NoHugePage)),
            // Locked memory can become huge.
            ("rd wr sh ms lo", None),
        ] {
            let line = line(16 * H, 20 * H, "rw-s", 0, "00:01", "/memfd:x (deleted)");
            assert_eq!(obstacle_of(&with_flags(line, 8192, flags)), expected, "{flags}");
        }
    }

    #[test]
    fn only_shared_memory_is_listed_and_each_kind_has_its_remedy() {
        let at = |n: u64, perms: &str, device: &str, path: &str| {
            let start = n * 8 * H + 0x1000;
            with_flags(line(start, start + 4 * H, perms, 0, device, path), 4096, "rd wr sh ms")
        };
        let text = [
            at(1, "rw-s", "00:01", "/dev/zero (deleted)"),
            at(2, "rw-s", "00:01", "/SYSV00000000 (deleted)"),
            at(10, "rw-s", "00:01", "[anon_shmem:buffers]"),
            at(3, "rw-s", "00:1b", "/dev/shm/segment"),
            at(4, "rw-s", "00:10", "/anon_hugepage (deleted)"),
            // No shared memory: private, on a disk, a device, anonymous.
            at(5, "rw-p", "00:01", "/memfd:x (deleted)"),
            at(6, "rw-s", "fe:00", "/var/lib/data"),
            at(7, "rw-s", "00:05", "/dev/dri/card0"),
            at(8, "rw-p", "00:00", ""),
            at(9, "rw-s", "00:1b", "/dev/dri/card0").replace(" ms", " ms io pf"),
        ]
        .concat();
        let found = read(&text);
        let resident: u64 = found.iter().map(|mapping| mapping.resident_bytes).sum();
        assert_eq!((found.len(), resident), (5, 5 * 4096 * 1024));
        let remedy = |n: usize, setting| found[n].remedy(Some(setting)).unwrap_or_default();
        for internal in [0, 1, 2] {
            assert!(remedy(internal, "never").contains("shmem_enabled=advise"));
            assert!(remedy(internal, "advise").starts_with("start the program again"));
        }
        assert!(remedy(3, "advise").starts_with("remount its tmpfs with huge=advise"));
        assert_eq!(found[4].remedy(Some("never")), None);
    }
}
