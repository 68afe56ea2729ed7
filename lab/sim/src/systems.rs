//! Systems under comparison: what a kernel does at a page fault, and what a manager does between faults.

use crate::kernel::ZeroingSpec;
use crate::kernel::fault_policies::{
    Defrag, Enabled, FaultPolicy, FreeBsd, HawkEyeBase, HawkEyeHuge, HawkEyeSizes, IngensFaults,
    LinuxBase, LinuxMthp, LinuxThp, MTHP_SIZES, Unzeroed,
};
use crate::mmu::Processor;
use hawkeye_manager::Settings;
use hawkeye_policy::policies::{IngensSettings, PolicySettings};
use hawkeye_policy::{
    BloatThreshold, CpuBudget, PAGES_PER_REGION, PageOrder, PageOrders, Rate, SettingError,
    Watermarks,
};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// What a kernel does at a page fault.
type Faults = fn() -> Arc<dyn FaultPolicy>;

/// One system.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    faults: Faults,
    /// The policy of the manager.
    policy: &'static str,
    /// For Ingens: share of a region that must be in use, in per cent.
    utilisation_percent: Option<f64>,
    zeroes_ahead: bool,
    /// Promotions can have any size that a TLB entry of the processor has, and not only that of a huge page.
    many_sizes: bool,
    /// Memory can be filled ahead of programs in its place.
    fills_ahead: bool,
    recovers: bool,
    /// Its manager keeps to a CPU budget; threads of the papers' kernels don't.
    budgeted: bool,
    /// From one window in which accesses are looked at to the next, and how long each lasts.
    period: Duration,
    window: Duration,
}

