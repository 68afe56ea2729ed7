//! Program text of a process, and what keeps it from huge pages.
//!
//! Text is executable memory of a file that its process can't write. `MADV_COLLAPSE` makes a window
//! of 2 MiB of it huge only where address and file offset are congruent modulo 2 MiB, and only on
//! file systems that the kernel allows. `docs/design/program-text.md` has what was measured.

use crate::error::Result;
use crate::processes::file_mappers::MappedFile;
use crate::processes::mappings::IneligibleReason;
use crate::processes::memory_maps::{self, field_bytes};
use crate::processes::mounts::MountedFileSystems;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, VmFlags};
use procfs::sys::kernel::Version;
use serde::Serialize;
use thiserror::Error;

/// Text of one file, mapped in one piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextMapping {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Offset in the file that `start` maps, in bytes.
    pub file_offset: u64,
    /// The file.
    #[serde(flatten)]
    pub file: MappedFile,
    /// Its name, as `/proc/PID/maps` shows it.
    pub path: String,
    /// The type of its file system, where the process's mounts show it.
    pub file_system: Option<String>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Part of it in huge pages, in bytes.
    pub huge_bytes: u64,
    /// What its process did that keeps it from huge pages.
    pub obstacle: Option<TextObstacle>,
}

/// What keeps text from huge pages, apart from its addresses and its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Error)]
#[serde(rename_all = "kebab-case")]
pub enum TextObstacle {
    /// Huge already, from the hugetlb pool.
    #[error("{}", IneligibleReason::HugeTlb)]
    HugeTlb,
    /// A promotion takes it out of the page tables of all mappers, and can't be taken back.
    #[error("the program locked it (mlock)")]
    Locked,
    /// Its monitor sees and answers each fault.
    #[error("{}", IneligibleReason::Userfaultfd)]
    Userfaultfd,
    /// Its owner called `madvise(MADV_NOHUGEPAGE)`.
    #[error("{}", IneligibleReason::NoHugePage)]
    NoHugePage,
}

/// The text of a process in pieces of at least 2 MiB, by address.
pub fn read_text_mappings(pid: u32) -> Result<Vec<TextMapping>> {
    let mounts = MountedFileSystems::of_process(pid);
    memory_maps::read_smaps(pid, |map| TextMapping::from_smaps(&map, &mounts))
}

impl TextMapping {
    /// A mapping of `smaps`; `None` if it is no text of a file, or less than 2 MiB of it.
    pub(crate) fn from_smaps(map: &MemoryMap, mounts: &MountedFileSystems) -> Option<Self> {
        let MMapPath::Path(path) = &map.pathname else {
            return None;
        };
        let (start, end) = map.address;
        let writable = MMPermissions::WRITE | MMPermissions::SHARED;
        let is_text = map.perms.contains(MMPermissions::EXECUTE) && !map.perms.intersects(writable);
        if !is_text || end - start < HUGE_PAGE_BYTES {
            return None;
        }
        let obstacles = [
            (VmFlags::HT, TextObstacle::HugeTlb),
            (VmFlags::UM | VmFlags::UW, TextObstacle::Userfaultfd),
            (VmFlags::NH, TextObstacle::NoHugePage),
            (VmFlags::LO, TextObstacle::Locked),
        ];
        let obstacle =
            obstacles.into_iter().find(|(flags, _)| map.extension.vm_flags.intersects(*flags));
        Some(Self {
            start,
            end,
            file_offset: map.offset,
            file: MappedFile { device: map.dev, inode: map.inode },
            path: path.display().to_string(),
            file_system: mounts.type_of(map.dev).map(str::to_owned),
            resident_bytes: field_bytes(map, "Rss"),
            huge_bytes: field_bytes(map, "ShmemPmdMapped") + field_bytes(map, "FilePmdMapped"),
            obstacle: obstacle.map(|(_, obstacle)| obstacle),
        })
    }

    /// Whether address and file offset are congruent modulo 2 MiB.
    pub fn is_aligned(&self) -> bool {
        self.start.wrapping_sub(self.file_offset) % HUGE_PAGE_BYTES == 0
    }

    /// Whole windows of 2 MiB that could be huge where they are mapped.
    pub fn windows(&self) -> u64 {
        let first = self.start.next_multiple_of(HUGE_PAGE_BYTES);
        match self.is_aligned() {
            true => self.end.saturating_sub(first) / HUGE_PAGE_BYTES,
            false => 0,
        }
    }

