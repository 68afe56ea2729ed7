//! Each capability: there or not, how that was checked, what is lost without it, what would bring it.

use super::Capability;
use crate::probe::checked::Checked;
use crate::probe::facts::{Facts, PageMark};
use crate::probe::small_pages::SizeFacts;

/// Free memory that the kernel has zeroed in advance.
const PREZEROED: &str = "pre-zeroed memory";

/// Everything, in the order of importance.
pub(super) fn all(facts: &Facts) -> Vec<Capability> {
    let host = &facts.host;
    let levels = facts
        .page_table_levels
        .map(|n| format!("works, {n}-level page tables"));
    vec![
        checked(
            "promotion",
            &facts.collapse,
            "MADV_COLLAPSE on a child process, then its page table and contents",
            "everything: no region can be made huge",
            "Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE, and CAP_SYS_NICE + CAP_SYS_PTRACE",
        ),
        Capability {
            found: levels.unwrap_or_else(|| describe(&facts.page_table_walk)),
            ..checked(
                "page-table walk",
                &facts.page_table_walk,
                "BPF programs loaded, a value of our own found through the direct map",
                "exact coverage; population comes from /proc/PID/pagemap, more slowly",
                "CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF, CAP_BPF + CAP_PERFMON, lockdown below confidentiality",
            )
        },
        Capability {
            found: match &facts.access_bits {
                Checked::Works => {
                    format!(
                        "works; a first touch after a clear costs {} ns",
                        facts.first_touch_ns
                    )
                }
                other => describe(other),
            },
            ..checked(
                "access bits",
                &facts.access_bits,
                "a child's bits cleared by MADV_COLD, read as clear, read as set after it read its memory",
                "HawkEye's order: regions are ranked by DAMON's estimate or by population",
                "process_madvise(MADV_COLD) (CAP_SYS_NICE) and the page-table walk",
            )
        },
        checked(
            "DAMON",
            &facts.damon,
            "a short session on a child process, which touches half of its memory",
            "nothing while access bits work; else coverage can't be estimated",
            "Linux 6.2 or later with CONFIG_DAMON_VADDR and CONFIG_DAMON_SYSFS, and nobody else using it",
        ),
        checked(
            "page_idle",
            &facts.page_idle,
            "/sys/kernel/mm/page_idle/bitmap",
            "nothing: it is only reported, access bits and DAMON are better",
            "CONFIG_IDLE_PAGE_TRACKING",
        ),
        checked(
            "split",
            &facts.split,
            "MADV_COLD on one base page of a child's huge page",
            "bloat recovery",
            "Linux 5.10 or later",
        ),
        checked(
            "zero-page remap",
            &facts.zero_page_remap,
            "a child's huge page with 10 pages in use, split: its memory shrank, its contents stayed",
            "bloat recovery without swap",
            "Linux 6.12 or later",
        ),
        mark(
            "soft-dirty bits",
            &facts.soft_dirty,
            "a child's huge page with used and zero pages, all written since a clear, split: pagemap shows both as written",
            "bloat recovery where zero pages are remapped: CRIU would take changed pages for unchanged ones",
        ),
        mark(
            "write protection",
            &facts.write_protection,
            "a child's huge page, protected by userfaultfd, split: pagemap shows used and zero pages as protected",
            "bloat recovery where zero pages are remapped: a monitor (a snapshot of QEMU) would miss writes",
        ),
        checked(
            "zero pages to swap",
            &facts.page_out,
            "MADV_PAGEOUT on the zero pages of a child's split huge page",
            "nothing while the zero-page remap works; else bloat recovery",
            "swap, best zram: zero pages take no room in it",
        ),
        checked(
            "fault-ahead by collapse",
            &facts.fault_ahead_collapse,
            "1-byte read of a child's untouched region, then MADV_COLLAPSE",
            "nothing while the other method works",
            "Linux 6.18 or later",
        ),
        checked(
            "fault-ahead by remote read",
            &facts.fault_ahead_read,
            "use_zero_page=0 for a moment, 1-byte read of a child's untouched region",
            "nothing while the other method works",
            "a writable /sys/kernel/mm/transparent_hugepage/use_zero_page",
        ),
        checked(
            "small pages",
            &small_pages(&facts.small_pages),
            "each size switched to madvise for a moment; one touch of a child mapped all of such a page",
            "pages of 16 KiB to 1 MiB for memory that is too small or too sparse for huge ones (--small-pages)",
            "Linux 6.8 or later, and writable /sys/kernel/mm/transparent_hugepage/hugepages-*kB",
        ),
        checked(
            "first touches",
            &facts.first_touches,
            "BPF on the tracepoint page_fault_user; a child touched memory region by region and was heard of",
            "fault-ahead",
            "the page-table walk, on x86-64 (its page faults have the tracepoint)",
        ),
        Capability {
            name: PREZEROED,
            available: facts.prezeroing.works(),
            how: "/sys/kernel/mm/prezero and the settings of the module prezero",
            found: facts.prezeroing.describe(),
            lost: "faults that find memory zeroed already, other than by streams",
            remedy: "a kernel built with HawkEye's patches (kernel/README.md), and `modprobe prezero`",
        },
        checked(
            "hardware counters",
            &facts.counters,
            "events of page walks chosen by processor, counted in a child process",
            "MMU overhead by page-walk cycles; run-rate takes their place",
            "bare metal, or a virtual machine with a virtual PMU",
        ),
        present(
            "cgroup limits",
            host.cgroup.clone(),
            "the memory controller under /sys/fs/cgroup",
            "watermarks of single containers; the machine's hold",
            "cgroup version 2 or 1 with the memory controller",
        ),
        present(
            "memory pressure",
            host.psi.then(|| "works".into()),
            "/proc/pressure/memory",
            "holding back while tasks wait for memory; the watermarks hold",
            "CONFIG_PSI, and psi=1 on the kernel command line where it is off by default",
        ),
        present(
            "swap",
            (host.swap_bytes > 0).then(|| format!("{} MiB", host.swap_bytes >> 20)),
            "/proc/swaps",
            "bloat recovery on kernels before 6.12",
            "swapon, best on zram",
        ),
    ]
}

