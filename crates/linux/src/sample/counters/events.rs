//! Hardware events that count page walks, by processor.
//!
//! Nothing in here has run on the hardware it is for: the machine on which it was written has no
//! counters. Encodings are `umask << 8 | event`, plus `cmask << 24` for cycles with at least one
//! walk.

use crate::name_value_lines;
use std::fmt;

/// Raw codes of hardware events (`config` of `perf_event_attr` with `PERF_TYPE_RAW`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCodeOverrides {
    /// Cycles in page walks for loads.
    pub load_walk_cycles: Option<u64>,
    /// Cycles in page walks for stores.
    pub store_walk_cycles: Option<u64>,
    /// All cycles.
    pub cycles: Option<u64>,
}

/// Vendor and model of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuModel {
    /// `GenuineIntel`, by family and model (CPUID leaf 1, both with their extensions).
    Intel {
        /// 6 for all models in the table.
        family: u32,
        /// The model number.
        model: u32,
    },
    /// `AuthenticAMD`.
    Amd {
        /// 0x17 to 0x1a for Zen.
        family: u32,
        /// The model number.
        model: u32,
    },
    /// Arm, by the part number in MIDR_EL1.
    Arm {
        /// Bits 4-15.
        part: u32,
    },
    /// Any other processor, by the name that it reports.
    Other(String),
}

impl CpuModel {
    /// From the text of `/proc/cpuinfo`.
    pub fn from_cpuinfo(cpuinfo: &str) -> Self {
        let field = |name| name_value_lines::find_value_by_name(cpuinfo, name);
        let number = |name| field(name).and_then(|n| n.parse().ok()).unwrap_or(0);
        let (family, model) = (number("cpu family"), number("model"));
        match field("vendor_id") {
            Some("GenuineIntel") => Self::Intel { family, model },
            Some("AuthenticAMD") => Self::Amd { family, model },
            vendor => {
                let part = field("CPU part").and_then(|part| part.strip_prefix("0x"));
                match part.and_then(|part| u32::from_str_radix(part, 16).ok()) {
                    // Implementer 0x41 is Arm itself.
                    Some(part) if field("CPU implementer") == Some("0x41") => Self::Arm { part },
                    _ => Self::Other(vendor.unwrap_or("unknown").to_owned()),
                }
            }
        }
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intel { family, model } => write!(f, "Intel family {family} model {model:#x}"),
            Self::Amd { family, model } => write!(f, "AMD family {family:#x} model {model:#x}"),
            Self::Arm { part } => write!(f, "Arm part {part:#x}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// The events that are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkEventSet {
    /// Their names in the vendor's manuals; empty where the configuration names the events.
    pub name: &'static str,
    /// Raw events for loads and for stores; one event where a processor counts them together.
    pub walks: (u64, Option<u64>),
    /// Cycles per count: 1 where cycles are counted, an estimate where walks are counted.
    pub cycles_per_count: f64,
    /// Raw event for unhalted cycles; `None`: the kernel's generic cycles event.
    pub cycles: Option<u64>,
}

impl WalkEventSet {
    /// Whether walks are counted instead of their cycles.
    pub fn is_estimate(&self) -> bool {
        self.cycles_per_count != 1.0
    }
}

/// Assumed cost of a page walk where only walks are counted, in cycles. It lies between a walk from
/// the first-level cache and one from the last-level cache. The low and high estimates are a factor
/// of 2 away from it.
const CYCLES_PER_WALK: f64 = 35.0;

const fn event_set_of_cycles(name: &'static str, loads: u64, stores: u64) -> WalkEventSet {
    WalkEventSet { name, walks: (loads, Some(stores)), cycles_per_count: 1.0, cycles: None }
}

const fn event_set_of_walks(name: &'static str, loads_and_stores: u64) -> WalkEventSet {
    WalkEventSet {
        name,
        walks: (loads_and_stores, None),
        cycles_per_count: CYCLES_PER_WALK,
        cycles: None,
    }
}

// The codes of x86 are from Linux, tools/perf/pmu-events/arch/x86.
const WALK_ACTIVE: &str = "DTLB_{LOAD,STORE}_MISSES.WALK_ACTIVE";

/// Haswell, Broadwell: `DTLB_{LOAD,STORE}_MISSES.WALK_DURATION` (haswell/virtual-memory.json).
const HASWELL: WalkEventSet =
    event_set_of_cycles("DTLB_{LOAD,STORE}_MISSES.WALK_DURATION", 0x1008, 0x1049);
/// Skylake, Cascade Lake, Ice Lake: `DTLB_{LOAD,STORE}_MISSES.WALK_ACTIVE`
/// (skylakex/virtual-memory.json, icelakex/virtual-memory.json).
const SKYLAKE: WalkEventSet = event_set_of_cycles(WALK_ACTIVE, 0x0100_1008, 0x0100_1049);
/// Sapphire, Emerald, Granite Rapids: the same (sapphirerapids/virtual-memory.json; Granite Rapids
/// is taken to be the same).
const SAPPHIRE_RAPIDS: WalkEventSet = event_set_of_cycles(WALK_ACTIVE, 0x0100_1012, 0x0100_1013);
/// Zen 2 to 5: `ls_l1_d_tlb_miss.*_l2_miss`, umask 0xf0 (amdzen3/memory.json; 2, 4 and 5 are taken
/// to be the same).
const ZEN: WalkEventSet = event_set_of_walks("ls_l1_d_tlb_miss.*_l2_miss", 0xf045);
/// Neoverse N1, V1, N2, V2: `DTLB_WALK`, a common event of Arm's PMUv3 (Arm Architecture Reference
/// Manual; not looked up again).
const NEOVERSE: WalkEventSet = event_set_of_walks("DTLB_WALK", 0x34);

/// Reason why a processor's walks are not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountersUnavailable {
    /// The processor is not in the table.
    #[error(
        "the events that count page walks on this processor ({0}) are not known; name them in [counters] of the configuration"
    )]
    UnknownProcessor(String),
    /// The configuration overrides only half of the events.
    #[error("[counters] must set load_walk_cycles if it sets store_walk_cycles or cycles")]
    IncompleteOverride,
    /// The kernel counts no hardware events here.
    #[error(
        "the kernel cannot count page-walk events here ({0}): most virtual machines have no counters"
    )]
    NotCounted(String),
}

