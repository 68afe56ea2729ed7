//! Facts that are read, not tried: privileges, lockdown, containers, settings.

use crate::machine_lease::thp_settings::{
    HUGE_PAGE_SIZE_FILE, THP_DIR, enabled_file, huge_page_bytes, read_setting,
};
use crate::memory::cgroup_limits::{self, CgroupVersion};
use crate::memory::system_memory;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PageOrder};
use procfs::process::Process;
use procfs::{Current, Meminfo};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The largest huge page that is promoted or prefaulted. What the policies and their costs rest on
/// was measured with this size: zeroing 32 MiB takes a program's memory for 16 times as long.
const LARGEST_PROMOTED_BYTES: u64 = 2 << 20;

/// Kernel lockdown (`man 7 kernel_lockdown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelLockdown {
    /// Off, or not compiled in.
    None,
    /// Allows everything that the manager does.
    Integrity,
    /// Forbids BPF to read kernel memory.
    Confidentiality,
    /// `/sys/kernel/security` cannot be read.
    Unknown,
}

/// The machine and the environment of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFacts {
    /// `uname -r`.
    pub kernel: String,
    /// Names of the capabilities that managing other processes needs and this process lacks.
    pub missing_capabilities: Vec<String>,
    /// Kind of the container in which this process runs, if any.
    pub container: Option<String>,
    /// Kernel lockdown.
    pub lockdown: KernelLockdown,
    /// Size of a base page.
    pub base_page_bytes: u64,
    /// Size of a transparent huge page; `None`: the kernel has none, or it is unknown.
    pub huge_page_bytes: Option<u64>,
    /// `enabled` of transparent huge pages; `None`: the kernel has none.
    pub thp_enabled: Option<String>,
    /// Whether `PR_SET_THP_DISABLE` is set for this process, and so for every program that it
    /// starts.
    pub own_thp_disabled: bool,
    /// The cgroup hierarchy that limits memory.
    pub cgroup: Option<String>,
    /// Whether the kernel reports how long tasks wait for memory.
    pub psi: bool,
    /// Swap (zram included), in bytes.
    pub swap_bytes: u64,
}

impl HostFacts {
    /// Why this kernel's page sizes cannot be managed, as a clause; `None`: they can.
    pub fn unsupported_page_sizes(&self) -> Option<String> {
        let base_bytes = format_page_size(self.base_page_bytes);
        let huge_bytes = match (self.huge_page_bytes, &self.thp_enabled) {
            (Some(bytes), _) => bytes,
            // A kernel without huge pages has none of another size.
            (None, None) if self.base_page_bytes == BASE_PAGE_BYTES => return None,
            (None, None) => {
                return Some(format!(
                    "this kernel's base pages have {base_bytes}, but this build of HawkEye manages base pages of {}",
                    format_page_size(BASE_PAGE_BYTES)
                ));
            }
            (None, Some(_)) => {
                return Some(format!(
                    "the size of this kernel's huge pages is unknown, because {THP_DIR}/{HUGE_PAGE_SIZE_FILE} cannot be read"
                ));
            }
        };
        if (self.base_page_bytes, huge_bytes) == (BASE_PAGE_BYTES, HUGE_PAGE_BYTES) {
            return None;
        }
        Some(format!(
            "this kernel's base pages have {base_bytes} and its huge pages {}, but this build of HawkEye manages base pages of {} and huge pages of {}",
            format_page_size(huge_bytes),
            format_page_size(BASE_PAGE_BYTES),
            format_page_size(HUGE_PAGE_BYTES),
        ))
    }

    /// Why no region is promoted or prefaulted here, as a clause; `None`: the page sizes allow it.
    pub fn why_nothing_promoted(&self) -> Option<String> {
        self.unsupported_page_sizes().or_else(|| {
            (HUGE_PAGE_BYTES > LARGEST_PROMOTED_BYTES).then(|| {
                format!(
                    "this kernel's huge pages have {}, and HawkEye promotes none of more than {}",
                    format_page_size(HUGE_PAGE_BYTES),
                    format_page_size(LARGEST_PROMOTED_BYTES)
                )
            })
        })
    }

