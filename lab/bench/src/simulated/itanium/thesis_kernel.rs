//! The kernels that the thesis compares, and page sizes of other systems on them.

use super::thesis_system::ThesisSystem;
use hawkeye_itanium::MachineSettings;
use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::kernel::policies::ThesisPolicyClass;
use hawkeye_itanium::kernel::{InitialFragmentation, KernelSettings};
use hawkeye_itanium::mmu::{LargePageHashFill, WalkerMode};
use std::fmt;

/// A kernel: its page size, its use of the walker, and whether it has large pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThesisKernel {
    base: BasePageSize,
    walker: WalkerMode,
    large: bool,
    /// Rules for large pages other than the thesis', and their settings.
    system: Option<ThesisSystem>,
    /// On a smaller, fragmented machine: order of the blocks in each of which others hold a page.
    fragmented: Option<u8>,
}

/// Memory of the fragmented machine: enough for every workload that runs there.
const FRAGMENTED_BYTES: u64 = 512 << 20;

/// One in twenty of the others' pages can't be moved. Chosen.
const MOVABLE_PERCENT: u32 = 95;

impl ThesisKernel {
    pub const NONE: Self = Self::from_walker_mode(WalkerMode::None);
    /// Short format: Itanium Linux as it is.
    pub const SF: Self = Self::from_walker_mode(WalkerMode::ShortFormat);
    pub const LF: Self = Self::from_walker_mode(WalkerMode::LONG);
    pub const SF_LP: Self = Self::SF.with_large_pages();
    pub const LF_LP: Self = Self::LF.with_large_pages();

    /// Those that the thesis compares.
    pub const COMPARED: [Self; 5] = [Self::NONE, Self::SF, Self::LF, Self::SF_LP, Self::LF_LP];

    const fn from_walker_mode(walker: WalkerMode) -> Self {
        Self { base: BasePageSize::Kib16, walker, large: false, system: None, fragmented: None }
    }

    pub const fn with_large_pages(mut self) -> Self {
        self.large = true;
        self
    }

    pub const fn with_policy_system(self, system: ThesisSystem) -> Self {
        let mut kernel = self.with_large_pages();
        kernel.system = Some(system);
        kernel
    }

    pub const fn without_large_pages(mut self) -> Self {
        self.large = false;
        self.system = None;
        self
    }

    /// On a machine where others hold a page of each block of this order.
    pub const fn on_fragmented_machine(mut self, order: u8) -> Self {
        self.fragmented = Some(order);
        self
    }

    /// On another base page size than 16 KiB.
    pub const fn on_base_page(mut self, base: BasePageSize) -> Self {
        self.base = base;
        self
    }

    /// The long format with another rule for what the kernel enters of a large page.
    pub const fn with_hash_fill_rule(self, fill: LargePageHashFill) -> Self {
        let walker = match self.walker {
            WalkerMode::LongFormat { entries, .. } => WalkerMode::LongFormat { entries, fill },
            other => other,
        };
        Self { walker, ..self }
    }

    /// The machine with this kernel.
    pub fn machine_settings(self) -> MachineSettings {
        let mut setup = MachineSettings {
            walker: self.walker,
            kernel: if self.large {
                KernelSettings::with_all_page_sizes(self.base)
            } else {
                KernelSettings::with_base_pages_only(self.base)
            },
            ..MachineSettings::default()
        };
        if let Some(order) = self.fragmented {
            setup.kernel.memory_bytes = FRAGMENTED_BYTES;
            setup.fragmentation = Some(InitialFragmentation {
                movable_percent: MOVABLE_PERCENT,
                ..InitialFragmentation::with_all_blocks_broken(order)
            });
        }
        if let Some(system) = self.system {
            setup.processor.sub_block_order = system.sub_block_order;
            setup.kernel.policy = system.policy;
            setup.advice = system.advice;
        }
        setup
    }

    /// The class that the thesis gives the rules for large pages, if they are another system's.
    pub fn policy_class(self) -> Option<ThesisPolicyClass> {
        let system = self.system?;
        Some(system.policy.thesis_class())
    }

    /// Bytes of 2^order of its pages.
    pub const fn page_bytes(self, order: u8) -> u64 {
        self.base.bytes() << order
    }
}

impl fmt::Display for ThesisKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(system) = self.system {
            return f.pad(system.name);
        }
        let base = match self.base {
            BasePageSize::Kib4 => "4K ",
            BasePageSize::Kib16 => "",
            BasePageSize::Kib64 => "64K ",
        };
        let (walker, fill) = match self.walker {
            WalkerMode::None => ("none", ""),
            WalkerMode::ShortFormat => ("SF", ""),
            WalkerMode::LongFormat { fill, .. } => match fill {
                LargePageHashFill::First => ("LF", ""),
                LargePageHashFill::Missed => ("LF", " missed"),
                LargePageHashFill::All => ("LF", " all"),
                LargePageHashFill::BaseOnly => ("LF", " base only"),
            },
        };
        let large = if self.large { "+LP" } else { "" };
        f.pad(&format!("{base}{walker}{large}{fill}"))
    }
}