    /// These windows.
    pub fn regions(&self) -> impl Iterator<Item = RegionAddr> + use<> {
        let first = self.start.next_multiple_of(HUGE_PAGE_BYTES);
        (0..self.windows()).map(move |n| RegionAddr::containing(first + n * HUGE_PAGE_BYTES))
    }

    /// Whole windows that it would have if it began at a multiple of 2 MiB in memory and file.
    pub fn windows_if_aligned(&self) -> u64 {
        (self.end - self.start) / HUGE_PAGE_BYTES
    }
}

/// Which text outside of tmpfs the running kernel makes huge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelTextRule {
    /// On file systems that allow folios of 2 MiB (7.2).
    LargeFolios,
    /// On every file system: the kernel was built with `CONFIG_READ_ONLY_THP_FOR_FS`.
    ReadOnlyFiles,
    /// None: it was built without it.
    None,
    /// The kernel describes its types nowhere.
    #[default]
    Unknown,
}

impl KernelTextRule {
    /// That of the running kernel.
    pub fn of_running_kernel() -> Self {
        let since_large_folios = Version::new(7, 2, 0);
        match Version::current() {
            Ok(kernel) if kernel >= since_large_folios => Self::LargeFolios,
            _ => match has_read_only_file_thp() {
                Some(true) => Self::ReadOnlyFiles,
                Some(false) => Self::None,
                None => Self::Unknown,
            },
        }
    }
}

/// Whether the running kernel was built with `CONFIG_READ_ONLY_THP_FOR_FS`, an option until 7.1;
/// `None`: it has no BTF.
fn has_read_only_file_thp() -> Option<bool> {
    let btf = Btf::from_vmlinux().ok()?;
    let address_space: Struct<'_> = btf.type_by_name("address_space")?;
    // It exists with that option only (include/linux/fs.h).
    Some(address_space.iter().any(|member| member.name.is_some_and(|name| name == "nr_thps")))
}

/// Whether the running kernel makes text huge on a file system, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextSupport {
    /// It is on tmpfs, which every kernel from 6.1 on allows.
    Tmpfs,
    /// The file system allows folios of 2 MiB, and that is enough for this kernel.
    LargeFolios,
    /// The kernel was built with `CONFIG_READ_ONLY_THP_FOR_FS`.
    ReadOnlyFiles,
    /// The kernel was built without it.
    NoOption,
    /// The file system allows no folios of 2 MiB.
    SmallFolios,
    /// It is not known.
    Unknown,
}