/// The events for a processor; the configuration takes precedence over the table.
pub fn choose_walk_events(
    cpu: &CpuModel,
    overrides: EventCodeOverrides,
) -> Result<WalkEventSet, CountersUnavailable> {
    if let Some(load) = overrides.load_walk_cycles {
        return Ok(WalkEventSet {
            name: "",
            walks: (load, overrides.store_walk_cycles),
            cycles_per_count: 1.0,
            cycles: overrides.cycles,
        });
    }
    if overrides != EventCodeOverrides::default() {
        return Err(CountersUnavailable::IncompleteOverride);
    }
    let unknown = || CountersUnavailable::UnknownProcessor(cpu.to_string());
    // Model numbers: Linux arch/x86/include/asm/intel-family.h; parts:
    // arch/arm64/include/asm/cputype.h.
    Ok(match *cpu {
        CpuModel::Intel { family: 6, model } => match model {
            0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 => HASWELL,
            0x4e | 0x5e | 0x55 | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x6a | 0x6c | 0x7d | 0x7e | 0x8c
            | 0x8d | 0xa7 => SKYLAKE,
            0x8f | 0xcf | 0xad | 0xae => SAPPHIRE_RAPIDS,
            _ => return Err(unknown()),
        },
        // Family 0x17 up to model 0x2f is Zen 1, which has other event codes.
        CpuModel::Amd { family: 0x17, model: 0x30.. } => ZEN,
        CpuModel::Amd { family: 0x19 | 0x1a, .. } => ZEN,
        CpuModel::Arm { part: 0xd0c | 0xd40 | 0xd49 | 0xd4f } => NEOVERSE,
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_recognised_by_their_numbers() {
        let intel = |model| CpuModel::Intel { family: 6, model };
        let amd = |family, model| CpuModel::Amd { family, model };
        for (cpu, set) in [
            (intel(0x3f), Some(HASWELL)),
            (intel(0x55), Some(SKYLAKE)),
            (intel(0x6a), Some(SKYLAKE)),
            (intel(0x8f), Some(SAPPHIRE_RAPIDS)),
            // Nehalem.
            (intel(0x1a), None),
            (amd(0x17, 0x31), Some(ZEN)),
            // Zen 1.
            (amd(0x17, 0x01), None),
            (amd(0x1a, 0x02), Some(ZEN)),
            (CpuModel::Arm { part: 0xd49 }, Some(NEOVERSE)),
            (CpuModel::Other("RISC-V".into()), None),
        ] {
            assert_eq!(choose_walk_events(&cpu, EventCodeOverrides::default()).ok(), set, "{cpu}");
        }
    }

    #[test]
    fn cpuinfo_is_read() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\n";
        let (family, model) = (6, 143);
        assert_eq!(CpuModel::from_cpuinfo(intel), CpuModel::Intel { family, model });
        let arm =
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        assert_eq!(CpuModel::from_cpuinfo(arm), CpuModel::Arm { part: 0xd0c });
        assert_eq!(CpuModel::from_cpuinfo(""), CpuModel::Other("unknown".into()));
    }

    #[test]
    fn the_configuration_takes_precedence_over_the_table() {
        let unknown = CpuModel::Other("new".into());
        let overrides =
            EventCodeOverrides { load_walk_cycles: Some(0x1008), ..EventCodeOverrides::default() };
        let set =
            choose_walk_events(&unknown, overrides).expect("the configuration names the events");
        assert_eq!((set.walks, set.is_estimate()), ((0x1008, None), false));
        let half = EventCodeOverrides { cycles: Some(0x3c), ..EventCodeOverrides::default() };
        let incomplete = Err(CountersUnavailable::IncompleteOverride);
        assert_eq!(choose_walk_events(&unknown, half), incomplete);
    }
}