    /// The page sizes, where both are known and nothing is promoted; `None` otherwise.
    pub fn unmanaged_page_sizes(&self) -> Option<UnmanagedPageSizes> {
        let (base_page_bytes, huge_page_bytes) = (self.base_page_bytes, self.huge_page_bytes?);
        self.why_nothing_promoted()?;
        Some(UnmanagedPageSizes { base_page_bytes, huge_page_bytes })
    }
}

/// Page sizes of a kernel on which nothing is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnmanagedPageSizes {
    /// Size of a base page.
    pub base_page_bytes: u64,
    /// Size of a transparent huge page.
    pub huge_page_bytes: u64,
}

impl UnmanagedPageSizes {
    /// Base pages in a huge page.
    pub fn pages_per_huge_page(self) -> u64 {
        self.huge_page_bytes / self.base_page_bytes.max(1)
    }
}

/// Size of this kernel's base pages, in bytes.
pub fn base_page_bytes_of_kernel() -> u64 {
    procfs::page_size()
}

/// A page size for people: `16 KiB`.
pub fn format_page_size(bytes: u64) -> String {
    PageOrder::from_bytes(bytes).map_or_else(|| format!("{bytes} bytes"), |order| order.to_string())
}

/// CAP_* numbers, include/uapi/linux/capability.h.
const NEEDED_CAPABILITIES: [(&str, u32); 4] =
    [("CAP_SYS_PTRACE", 19), ("CAP_SYS_NICE", 23), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// Reads all facts about the host.
pub fn read_host_facts() -> HostFacts {
    let status = Process::myself().and_then(|process| process.status()).ok();
    let effective = status.as_ref().map_or(0, |status| status.capeff);
    // CAP_SYS_ADMIN includes the two newer ones.
    let admin = effective & (1 << 21) != 0;
    let missing = NEEDED_CAPABILITIES
        .iter()
        .filter(|(_, bit)| effective & (1 << bit) == 0 && !(admin && *bit >= 38))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    HostFacts {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| "unknown".into(), |release| release.trim().to_owned()),
        missing_capabilities: missing,
        container: detect_container_kind(),
        lockdown: read_kernel_lockdown(),
        base_page_bytes: base_page_bytes_of_kernel(),
        huge_page_bytes: huge_page_bytes(),
        thp_enabled: read_setting(&enabled_file()).ok(),
        own_thp_disabled: status.is_some_and(|status| status.thp_enabled == Some(false)),
        cgroup: cgroup_limits::find_memory_hierarchy().map(|(version, _)| match version {
            CgroupVersion::V1 => "version 1".into(),
            CgroupVersion::V2 => "version 2".into(),
        }),
        psi: system_memory::memory_pressure_percent().is_some(),
        swap_bytes: Meminfo::current().map_or(0, |memory| memory.swap_total),
    }
}

fn read_kernel_lockdown() -> KernelLockdown {
    match fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(text) if text.contains("[confidentiality]") => KernelLockdown::Confidentiality,
        Ok(text) if text.contains("[integrity]") => KernelLockdown::Integrity,
        Ok(_) => KernelLockdown::None,
        // Without securityfs the lockdown is unknown; what it would forbid is tried anyway.
        Err(_) => KernelLockdown::Unknown,
    }
}

fn detect_container_kind() -> Option<String> {
    let by_init = fs::read_to_string("/run/systemd/container").unwrap_or_default();
    if !by_init.trim().is_empty() {
        return Some(by_init.trim().to_owned());
    }
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    if let Some((_, kind)) = marks.iter().find(|(file, _)| Path::new(file).exists()) {
        return Some((*kind).into());
    }
    std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".into())
}
