//! Systems under comparison: a kernel's fault policy, and a manager between faults.

use crate::kernel::ZeroingSpec;
use crate::kernel::fault_policies::{
    self, FREEBSD, FaultPolicy, FirstTouchPolicy, HAWKEYE_BASE, HAWKEYE_HUGE, HAWKEYE_SIZES,
    LINUX_BASE, LINUX_THP, MTHP_SIZES, ZeroingPolicy,
};
use crate::mmu::ProcessorSpec;
use hawkeye_manager::Settings;
use hawkeye_policy::policies::{IngensSettings, PolicySettings, PromotionFloor};
use hawkeye_policy::{
    BloatThreshold, CpuBudget, PAGES_PER_REGION, PageOrder, PageOrderSet, RatePerSecond,
    SavingsShare, SettingError, Watermarks,
};
use std::time::Duration;
use thiserror::Error;

/// One system.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedSystem {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// The kernel's fault policy.
    pub faults: FaultPolicy,
    /// Name of the manager's policy.
    pub policy: &'static str,
    /// For Ingens: share of a region that must be in use, in per cent.
    utilisation_percent: Option<f64>,
    zeroes_ahead: bool,
    /// Promotions can have any size of which the processor has TLB entries, not only huge pages.
    many_sizes: bool,
    /// Memory can be prefaulted, not zeroed in advance, as on kernels without a zeroing thread.
    pub(crate) fills_ahead: bool,
    recovers: bool,
    /// The manager keeps to a CPU budget; threads of the papers' kernels don't.
    budgeted: bool,
    period: Duration,
    window: Duration,
}

const PLAIN: SimulatedSystem = SimulatedSystem {
    name: "linux-4k",
    about: "Linux with base pages only",
    faults: LINUX_BASE,
    policy: "none",
    utilisation_percent: None,
    zeroes_ahead: false,
    many_sizes: false,
    fills_ahead: false,
    recovers: false,
    budgeted: false,
    period: Duration::from_secs(30),
    window: Duration::from_secs(1),
};

const HAWKEYE: SimulatedSystem =
    SimulatedSystem { faults: HAWKEYE_HUGE, zeroes_ahead: true, recovers: true, ..PLAIN };

/// Faults wake Ingens' thread, which otherwise scans every 4 s; here it scans every second. Nothing
/// is promoted during a window, so windows are short.
const INGENS: SimulatedSystem = SimulatedSystem {
    faults: fault_policies::INGENS,
    policy: "ingens",
    period: Duration::from_secs(1),
    window: Duration::from_millis(50),
    ..PLAIN
};

/// The default of `defrag` since Linux 4.6. In the paper's fragmented runs programs start under
/// base pages too.
const NO_COMPACTION: FaultPolicy =
    FaultPolicy { first_touch: FirstTouchPolicy::Huge { compact: false }, ..LINUX_BASE };

/// The paper's rule, for `hawkeye` and `emd` as well: with it, tables from earlier versions stay
/// comparable.
const FLOOR: PromotionFloor = PromotionFloor::Minimum;
/// The same holds for this wait. Live it is shorter.
const GROWTH_UNTIL_FIRST_SAMPLE: Duration = Duration::from_secs(1);

