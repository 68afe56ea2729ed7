//! What differs between processor architectures, one file each.
//!
//! Page-table entries and the sources of first touches are in `bpf/arch/`. No other file of the
//! product names an architecture. Everything here is built and tested on all of them.

pub mod aarch64;
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::FIRST_TOUCH_PROGRAMS;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::FIRST_TOUCH_PROGRAMS;

use crate::sample::counters::events::WalkEventSet;
use hawkeye_policy::PageOrderSet;

/// The events that count page walks on the processor that this text of `/proc/cpuinfo` describes;
/// `None`: not known.
pub fn walk_events(cpuinfo: &str) -> Option<WalkEventSet> {
    x86_64::walk_events(cpuinfo).or_else(|| aarch64::walk_events(cpuinfo))
}

/// Vendor and model of the processor.
pub fn processor_model(cpuinfo: &str) -> String {
    let model = x86_64::processor_model(cpuinfo).or_else(|| aarch64::processor_model(cpuinfo));
    model.unwrap_or_else(|| "unknown".into())
}

/// Page sizes that one entry of the processor's TLB holds, in addition to base pages. They are
/// derived from its model, because no interface reports them. Huge pages only where it is not
/// known.
pub fn tlb_page_sizes(cpuinfo: &str) -> PageOrderSet {
    let sizes = x86_64::tlb_page_sizes(cpuinfo).or_else(|| aarch64::tlb_page_sizes(cpuinfo));
    sizes.unwrap_or(PageOrderSet::HUGE)
}

/// The same for the processor of this machine.
pub fn tlb_page_sizes_of_this_machine() -> PageOrderSet {
    tlb_page_sizes(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// The largest page below a huge page that one entry of the processor's TLB holds, in bytes, where
/// base pages have this size. `None`: there is none, or it is not known.
pub fn contiguous_bytes(cpuinfo: &str, base_page_bytes: u64) -> Option<u64> {
    aarch64::contiguous_bytes(cpuinfo, base_page_bytes)
}

/// The same for the processor and kernel of this machine.
pub fn contiguous_bytes_of_this_machine() -> Option<u64> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    contiguous_bytes(&cpuinfo, procfs::page_size())
}

#[cfg(test)]
mod tests;
