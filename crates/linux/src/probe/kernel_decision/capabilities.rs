//! Each capability: whether it is available, how that was checked, what is lost without it.

use super::ManagerCapability;
use crate::probe::KernelCheckResult;
use crate::probe::kernel_facts::KernelFacts;
use crate::probe::mthp_sizes::PageSizeFacts;
use hawkeye_policy::PageOrder;

/// Kernels with splits that keep marks.
const MARK_KEPT: &str = "Linux 6.18, or a stable kernel with the fix of 2025-09-30 (the zero-page remap keeps soft-dirty and uffd-wp bits)";

/// All capabilities, in order of importance.
pub(super) fn capabilities_from_facts(facts: &KernelFacts) -> Vec<ManagerCapability> {
    let host = &facts.host;
    let levels = facts.page_table_levels.map(|n| format!("works, {n}-level page tables"));
    let walk = availability_by_check(&facts.page_table_walk);
    let mut access_bits = availability_by_check(&facts.access_bits);
    if access_bits.0 {
        let ns = facts.first_touch_ns;
        let set_by = if facts.first_touch_faults {
            ", set in page faults, because this processor sets none"
        } else {
            ""
        };
        access_bits.1 = format!("works{set_by}; a first touch after a clear costs {ns} ns");
    }
    let prezeroing = &facts.prezeroing;
    let swap = (host.swap_bytes > 0).then(|| format!("{} MiB", host.swap_bytes >> 20));
    vec![
        capability(
            "promotion",
            availability_by_check(&facts.collapse),
            "MADV_COLLAPSE on a child process, then its page table and contents",
            "everything: no region can be made huge",
            "Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE, and CAP_SYS_NICE + CAP_SYS_PTRACE",
        ),
        capability(
            "page-table walk",
            (walk.0, levels.unwrap_or(walk.1)),
            "BPF programs loaded; they found a known value through the direct map",
            "exact coverage (population is then read from /proc/PID/pagemap, more slowly)",
            "CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF, CAP_BPF + CAP_PERFMON, lockdown below confidentiality",
        ),
        capability(
            "access bits",
            access_bits,
            "MADV_COLD on a child: its access bits read as clear, and as set after it has read its memory",
            "HawkEye's promotion order (regions are then ranked by DAMON's estimate or by population)",
            "process_madvise(MADV_COLD) (CAP_SYS_NICE) and the page-table walk",
        ),
        capability(
            "DAMON",
            availability_by_check(&facts.damon),
            "a short session on a child process, which touches half of its memory",
            "nothing while access bits work; otherwise the estimate of coverage",
            "Linux 6.2 or later with CONFIG_DAMON_VADDR and CONFIG_DAMON_SYSFS, and no other program that uses DAMON",
        ),
        capability(
            "split",
            availability_by_check(&facts.split),
            "MADV_COLD on one base page of a child's huge page",
            "bloat recovery",
            "Linux 5.10 or later",
        ),
        capability(
            "shared memory",
            availability_by_check(&facts.shared_memory),
            "MADV_COLLAPSE on a child's shared memory, then its page table and contents",
            "huge pages in shared memory",
            "what promotion and the page-table walk need, CONFIG_SHMEM, and shmem_enabled other than deny",
        ),
        capability(
            "zero-page remap",
            availability_by_check(&facts.zero_page_remap),
            "split of a child's huge page with 10 base pages in use: its memory shrank, its contents stayed",
            "bloat recovery without swap",
            "Linux 6.12 or later",
        ),
        capability(
            "soft-dirty bits",
            availability_by_check(&facts.soft_dirty),
            "split of a child's huge page with used and zero pages, all written since a clear: pagemap shows both as written",
            "bloat recovery where zero pages are remapped, because CRIU would take changed pages for unchanged ones",
            MARK_KEPT,
        ),
        capability(
            "write protection",
            availability_by_check(&facts.write_protection),
            "split of a child's huge page that userfaultfd protects: pagemap shows used and zero pages as protected",
            "bloat recovery where zero pages are remapped, because a monitor (a QEMU snapshot, for example) would miss writes",
            MARK_KEPT,
        ),
        capability(
            "zero pages to swap",
            availability_by_check(&facts.page_out),
            "MADV_PAGEOUT on the zero pages of a child's split huge page",
            "nothing while the zero-page remap works; otherwise bloat recovery",
            "swap, preferably zram, in which zero pages take no room",
        ),
        capability(
            "fault-ahead by collapse",
            availability_by_check(&facts.prefault_by_collapse),
            "1-byte read of a child's untouched region, then MADV_COLLAPSE",
            "nothing while fault-ahead by remote read works",
            "Linux 6.18 or later",
        ),
        capability(
            "fault-ahead by remote read",
            availability_by_check(&facts.prefault_by_read),
            "use_zero_page=0 for a moment, then a 1-byte read of a child's untouched region",
            "nothing while fault-ahead by collapse works",
            "a writable /sys/kernel/mm/transparent_hugepage/use_zero_page",
        ),
        capability(
            "small pages",
            availability_by_check(&small_pages_result(&facts.small_pages)),
            "each size switched to madvise for a moment; one touch by a child mapped a whole page of that size",
            "pages of 16 KiB to 1 MiB for memory that is too small or too sparse for huge ones (--small-pages)",
            "Linux 6.8 or later, and writable /sys/kernel/mm/transparent_hugepage/hugepages-*kB",
        ),
        capability(
            "first touches",
            availability_by_check(&facts.first_touches),
            "BPF on page faults; a child touched memory region by region, and its page faults were reported",
            "prefault (--fault-ahead)",
            "what the page-table walk needs, and CONFIG_FTRACE or CONFIG_KPROBES where page faults have no tracepoint",
        ),
        capability(
            "pre-zeroed memory",
            (prezeroing.works(), prezeroing.describe()),
            "/sys/kernel/mm/prezero and the settings of the module prezero",
            "page faults that find memory zeroed already (prefault provides this for streams only)",
            "a kernel built with HawkEye's patches (kernel/README.md), and `modprobe prezero`",
        ),
        capability(
            "hardware counters",
            availability_by_check(&facts.counters),
            "this processor's page-walk events, counted in a child process",
            "overhead measured in page-walk cycles (walk-rate sampling estimates it instead)",
            "bare metal, or a virtual machine with a virtual PMU",
        ),
        capability(
            "cgroup limits",
            availability_if_found(host.cgroup.clone()),
            "the memory controller under /sys/fs/cgroup",
            "watermarks for single containers (the machine's watermarks still apply)",
            "cgroup version 2 or 1 with the memory controller",
        ),
        capability(
            "memory pressure",
            availability_if_found(host.psi.then(|| "works".into())),
            "/proc/pressure/memory",
            "holding promotion while tasks wait for memory (the watermarks still apply)",
            "CONFIG_PSI, and psi=1 on the kernel command line where it is off by default",
        ),
        capability(
            "swap",
            availability_if_found(swap),
            "/proc/swaps",
            "bloat recovery on kernels before 6.12",
            "swap space (swapon), preferably on zram",
        ),
    ]
}

/// Works if one size works.
fn small_pages_result(sizes: &[PageSizeFacts]) -> KernelCheckResult {
    if sizes.iter().any(|size| size.tried.works()) {
        return KernelCheckResult::Works;
    }
    sizes.first().map_or_else(
        || {
            let [base, huge] = [PageOrder::BASE, PageOrder::HUGE];
            KernelCheckResult::Fails(format!("this kernel has no sizes between {base} and {huge}"))
        },
        |size| size.tried.clone(),
    )
}

fn capability(
    name: &'static str,
    (available, found): (bool, String),
    how: &'static str,
    lost: &'static str,
    remedy: &'static str,
) -> ManagerCapability {
    ManagerCapability { name, available, how, found, lost, remedy }
}

fn availability_by_check(checked: &KernelCheckResult) -> (bool, String) {
    (checked.works(), checked.to_string())
}

fn availability_if_found(found: Option<String>) -> (bool, String) {
    let available = found.is_some();
    (available, found.unwrap_or_else(|| "not found".into()))
}
