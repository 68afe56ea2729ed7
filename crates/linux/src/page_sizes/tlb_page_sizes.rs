//! Page sizes that one entry of the processor's TLB holds, in addition to base pages. They are
//! derived from the processor's model, because no interface reports them.
//!
//! This was run on Intel only; the other models are from their manuals.

use crate::name_value_lines;
use hawkeye_policy::{PageOrder, PageOrderSet};
use std::env::consts::ARCH;
use std::fs;

/// 16 KiB: Zen merges four consecutive base pages into one entry.
const FOUR_PAGES: u8 = 2;

/// The sizes of this machine; only huge pages if `/proc/cpuinfo` cannot be read.
pub fn tlb_page_sizes_of_this_machine() -> PageOrderSet {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match ARCH {
        "x86_64" => x86_tlb_page_sizes(&cpuinfo),
        "aarch64" => arm_tlb_page_sizes(),
        // Only hugetlb uses Svnapot's 64 KiB (Linux 7.2).
        _ => PageOrderSet::HUGE,
    }
}

/// 1 GiB where the processor has it (`pdpe1gb`). AMD processors since Zen merge four neighbouring
/// base pages with neighbouring frames into one entry. The source is AMD's optimization guides
/// since Family 17h; it is not confirmed here.
fn x86_tlb_page_sizes(cpuinfo: &str) -> PageOrderSet {
    let field = |name| name_value_lines::find_value_by_name(cpuinfo, name).unwrap_or("");
    let mut orders = PageOrderSet::HUGE;
    if field("flags").split_whitespace().any(|f| f == "pdpe1gb") {
        orders = orders.with(PageOrder::GIANT);
    }
    let family: u32 = field("cpu family").parse().unwrap_or(0);
    let zen = match field("vendor_id") {
        "AuthenticAMD" => family >= 0x17,
        // Zen, under licence.
        "HygonGenuine" => family >= 0x18,
        _ => false,
    };
    match PageOrder::new(FOUR_PAGES) {
        Some(four) if zen => orders.with(four),
        _ => orders,
    }
}

/// Contiguous entries of 16 base pages of 4 KiB, which Linux sets by itself since 6.9
/// (`arch/arm64/mm/contpte.c`), and of 16 huge pages, which only hugetlb uses.
fn arm_tlb_page_sizes() -> PageOrderSet {
    PageOrderSet::HUGE
        .with(PageOrder::CONTIGUOUS)
        .with(PageOrder::HUGE_CONTIGUOUS)
        .with(PageOrder::GIANT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kind() {
        for (vendor, family, flags, sizes) in [
            // Zen merges four neighbours into one entry, Bulldozer does not.
            ("AuthenticAMD", 25, "fpu pdpe1gb sse", "16 KiB, 2 MiB, 1 GiB"),
            ("AuthenticAMD", 21, "fpu pdpe1gb", "2 MiB, 1 GiB"),
            ("GenuineIntel", 6, "fpu pdpe1gb", "2 MiB, 1 GiB"),
            ("GenuineIntel", 6, "fpu", "2 MiB"),
        ] {
            let cpu = format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: {flags}\n"
            );
            assert_eq!(x86_tlb_page_sizes(&cpu).to_string(), sizes, "{cpu}");
        }
        assert_eq!(x86_tlb_page_sizes("").to_string(), "2 MiB");
        assert_eq!(arm_tlb_page_sizes().to_string(), "64 KiB, 2 MiB, 32 MiB, 1 GiB");
    }
}
