//! Which page sizes the processor's TLB holds by one entry, beside base pages: by its kind, for nothing shows it.
//!
//! Run on Intel alone; the others are by their manuals.

use crate::fields;
use hawkeye_policy::{PageOrder, PageOrders};
use std::env::consts::ARCH;
use std::fs;

/// 16 KiB: what Zen makes one entry of, where four base pages lie one after the other.
const FOUR_PAGES: u8 = 2;

/// Of this machine; huge pages alone where `/proc/cpuinfo` can't be read.
pub fn of_this_machine() -> PageOrders {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match ARCH {
        "x86_64" => x86(&cpuinfo),
        "aarch64" => arm(),
        // Svnapot's 64 KiB are used by hugetlb alone (Linux 7.2).
        _ => PageOrders::HUGE,
    }
}

/// 1 GiB where the processor has it (`pdpe1gb`). AMD's since Zen make one entry of four neighbouring base pages whose frames are
/// neighbours too (AMD's optimization guides since Family 17h; not confirmed here).
fn x86(cpuinfo: &str) -> PageOrders {
    let field = |name| fields::field(cpuinfo, name).unwrap_or("");
    let mut orders = PageOrders::HUGE;
    if field("flags").split_whitespace().any(|f| f == "pdpe1gb") {
        orders = orders.with(PageOrder::GIANT);
    }
    let family: u32 = field("cpu family").parse().unwrap_or(0);
    let zen = match field("vendor_id") {
        "AuthenticAMD" => family >= 0x17,
        // Zen under licence.
        "HygonGenuine" => family >= 0x18,
        _ => false,
    };
    match PageOrder::new(FOUR_PAGES) {
        Some(four) if zen => orders.with(four),
        _ => orders,
    }
}

/// Contiguous entries of 16 base pages, which Linux marks by itself since 6.9 (`arch/arm64/mm/contpte.c`), and of 16 huge
/// pages, which only hugetlb uses; with base pages of 4 KiB.
fn arm() -> PageOrders {
    PageOrders::HUGE
        .with(PageOrder::CONTIGUOUS)
        .with(PageOrder::HUGE_CONTIGUOUS)
        .with(PageOrder::GIANT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(vendor: &str, family: u32, flags: &str) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: {flags}\n"
        )
    }

    #[test]
    fn zen_holds_four_neighbours_by_one_entry() {
        let zen = x86(&cpu("AuthenticAMD", 25, "fpu pdpe1gb sse"));
        assert_eq!(zen.to_string(), "16 KiB, 2 MiB, 1 GiB");
        let bulldozer = x86(&cpu("AuthenticAMD", 21, "fpu pdpe1gb"));
        assert_eq!(bulldozer.to_string(), "2 MiB, 1 GiB");
    }

    #[test]
    fn intel_holds_what_its_flags_say() {
        let intel = x86(&cpu("GenuineIntel", 6, "fpu pdpe1gb"));
        assert_eq!(intel.to_string(), "2 MiB, 1 GiB");
        assert_eq!(x86(&cpu("GenuineIntel", 6, "fpu")).to_string(), "2 MiB");
        assert_eq!(x86("").to_string(), "2 MiB");
        assert_eq!(arm().to_string(), "64 KiB, 2 MiB, 32 MiB, 1 GiB");
    }
}