/// Promotes nothing, recovers nothing.
const PLAIN: System = System {
    name: "linux-4k",
    about: "Linux with base pages only",
    faults: || Arc::new(LinuxBase),
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

const HAWKEYE: System = System {
    faults: || Arc::new(HawkEyeHuge),
    zeroes_ahead: true,
    recovers: true,
    ..PLAIN
};

/// Ingens' thread is woken by faults, and looks again after 4 s; here it looks every second. Others look at access bits
/// meanwhile; here nothing is promoted in a window, so that it is short.
const INGENS: System = System {
    faults: || Arc::new(IngensFaults),
    policy: "ingens",
    period: Duration::from_secs(1),
    window: Duration::from_millis(50),
    ..PLAIN
};

/// `defrag`'s default since 4.6. In the paper's fragmented runs programs start under base pages too.
const NOBODY_WAITS: LinuxThp = LinuxThp {
    enabled: Enabled::Always,
    defrag: Defrag::Madvise,
};

/// All systems.
pub const SYSTEMS: [System; 16] = [
    PLAIN,
    System {
        name: "linux",
        about: "Linux with huge pages at first faults, and khugepaged; nobody waits for compaction in a fault",
        faults: || Arc::new(NOBODY_WAITS),
        policy: "linux",
        ..PLAIN
    },
    System {
        name: "linux-async",
        about: "Linux with khugepaged alone: base pages at faults",
        policy: "linux",
        ..PLAIN
    },
    System {
        name: "linux-mthp-64kb",
        about: "Linux with pages of 64 KiB at faults, and no others but base pages",
        faults: || {
            Arc::new(LinuxMthp {
                huge: None,
                sizes: PageOrders::NONE.with(PageOrder::CONTIGUOUS),
            })
        },
        ..PLAIN
    },
    System {
        name: "linux-mthp",
        about: "Linux as `linux`, with pages of 16 KiB to 1 MiB at faults where a huge page doesn't fit",
        faults: || {
            Arc::new(LinuxMthp {
                huge: Some(NOBODY_WAITS),
                sizes: MTHP_SIZES,
            })
        },
        policy: "linux",
        ..PLAIN
    },
    System {
        name: "freebsd",
        about: "FreeBSD's reservations, promoted in place when all of a region is in use",
        faults: || Arc::new(FreeBsd),
        ..PLAIN
    },
    System {
        name: "ingens",
        about: "Ingens as its paper has it: any region while memory is unfragmented, of which 90 % are in use otherwise",
        ..INGENS
    },
    System {
        name: "ingens-90",
        about: "Ingens: regions of which 90 % are in use, at any fragmentation",
        utilisation_percent: Some(90.0),
        ..INGENS
    },
    System {
        name: "ingens-50",
        about: "Ingens: regions of which 50 % are in use, at any fragmentation",
        utilisation_percent: Some(50.0),
        ..INGENS
    },
    System {
        name: "hawkeye-4k",
        about: "HawkEye with base pages only, zeroed before they are touched",
        faults: || Arc::new(HawkEyeBase),
        zeroes_ahead: true,
        ..PLAIN
    },
    System {
        name: "hawkeye-g",
        about: "HawkEye by access coverage: huge pages at first faults, memory zeroed ahead, bloat recovered",
        policy: "hawkeye-g",
        ..HAWKEYE
    },
    System {
        name: "hawkeye-pmu",
        about: "HawkEye by measured overhead",
        policy: "hawkeye-pmu",
        ..HAWKEYE
    },
    System {
        name: "hawkeye",
        about: "ours: by what each promotion saves, within 2 % of a core",
        policy: "hawkeye",
        budgeted: true,
        fills_ahead: true,
        ..HAWKEYE
    },
    System {
        name: "hawkeye-sizes",
        about: "the same, offered every page size of the processor's TLB, and 16 KiB to 1 MiB at faults in place of huge pages",
        faults: || Arc::new(HawkEyeSizes),
        policy: "hawkeye",
        many_sizes: true,
        budgeted: true,
        ..HAWKEYE
    },
    System {
        name: "unzeroed-4k",
        about: "what zeroing costs: base pages that nobody zeroes (nobody runs that)",
        faults: || Arc::new(Unzeroed::Base),
        ..PLAIN
    },
    System {
        name: "unzeroed",
        about: "what zeroing costs: huge pages that nobody zeroes (nobody runs that)",
        faults: || Arc::new(Unzeroed::Huge),
        ..PLAIN
    },
];

/// There is no system of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no system {name:?}; there are {known}")]
pub struct UnknownSystem {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: String,
}

/// The system of that name.
///
/// # Errors
/// None has it.
pub fn by_name(name: &str) -> Result<System, UnknownSystem> {
    let found = SYSTEMS.iter().find(|system| system.name == name);
    found.copied().ok_or_else(|| UnknownSystem {
        name: name.to_owned(),
        known: SYSTEMS.map(|system| system.name).join(", "),
    })
}

impl System {
    /// What its kernel does at a page fault.
    pub fn faults(&self) -> Arc<dyn FaultPolicy> {
        (self.faults)()
    }

    /// The name of its manager's policy.
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// The thread that zeroes free memory, where it has one.
    pub fn zeroing(&self) -> Option<ZeroingSpec> {
        self.zeroes_ahead.then(ZeroingSpec::default)
    }

    /// Sizes that its promotions can have on a processor.
    pub fn promotable(&self, processor: &Processor) -> PageOrders {
        if self.many_sizes {
            processor.entry_orders()
        } else {
            PageOrders::HUGE
        }
    }

    /// Whether memory can be filled ahead of programs, which kernels without such a thread can do instead.
    pub fn fills_ahead(&self) -> bool {
        self.fills_ahead
    }

    /// How its manager works, and what the policy is told. `rate` is the pace of promotions for every system; without it
    /// khugepaged has the kernel's default, and the others are as fast as they can be.
    ///
    /// # Errors
    /// None but in this file.
    pub fn settings(&self, rate: Option<Rate>) -> Result<(Settings, PolicySettings), SettingError> {
        let mut settings = Settings {
            rate,
            period: self.period,
            window: self.window,
            ..Settings::default()
        };
        if !self.budgeted {
            settings.cpu = CpuBudget::new(100.0)?;
            // In the paper the watermarks are those of recovery alone (section 3.2).
            settings.hold_full = false;
        }
        if !self.recovers {
            // Memory that is full holds nobody back, and nothing is ever bloat.
            settings.watermarks = Watermarks::new(100.0, 99.9)?;
            settings.bloat = BloatThreshold::new(PAGES_PER_REGION)?;
        }
        let ingens = match self.utilisation_percent {
            Some(percent) => IngensSettings::new(percent, 0.0)?,
            None => IngensSettings::default(),
        };
        let told = PolicySettings {
            average: settings.average,
            linux: settings.linux(),
            ingens,
        };
        Ok((settings, told))
    }
}
