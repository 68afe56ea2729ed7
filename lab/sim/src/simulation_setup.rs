//! The machine that a run simulates.

use crate::kernel::{KernelCosts, SamePageMergingSpec, SwapSpec};
use crate::mmu::translation::PageTableLevels;
use crate::mmu::{HASWELL, ProcessorSpec};
use crate::system_overrides::SystemOverrides;
use crate::systems::SimulatedSystem;
use hawkeye_policy::RatePerSecond;
use std::time::Duration;

/// The machine that workloads run on, the same for every system. The default is the paper's
/// machine, with the cores of one socket.
#[derive(Clone, Copy, Debug)]
pub struct SimulationSetup {
    /// Size of memory, in bytes (2 MiB to 1 TiB).
    pub memory_bytes: u64,
    /// The processor.
    pub processor: ProcessorSpec,
    /// Levels of page tables, of the machine and of its virtual machines.
    pub page_table_levels: PageTableLevels,
    /// Whether the processor walks ahead for the next page after walks for two pages in a row.
    /// Every preset processor does so in some way: Intel's since Ivy Bridge (optimization manual,
    /// "next-page prefetcher").
    pub next_page_prefetch: bool,
    /// Costs of the kernel's work.
    pub costs: KernelCosts,
    /// Cores that programs share; the manager and the kernel's threads have others.
    pub cores: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Free memory fragmentation index at the start, caused by the page cache (0-1).
    pub fragmented: f64,
    /// Promotions per second, the same for every system; `None`: each system's own rate.
    pub rate: Option<RatePerSecond>,
    /// Settings that override each system's own, the same for every system.
    pub tuning: SystemOverrides,
    /// Accesses in a sample (at least 64). With 20,000, the default, a share of walks of one half
    /// is off by 0.4 %.
    pub sample: u32,
    /// The system of virtual machines, if the workload has any; `None`: the same as the machine's.
    pub guest_system: Option<SimulatedSystem>,
    /// Fragmentation of the memory of virtual machines at the start (0-1).
    pub guest_fragmented: f64,
    /// Swap device, if there is one.
    pub swap: Option<SwapSpec>,
    /// Same-page merging of the memory of virtual machines, if it is on.
    pub merging: Option<SamePageMergingSpec>,
    /// Whether systems that zero free memory had time to zero all of it before the start.
    pub zeroed_before: bool,
    /// Whether systems that can prefault do so instead of zeroing memory, as on a live machine.
    pub prefault: bool,
    /// Simulated time after which the run ends, with its programs unfinished.
    pub longest: Duration,
}

impl Default for SimulationSetup {
    fn default() -> Self {
        Self {
            memory_bytes: 96 << 30,
            processor: HASWELL,
            page_table_levels: PageTableLevels::Four,
            next_page_prefetch: true,
            costs: KernelCosts::paper(),
            cores: 24,
            seed: 1,
            fragmented: 0.0,
            rate: None,
            tuning: SystemOverrides::default(),
            sample: 20_000,
            guest_system: None,
            guest_fragmented: 0.0,
            swap: None,
            merging: None,
            zeroed_before: true,
            prefault: false,
            longest: Duration::from_secs(100_000),
        }
    }
}