/// Works where one size does.
fn small_pages(sizes: &[SizeFacts]) -> Checked {
    if sizes.iter().any(|size| size.tried.works()) {
        return Checked::Works;
    }
    sizes.first().map_or_else(
        || Checked::Fails("this kernel has no sizes between 4 KiB and 2 MiB".into()),
        |size| size.tried.clone(),
    )
}

/// In words.
pub(super) fn describe(checked: &Checked) -> String {
    match checked {
        Checked::Works => "works".into(),
        Checked::Fails(why) => why.clone(),
        Checked::NotTried(why) => format!("not tried: {why}"),
    }
}

fn checked(
    name: &'static str,
    checked: &Checked,
    how: &'static str,
    lost: &'static str,
    remedy: &'static str,
) -> Capability {
    let (available, found) = (checked.works(), describe(checked));
    Capability {
        name,
        available,
        how,
        found,
        lost,
        remedy,
    }
}

fn mark(name: &'static str, mark: &PageMark, how: &'static str, lost: &'static str) -> Capability {
    Capability {
        name,
        available: mark.is_safe(),
        how,
        found: match mark {
            PageMark::Kept => "kept by a split".into(),
            PageMark::Lost(why) => format!("lost: {why}"),
            PageMark::Absent(why) => format!("nothing to lose: {why}"),
            PageMark::NotTried(why) => format!("not tried: {why}"),
        },
        lost,
        remedy: "Linux 6.18, or a stable kernel with the fix of 2025-09-30 (the zero-page remap keeps soft-dirty and uffd-wp bits)",
    }
}

fn present(
    name: &'static str,
    found: Option<String>,
    how: &'static str,
    lost: &'static str,
    remedy: &'static str,
) -> Capability {
    let available = found.is_some();
    let found = found.unwrap_or_else(|| "not there".into());
    Capability {
        name,
        available,
        how,
        found,
        lost,
        remedy,
    }
}
