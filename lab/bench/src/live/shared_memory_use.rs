//! How much shared memory a process maps, and how much of it by huge pages.

use super::prelude::*;
use super::proc_files::{find_bytes_by_name, read_process_file};
use crate::error::BenchError;

/// Shared memory that a process maps, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SharedMemoryUse {
    pub mapped_bytes: u64,
    /// What of it huge pages map, of THP or hugetlb.
    pub huge_bytes: u64,
}

impl SharedMemoryUse {
    /// The kernel walks the page tables of the process for it.
    pub(super) fn of_process(pid: u32) -> BenchResult<Self> {
        let status = read_process_file(pid, "status")?;
        let rollup = read_process_file(pid, "smaps_rollup")?;
        Self::parse(&status, &rollup).ok_or_else(|| missing(pid))
    }

    /// From the files `status` and `smaps_rollup`.
    fn parse(status: &str, rollup: &str) -> Option<Self> {
        Some(Self {
            mapped_bytes: parse_mapped_bytes(status)?,
            huge_bytes: find_bytes_by_name(rollup, "ShmemPmdMapped")? + hugetlb_bytes(status),
        })
    }

    pub(super) fn huge_percent(self) -> f64 {
        self.huge_bytes as f64 * 100.0 / self.mapped_bytes.max(1) as f64
    }
}

/// Shared memory that a process maps, without a walk of its page tables.
pub(super) fn mapped_shared_bytes(pid: u32) -> BenchResult<u64> {
    parse_mapped_bytes(&read_process_file(pid, "status")?).ok_or_else(|| missing(pid))
}

/// Huge pages of shared memory on the whole machine, in bytes, without hugetlb. No page table is
/// walked for it.
pub(super) fn machine_huge_shared_bytes() -> BenchResult<u64> {
    const FILE: &str = "/proc/meminfo";
    let text = std::fs::read_to_string(FILE).map_err(LinuxError::wrap_io_error("reading", FILE))?;
    find_bytes_by_name(&text, "ShmemHugePages")
        .ok_or_else(|| impossible!("the kernel does not report huge pages of shared memory"))
}

fn parse_mapped_bytes(status: &str) -> Option<u64> {
    Some(find_bytes_by_name(status, "RssShmem")? + hugetlb_bytes(status))
}

/// Kernels without hugetlb have no line for it.
fn hugetlb_bytes(status: &str) -> u64 {
    find_bytes_by_name(status, "HugetlbPages").unwrap_or(0)
}

fn missing(pid: u32) -> BenchError {
    impossible!("the kernel does not report shared memory of process {pid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_huge_pages_count() {
        let status = "RssAnon:\t    100 kB\nRssShmem:\t    6144 kB\nHugetlbPages:\t    2048 kB\n";
        let rollup = "00400000-7ffd00 ---p 00000000 00:00 0    [rollup]\nRss:  6244 kB\nShmemPmdMapped:     4096 kB\n";
        let found = SharedMemoryUse::parse(status, rollup).expect("has all lines");
        assert_eq!(found, SharedMemoryUse { mapped_bytes: 8 << 20, huge_bytes: 6 << 20 });
        assert_eq!(found.huge_percent(), 75.0);
        assert_eq!(SharedMemoryUse::parse(status, "Rss: 1 kB\n"), None);
    }

    #[test]
    fn shared_memory_of_this_process_is_known() {
        let found = SharedMemoryUse::of_process(std::process::id()).expect("is readable");
        assert!(found.huge_bytes <= found.mapped_bytes);
        // Kernels without huge pages do not report any.
        if let Ok(all) = machine_huge_shared_bytes() {
            assert_eq!(all % HUGE_PAGE_BYTES, 0);
        }
    }
}