impl TextSupport {
    /// What a kernel with this rule allows on a file system.
    pub fn of_file_system(file_system: Option<&str>, rule: KernelTextRule) -> Self {
        match (file_system, rule) {
            (Some("tmpfs"), _) => Self::Tmpfs,
            (Some("ext4" | "xfs"), KernelTextRule::LargeFolios) => Self::LargeFolios,
            (Some("btrfs"), KernelTextRule::LargeFolios) => Self::SmallFolios,
            (_, KernelTextRule::ReadOnlyFiles) => Self::ReadOnlyFiles,
            (_, KernelTextRule::None) => Self::NoOption,
            (_, KernelTextRule::LargeFolios | KernelTextRule::Unknown) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use procfs::process::MemoryMaps;

    const H: u64 = HUGE_PAGE_BYTES;

    fn read(lines: &[(u64, u64, &str, u64, &str, &str)]) -> Vec<TextMapping> {
        read_with_flags(lines, "rd ex mr")
    }

    fn read_with_flags(
        lines: &[(u64, u64, &str, u64, &str, &str)],
        flags: &str,
    ) -> Vec<TextMapping> {
        let lines = lines.iter().map(|(start, end, perms, offset, device, path)| {
            format!(
                "{start:x}-{end:x} {perms} {offset:08x} {device} 77 {path}\n\
                 Rss: 4096 kB\nShmemPmdMapped: 2048 kB\nFilePmdMapped: 0 kB\nVmFlags: {flags}\n"
            )
        });
        let text: String = lines.collect();
        let mounts = MountedFileSystems::parse(
            b"1 1 0:27 / /run rw - tmpfs tmpfs rw\n2 1 254:0 / / rw - ext4 /dev/vda rw\n",
        );
        let maps = MemoryMaps::from_buf_read(text.as_bytes()).expect("the text is valid");
        maps.iter().filter_map(|map| TextMapping::from_smaps(map, &mounts)).collect()
    }

    #[test]
    fn only_text_of_files_is_listed_with_its_file_system() {
        let found = read(&[
            (16 * H, 20 * H, "r-xp", 0, "fe:00", "/usr/bin/node"),
            (32 * H, 36 * H, "r-xp", 0, "00:1b", "/run/tool"),
            (48 * H, 52 * H, "r-xp", 0, "00:2a", "/btrfs/tool"),
            // No text: data, code that its process writes or shares, too small, no file.
            (64 * H, 68 * H, "r--p", 0, "fe:00", "/usr/bin/node"),
            (72 * H, 76 * H, "rwxp", 0, "fe:00", "/usr/bin/node"),
            (80 * H, 84 * H, "r-xs", 0, "fe:00", "/usr/bin/node"),
            (88 * H, 89 * H - 4096, "r-xp", 0, "fe:00", "/usr/bin/small"),
            (96 * H, 97 * H, "r-xp", 0, "00:00", "[vdso]"),
        ]);
        let types: Vec<_> = found.iter().map(|text| text.file_system.as_deref()).collect();
        assert_eq!(types, [Some("ext4"), Some("tmpfs"), None]);
        assert_eq!((found[0].resident_bytes, found[0].huge_bytes), (4 << 20, 2 << 20));
    }

    #[test]
    fn whole_windows_count_where_address_and_offset_are_congruent() {
        for (start, end, offset, windows, if_aligned) in [
            (16 * H, 20 * H, 0, 4, 4),
            // As in a program of 4 KiB segments, by chance: the first window is not whole.
            (16 * H + 0x5000, 20 * H, 3 * H + 0x5000, 3, 3),
            (16 * H + 0x5000, 17 * H + 0x6000, 0x5000, 0, 1),
            (16 * H + 0x5000, 20 * H + 0x5000, 0x1000, 0, 4),
        ] {
            let found = read(&[(start, end, "r-xp", offset, "fe:00", "/usr/bin/node")]);
            let counts = found.iter().map(|text| (text.windows(), text.windows_if_aligned()));
            assert_eq!(counts.collect::<Vec<_>>(), [(windows, if_aligned)], "{start:#x}");
            let regions: Vec<RegionAddr> = found[0].regions().collect();
            assert_eq!(regions.len() as u64, windows);
            let inside = |region: &RegionAddr| start <= region.start() && region.end() <= end;
            assert!(regions.iter().all(inside), "{regions:x?}");
        }
    }

    #[test]
    fn what_its_process_did_to_text_is_an_obstacle() {
        for (flags, expected) in [
            ("rd ex mr mw me", None),
            ("rd ex mr lo", Some(TextObstacle::Locked)),
            ("rd ex mr lo nh", Some(TextObstacle::NoHugePage)),
            ("rd ex mr um", Some(TextObstacle::Userfaultfd)),
            ("rd ex mr ht", Some(TextObstacle::HugeTlb)),
        ] {
            let line = (16 * H, 20 * H, "r-xp", 0, "00:1b", "/run/tool");
            let found = read_with_flags(&[line], flags);
            assert_eq!(found[0].obstacle, expected, "{flags}");
            assert_eq!(found[0].file, MappedFile { device: (0, 0x1b), inode: 77 });
        }
    }

    #[test]
    fn file_systems_are_supported_as_the_kernel_was_built() {
        use KernelTextRule as Rule;
        for (file_system, rule, expected) in [
            (Some("tmpfs"), Rule::None, TextSupport::Tmpfs),
            (Some("ext4"), Rule::None, TextSupport::NoOption),
            (Some("ext4"), Rule::ReadOnlyFiles, TextSupport::ReadOnlyFiles),
            (Some("ext4"), Rule::LargeFolios, TextSupport::LargeFolios),
            (Some("xfs"), Rule::LargeFolios, TextSupport::LargeFolios),
            (Some("btrfs"), Rule::LargeFolios, TextSupport::SmallFolios),
            (Some("overlay"), Rule::LargeFolios, TextSupport::Unknown),
            (None, Rule::Unknown, TextSupport::Unknown),
        ] {
            assert_eq!(TextSupport::of_file_system(file_system, rule), expected, "{file_system:?}");
        }
    }
}
