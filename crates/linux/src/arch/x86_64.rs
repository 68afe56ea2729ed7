//! x86-64.

use crate::name_value_lines::find_value_by_name;
use crate::sample::counters::events::WalkEventSet;
use hawkeye_policy::{PageOrder, PageOrderSet};

/// BPF programs that see first touches: sets of them in order of preference. One set is used whole.
pub const FIRST_TOUCH_PROGRAMS: &[&[&str]] = &[&["touch_by_program", "touch_for_program"]];

/// 16 KiB: Zen merges four consecutive base pages into one entry.
const FOUR_PAGES: u8 = 2;

// The codes are from Linux, tools/perf/pmu-events/arch/x86.
const WALK_ACTIVE: &str = "DTLB_{LOAD,STORE}_MISSES.WALK_ACTIVE";

/// Haswell, Broadwell: `DTLB_{LOAD,STORE}_MISSES.WALK_DURATION` (haswell/virtual-memory.json).
pub const HASWELL: WalkEventSet =
    WalkEventSet::of_cycles("DTLB_{LOAD,STORE}_MISSES.WALK_DURATION", 0x1008, 0x1049);
/// Skylake, Cascade Lake, Ice Lake: `DTLB_{LOAD,STORE}_MISSES.WALK_ACTIVE`
/// (skylakex/virtual-memory.json, icelakex/virtual-memory.json).
pub const SKYLAKE: WalkEventSet = WalkEventSet::of_cycles(WALK_ACTIVE, 0x0100_1008, 0x0100_1049);
/// Sapphire, Emerald, Granite Rapids: the same (sapphirerapids/virtual-memory.json; Granite Rapids
/// is taken to be the same).
pub const SAPPHIRE_RAPIDS: WalkEventSet =
    WalkEventSet::of_cycles(WALK_ACTIVE, 0x0100_1012, 0x0100_1013);
/// Zen 2 to 5: `ls_l1_d_tlb_miss.*_l2_miss`, umask 0xf0 (amdzen3/memory.json; 2, 4 and 5 are taken
/// to be the same).
pub const ZEN: WalkEventSet = WalkEventSet::of_walks("ls_l1_d_tlb_miss.*_l2_miss", 0xf045);

/// Vendor, family and model (CPUID leaf 1, both with their extensions).
fn vendor_family_model(cpuinfo: &str) -> Option<(&str, u32, u32)> {
    let field = |name| find_value_by_name(cpuinfo, name);
    let number = |name| field(name).and_then(|n| n.parse().ok()).unwrap_or(0);
    Some((field("vendor_id")?, number("cpu family"), number("model")))
}

/// `None` for other architectures and unknown models.
pub fn walk_events(cpuinfo: &str) -> Option<WalkEventSet> {
    // Model numbers: Linux arch/x86/include/asm/intel-family.h.
    match vendor_family_model(cpuinfo)? {
        ("GenuineIntel", 6, model) => match model {
            0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 => Some(HASWELL),
            0x4e | 0x5e | 0x55 | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x6a | 0x6c | 0x7d | 0x7e | 0x8c
            | 0x8d | 0xa7 => Some(SKYLAKE),
            0x8f | 0xcf | 0xad | 0xae => Some(SAPPHIRE_RAPIDS),
            _ => None,
        },
        // Family 0x17 up to model 0x2f is Zen 1, which has other event codes.
        ("AuthenticAMD", 0x17, 0x30..) | ("AuthenticAMD", 0x19 | 0x1a, _) => Some(ZEN),
        _ => None,
    }
}

/// `None` for other architectures.
pub fn processor_model(cpuinfo: &str) -> Option<String> {
    let (vendor, family, model) = vendor_family_model(cpuinfo)?;
    Some(match vendor {
        "GenuineIntel" => format!("Intel family {family} model {model:#x}"),
        "AuthenticAMD" => format!("AMD family {family:#x} model {model:#x}"),
        other => other.to_owned(),
    })
}

/// 1 GiB where the processor has it (`pdpe1gb`). AMD processors since Zen merge four neighbouring
/// base pages with neighbouring frames into one entry. The source is AMD's optimization guides
/// since Family 17h; it is not confirmed here. `None` for other architectures.
pub fn tlb_page_sizes(cpuinfo: &str) -> Option<PageOrderSet> {
    let (vendor, family, _) = vendor_family_model(cpuinfo)?;
    let flags = find_value_by_name(cpuinfo, "flags").unwrap_or("");
    let mut orders = PageOrderSet::HUGE;
    if flags.split_whitespace().any(|f| f == "pdpe1gb") {
        orders = orders.with(PageOrder::GIANT);
    }
    let zen = match vendor {
        "AuthenticAMD" => family >= 0x17,
        // Zen, under licence.
        "HygonGenuine" => family >= 0x18,
        _ => false,
    };
    Some(match PageOrder::new(FOUR_PAGES) {
        Some(four) if zen => orders.with(four),
        _ => orders,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpuinfo(vendor: &str, family: u32, model: u32, flags: &str) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: for a test\nflags\t\t: {flags}\n"
        )
    }

    #[test]
    fn events_are_those_of_the_model() {
        for (vendor, family, model, set) in [
            ("GenuineIntel", 6, 0x3f, Some(HASWELL)),
            ("GenuineIntel", 6, 0x55, Some(SKYLAKE)),
            ("GenuineIntel", 6, 0x6a, Some(SKYLAKE)),
            ("GenuineIntel", 6, 0x8f, Some(SAPPHIRE_RAPIDS)),
            // Nehalem.
            ("GenuineIntel", 6, 0x1a, None),
            ("AuthenticAMD", 0x17, 0x31, Some(ZEN)),
            // Zen 1.
            ("AuthenticAMD", 0x17, 0x01, None),
            ("AuthenticAMD", 0x1a, 0x02, Some(ZEN)),
        ] {
            let cpuinfo = cpuinfo(vendor, family, model, "");
            assert_eq!(walk_events(&cpuinfo), set, "{cpuinfo}");
        }
    }

    #[test]
    fn a_model_is_named_by_its_numbers() {
        let named = |vendor| processor_model(&cpuinfo(vendor, 6, 143, ""));
        assert_eq!(named("GenuineIntel").as_deref(), Some("Intel family 6 model 0x8f"));
        assert_eq!(named("AuthenticAMD").as_deref(), Some("AMD family 0x6 model 0x8f"));
        assert_eq!(named("CentaurHauls").as_deref(), Some("CentaurHauls"));
    }

    #[test]
    fn page_sizes_are_those_of_the_kind() {
        for (vendor, family, flags, sizes) in [
            // Zen merges four neighbours into one entry, Bulldozer does not.
            ("AuthenticAMD", 25, "fpu pdpe1gb sse", "16 KiB, 2 MiB, 1 GiB"),
            ("AuthenticAMD", 21, "fpu pdpe1gb", "2 MiB, 1 GiB"),
            ("GenuineIntel", 6, "fpu pdpe1gb", "2 MiB, 1 GiB"),
            ("GenuineIntel", 6, "fpu", "2 MiB"),
        ] {
            let found = tlb_page_sizes(&cpuinfo(vendor, family, 1, flags));
            assert_eq!(found.map(|found| found.to_string()).as_deref(), Some(sizes), "{vendor}");
        }
    }
}