/// All systems.
pub const SYSTEMS: [SimulatedSystem; 19] = [
    PLAIN,
    SimulatedSystem {
        name: "linux",
        about: "Linux with huge pages at first faults, and khugepaged; no fault waits for compaction",
        faults: NO_COMPACTION,
        policy: "linux",
        ..PLAIN
    },
    SimulatedSystem {
        name: "linux-async",
        about: "Linux with khugepaged alone: base pages at faults",
        policy: "linux",
        ..PLAIN
    },
    SimulatedSystem {
        name: "linux-shmem",
        about: "Linux with huge pages at first touches of shared memory (shmem_enabled=always), and base pages elsewhere",
        faults: FaultPolicy {
            first_touch_of_files: FirstTouchPolicy::Huge { compact: false },
            ..LINUX_BASE
        },
        ..PLAIN
    },
    SimulatedSystem {
        name: "linux-mthp-64kb",
        about: "Linux with pages of 64 KiB at faults, and no others but base pages",
        faults: FaultPolicy { sizes: PageOrderSet::NONE.with(PageOrder::CONTIGUOUS), ..LINUX_BASE },
        ..PLAIN
    },
    SimulatedSystem {
        name: "linux-mthp",
        about: "Linux as `linux`, with pages of 16 KiB to 1 MiB at faults where a huge page doesn't fit",
        faults: FaultPolicy { sizes: MTHP_SIZES, ..NO_COMPACTION },
        policy: "linux",
        ..PLAIN
    },
    SimulatedSystem {
        name: "freebsd",
        about: "FreeBSD's reservations, promoted in place when all of a region is in use",
        faults: FREEBSD,
        ..PLAIN
    },
    SimulatedSystem {
        name: "ingens",
        about: "Ingens as its paper has it: any region while memory is unfragmented, of which 90 % are in use otherwise",
        ..INGENS
    },
    SimulatedSystem {
        name: "ingens-90",
        about: "Ingens: regions of which 90 % are in use, at any fragmentation",
        utilisation_percent: Some(90.0),
        ..INGENS
    },
    SimulatedSystem {
        name: "ingens-50",
        about: "Ingens: regions of which 50 % are in use, at any fragmentation",
        utilisation_percent: Some(50.0),
        ..INGENS
    },
    SimulatedSystem {
        name: "hawkeye-4k",
        about: "HawkEye with base pages only, zeroed before they are touched",
        faults: HAWKEYE_BASE,
        zeroes_ahead: true,
        ..PLAIN
    },
    SimulatedSystem {
        name: "hawkeye-g",
        about: "HawkEye by access coverage: huge pages at first faults, memory zeroed ahead, bloat recovered",
        policy: "hawkeye-g",
        ..HAWKEYE
    },
    SimulatedSystem {
        name: "hawkeye-pmu",
        about: "HawkEye by measured overhead",
        policy: "hawkeye-pmu",
        ..HAWKEYE
    },
    SimulatedSystem {
        name: "emd",
        about: "EMD: promotes as ours does, and recovers the most bloated huge pages first",
        policy: "emd",
        ..HAWKEYE
    },
    SimulatedSystem {
        name: "guard",
        about: "Linux with huge pages at first faults; bloat is recovered where that costs least speed",
        faults: NO_COMPACTION,
        policy: "guard",
        recovers: true,
        budgeted: true,
        ..PLAIN
    },
    SimulatedSystem {
        name: "hawkeye",
        about: "ours: by what each promotion saves, within 2 % of a core",
        policy: "hawkeye",
        budgeted: true,
        fills_ahead: true,
        ..HAWKEYE
    },
    SimulatedSystem {
        name: "hawkeye-sizes",
        about: "the same, offered every page size of the processor's TLB, and 16 KiB to 1 MiB at faults in place of huge pages",
        faults: HAWKEYE_SIZES,
        policy: "hawkeye",
        many_sizes: true,
        budgeted: true,
        ..HAWKEYE
    },
    SimulatedSystem {
        name: "unzeroed-4k",
        about: "cost of zeroing: base pages that are never zeroed (no real system does this)",
        faults: FaultPolicy { zeroing: ZeroingPolicy::Never, ..LINUX_BASE },
        ..PLAIN
    },
    SimulatedSystem {
        name: "unzeroed",
        about: "cost of zeroing: huge pages that are never zeroed (no real system does this)",
        faults: FaultPolicy { zeroing: ZeroingPolicy::Never, ..LINUX_THP },
        ..PLAIN
    },
];

/// No system has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no system {name:?}; there are {known}")]
pub struct UnknownSystem {
    /// The name asked for.
    pub name: String,
    /// The names that exist.
    pub known: String,
}

/// The system of that name.
pub fn by_name(name: &str) -> Result<SimulatedSystem, UnknownSystem> {
    let found = SYSTEMS.iter().find(|system| system.name == name);
    found.copied().ok_or_else(|| UnknownSystem {
        name: name.to_owned(),
        known: SYSTEMS.map(|system| system.name).join(", "),
    })
}

impl SimulatedSystem {
    /// The thread that zeroes free memory, if the system has one.
    pub fn background_zeroing_spec(&self) -> Option<ZeroingSpec> {
        self.zeroes_ahead.then(ZeroingSpec::default)
    }

    /// Sizes that promotions can have on a processor.
    pub fn promotable_sizes(&self, processor: &ProcessorSpec) -> PageOrderSet {
        if self.many_sizes { processor.entry_orders() } else { PageOrderSet::HUGE }
    }

    /// Settings of the manager and of its policy. `rate` is the rate of promotions for every
    /// system; without it khugepaged has the kernel's default, and the others are unlimited.
    pub fn manager_settings(
        &self,
        rate: Option<RatePerSecond>,
    ) -> Result<(Settings, PolicySettings), SettingError> {
        let mut settings = Settings {
            rate,
            period: self.period,
            window: self.window,
            growth_until_first_sample: GROWTH_UNTIL_FIRST_SAMPLE,
            ..Settings::default()
        };
        if !self.budgeted {
            settings.cpu = CpuBudget::new(100.0)?;
            settings.promotion_return = SavingsShare::new(0.0)?;
            settings.early_samples = false;
            // In the paper the watermarks are those of recovery alone (section 3.2).
            settings.hold_full = false;
        }
        if !self.recovers {
            // Full memory stops no promotion, and nothing counts as bloat.
            settings.watermarks = Watermarks::new(100.0, 99.9)?;
            settings.bloat = BloatThreshold::new(PAGES_PER_REGION)?;
        }
        let ingens = match self.utilisation_percent {
            Some(percent) => IngensSettings::new(percent, 0.0)?,
            None => IngensSettings::default(),
        };
        let told = PolicySettings { ingens, floor: FLOOR, ..settings.policy_settings() };
        Ok((settings, told))
    }
}
