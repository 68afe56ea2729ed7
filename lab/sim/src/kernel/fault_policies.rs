//! Behaviour of a kernel at a page fault: one constant for each system.

use hawkeye_policy::{PageOrder, PageOrderSet};

/// The first page of a region in which nothing is mapped yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstTouchPolicy {
    /// A base page.
    Base,
    /// A huge page, if a huge frame is free; otherwise a base page.
    Huge {
        /// Whether to compact memory for one first.
        compact: bool,
    },
    /// A base page in a huge frame that is reserved for the region.
    Reserve,
}

/// When memory is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroingPolicy {
    /// In the fault.
    InFault,
    /// In the fault, unless it was zeroed in advance.
    InAdvance,
    /// Never. No system does that: it shows the cost of zeroing (paper, Table 1).
    Never,
}

/// The behaviour of a kernel at a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPolicy {
    /// At the first fault in an empty region that one mapping holds in full.
    pub first_touch: FirstTouchPolicy,
    /// The same in a region of a file of shared memory (`shmem_enabled`). There
    /// [`FirstTouchPolicy::Reserve`] is as `Base`.
    pub first_touch_of_files: FirstTouchPolicy,
    /// Sizes below a huge page that a first touch maps where it maps no huge page. It maps the
    /// largest that fits and for which memory is free. Not for processes that have sizes of their
    /// own ([`SimulatedKernel::set_fault_sizes`](super::SimulatedKernel::set_fault_sizes)).
    pub sizes: PageOrderSet,
    /// Sizes that can be set for a process.
    pub offered_sizes: PageOrderSet,
    /// When memory is zeroed.
    pub zeroing: ZeroingPolicy,
    /// Whether it keeps a bitmap of pages that were faulted in and not freed. With it, pages that a
    /// promotion added don't count as used.
    pub counts_faulted: bool,
    /// Whether a read of untouched memory maps a shared page of zeros.
    pub shares_zero_page: bool,
}

/// Linux without huge pages (`enabled` is `never`): the paper's Linux-4KB.
pub const LINUX_BASE: FaultPolicy = FaultPolicy {
    first_touch: FirstTouchPolicy::Base,
    first_touch_of_files: FirstTouchPolicy::Base,
    sizes: PageOrderSet::NONE,
    offered_sizes: PageOrderSet::NONE,
    zeroing: ZeroingPolicy::InFault,
    counts_faulted: false,
    shares_zero_page: true,
};

/// Linux with transparent huge pages (`Documentation/admin-guide/mm/transhuge.rst`) and `defrag` at
/// `always`, the default until Linux 4.6: the paper's Linux-2MB. khugepaged is the policy `linux`.
pub const LINUX_THP: FaultPolicy =
    FaultPolicy { first_touch: FirstTouchPolicy::Huge { compact: true }, ..LINUX_BASE };

/// 16 KiB to 1 MiB: all sizes below a huge page. Anonymous folios of two pages don't exist
/// (`THP_ORDERS_ALL_ANON` of `include/linux/huge_mm.h`).
pub const MTHP_SIZES: PageOrderSet = {
    let mut sizes = PageOrderSet::NONE;
    let mut number = 2;
    while number < PageOrder::HUGE.log2_pages() as u8 {
        if let Some(order) = PageOrder::new(number) {
            sizes = sizes.with(order);
        }
        number += 1;
    }
    sizes
};

/// Ingens: base pages only (`__handle_mm_fault` in its deferred modes). Huge pages come later, by
/// the policy `ingens`. `do_anonymous_page` sets bits in its `population_node`, and `munmap` and
/// `MADV_DONTNEED` clear them.
pub const INGENS: FaultPolicy = FaultPolicy { counts_faulted: true, ..LINUX_BASE };

/// FreeBSD's reservations (`sys/vm/vm_reserv.c`; Navarro et al., OSDI'02).
///
/// The kernel reserves a huge frame at the first fault in a region and maps base pages in it as
/// they are touched. When all 512 are present it makes the frame a huge page. When memory is short
/// it gives back the rest of the least recently used reservation. `vm_fault` zero-fills a page of
/// its own for reads too.
pub const FREEBSD: FaultPolicy =
    FaultPolicy { first_touch: FirstTouchPolicy::Reserve, shares_zero_page: false, ..LINUX_BASE };

/// HawkEye-4KB: base pages, of memory that was zeroed in advance (paper, section 3.1).
pub const HAWKEYE_BASE: FaultPolicy =
    FaultPolicy { zeroing: ZeroingPolicy::InAdvance, ..LINUX_BASE };

/// HawkEye-2MB: a huge page at the first fault while any is free; no fault waits for compaction.
pub const HAWKEYE_HUGE: FaultPolicy =
    FaultPolicy { first_touch: FirstTouchPolicy::Huge { compact: false }, ..HAWKEYE_BASE };

/// HawkEye on a kernel with many sizes: first touches map base pages, or the manager's choice.
pub const HAWKEYE_SIZES: FaultPolicy = FaultPolicy { offered_sizes: MTHP_SIZES, ..HAWKEYE_BASE };
