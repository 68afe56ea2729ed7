//! arm64. None of this has run on hardware yet.

use crate::name_value_lines::find_value_by_name;
use crate::sample::counters::events::WalkEventSet;
use hawkeye_policy::{PageOrder, PageOrderSet};

/// BPF programs that see first touches: sets of them in order of preference. One set is used whole.
pub const FIRST_TOUCH_PROGRAMS: &[&[&str]] = &[
    &["touch_by_access"],
    &["touch_of_base_folio", "touch_of_huge_page"],
    &["touch_of_base_page", "touch_of_huge_page"],
];

/// Neoverse N1, V1, N2, V2: `DTLB_WALK` (Linux tools/perf/pmu-events/arch/arm64/arm/, `tlb.json` in
/// neoverse-n1, neoverse-v1 and neoverse-n2-v2; its code: include/linux/perf/arm_pmuv3.h,
/// `ARMV8_PMUV3_PERFCTR_DTLB_WALK`). They count walks of loads and stores together, and no cycles
/// in walks. Counters may lack it, as in QEMU: the kernel lists what they have by the names in
/// drivers/perf/arm_pmuv3.c.
pub const NEOVERSE: WalkEventSet =
    WalkEventSet::of_walks("DTLB_WALK", 0x34).if_listed_as("dtlb_walk");

/// Implementer and part number (MIDR_EL1).
fn implementer_and_part(cpuinfo: &str) -> Option<(&str, u32)> {
    let part = find_value_by_name(cpuinfo, "CPU part")?.strip_prefix("0x")?;
    let implementer = find_value_by_name(cpuinfo, "CPU implementer")?;
    Some((implementer, u32::from_str_radix(part, 16).ok()?))
}

/// `None` for other architectures and unknown models.
pub fn walk_events(cpuinfo: &str) -> Option<WalkEventSet> {
    // Numbers: Linux arch/arm64/include/asm/cputype.h. Implementer 0x41 is Arm itself. 0x6d is
    // Microsoft: its Azure Cobalt 100 is "based on r0p0 of ARM Neoverse N2".
    match implementer_and_part(cpuinfo)? {
        ("0x41", 0xd0c | 0xd40 | 0xd49 | 0xd4f) | ("0x6d", 0xd49) => Some(NEOVERSE),
        _ => None,
    }
}

/// `None` for other architectures.
pub fn processor_model(cpuinfo: &str) -> Option<String> {
    Some(match implementer_and_part(cpuinfo)? {
        ("0x41", part) => format!("Arm part {part:#x}"),
        (implementer, part) => format!("implementer {implementer} part {part:#x}"),
    })
}

/// Contiguous entries of 16 base pages of 4 KiB, which Linux sets by itself since 6.9
/// (`arch/arm64/mm/contpte.c`), and of 16 huge pages, which only hugetlb uses. `None` for other
/// architectures.
pub fn tlb_page_sizes(cpuinfo: &str) -> Option<PageOrderSet> {
    let contiguous =
        PageOrderSet::HUGE.with(PageOrder::CONTIGUOUS).with(PageOrder::HUGE_CONTIGUOUS);
    implementer_and_part(cpuinfo).map(|_| contiguous.with(PageOrder::GIANT))
}

/// The memory that contiguous entries of base pages of this size cover, in bytes
/// (Documentation/arch/arm64/hugetlbpage.rst, CONT PTE). `None` for other architectures and sizes.
pub fn contiguous_bytes(cpuinfo: &str, base_page_bytes: u64) -> Option<u64> {
    implementer_and_part(cpuinfo)?;
    match base_page_bytes >> 10 {
        4 => Some(64 << 10),
        16 | 64 => Some(2 << 20),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::counters::is_event_listed;

    #[test]
    fn processors_are_recognised_by_their_numbers() {
        for (implementer, part, model, set) in [
            ("0x41", "0xd0c", "Arm part 0xd0c", Some(NEOVERSE)),
            ("0x41", "0xd40", "Arm part 0xd40", Some(NEOVERSE)),
            ("0x41", "0xd49", "Arm part 0xd49", Some(NEOVERSE)),
            ("0x41", "0xd4f", "Arm part 0xd4f", Some(NEOVERSE)),
            // Azure Cobalt 100; 0xd0c is Arm's number alone.
            ("0x6d", "0xd49", "implementer 0x6d part 0xd49", Some(NEOVERSE)),
            ("0x6d", "0xd0c", "implementer 0x6d part 0xd0c", None),
            // Cortex-A72.
            ("0x41", "0xd08", "Arm part 0xd08", None),
            // AmpereOne, which has the number of none of Arm's.
            ("0xc0", "0xac3", "implementer 0xc0 part 0xac3", None),
        ] {
            let cpuinfo = format!(
                "processor\t: 0\nCPU implementer\t: {implementer}\nCPU architecture: 8\nCPU part\t: {part}\n"
            );
            assert_eq!(walk_events(&cpuinfo), set, "{cpuinfo}");
            assert_eq!(processor_model(&cpuinfo).as_deref(), Some(model));
            let sizes = tlb_page_sizes(&cpuinfo).map(|sizes| sizes.to_string());
            assert_eq!(sizes.as_deref(), Some("64 KiB, 2 MiB, 32 MiB, 1 GiB"));
            let covered = [4, 8, 16, 64].map(|kib| contiguous_bytes(&cpuinfo, kib << 10));
            assert_eq!(covered, [Some(64 << 10), None, Some(2 << 20), Some(2 << 20)]);
        }
    }

    /// Events of counters without that of walks, as a virtual machine may show them.
    const WITHOUT_WALKS: [&str; 3] = ["cpu_cycles", "inst_retired", "sw_incr"];

    #[test]
    fn an_event_counts_where_the_kernel_lists_it() {
        let devices = tempfile::tempdir().expect("a folder can be made");
        let walks = NEOVERSE.listed_as.expect("not all of them have it");
        assert!(!is_event_listed(devices.path(), walks));
        std::fs::create_dir_all(devices.path().join("software")).expect("it can be made");
        let events = devices.path().join("armv8_pmuv3_0/events");
        std::fs::create_dir_all(&events).expect("it can be made");
        for name in WITHOUT_WALKS {
            std::fs::write(events.join(name), "event=0x0000\n").expect("it can be written");
        }
        assert!(!is_event_listed(devices.path(), walks));
        std::fs::write(events.join(walks), "event=0x0034\n").expect("it can be written");
        assert!(is_event_listed(devices.path(), walks));
        assert!(!is_event_listed(devices.path().join("absent"), walks));
    }
}
