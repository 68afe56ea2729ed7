//! The kernels that the thesis compares, and others' page sizes on them.

use super::systems::System;
use hawkeye_itanium::Setup;
use hawkeye_itanium::address::BasePage;
use hawkeye_itanium::kernel::policies::Class;
use hawkeye_itanium::kernel::{Fragmentation, KernelSettings};
use hawkeye_itanium::mmu::{Fill, Processor, Walker};
use std::fmt;

/// A kernel: its page size, how it sets the walker, and whether it has large pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    base: BasePage,
    walker: Walker,
    large: bool,
    /// Other rules for large pages than the thesis', with what goes with them.
    system: Option<System>,
    /// Order of the blocks of which others have a page each, on a smaller machine.
    fragmented: Option<u8>,
}

/// Memory of the machine with memory in the way: enough for every workload that is run there.
const FRAGMENTED_BYTES: u64 = 512 << 20;

/// Of others' pages in the way, one in twenty can't be moved. Chosen.
const MOVABLE_PERCENT: u32 = 95;

impl Kernel {
    /// No walker.
    pub const NONE: Self = Self::of(Walker::None);
    /// Short format: Itanium Linux as it is.
    pub const SF: Self = Self::of(Walker::ShortFormat);
    /// Long format.
    pub const LF: Self = Self::of(Walker::LONG);
    /// Short format with large pages.
    pub const SF_LP: Self = Self::SF.large();
    /// Long format with large pages.
    pub const LF_LP: Self = Self::LF.large();

    const fn of(walker: Walker) -> Self {
        Self {
            base: BasePage::Kib16,
            walker,
            large: false,
            system: None,
            fragmented: None,
        }
    }

    /// With large pages.
    pub const fn large(self) -> Self {
        Self {
            large: true,
            ..self
        }
    }

    /// With another system's large pages.
    pub const fn with(self, system: System) -> Self {
        Self {
            large: true,
            system: Some(system),
            ..self
        }
    }

    /// The same without large pages.
    pub const fn without_large_pages(self) -> Self {
        Self {
            large: false,
            system: None,
            ..self
        }
    }

    /// On a machine where somebody else has a page of each block of this order.
    pub const fn fragmented(self, order: u8) -> Self {
        Self {
            fragmented: Some(order),
            ..self
        }
    }

    /// On another page size than 16 KiB.
    pub const fn on(self, base: BasePage) -> Self {
        Self { base, ..self }
    }

    /// The long format with another rule for what is entered of a large page.
    pub const fn filling(self, fill: Fill) -> Self {
        let walker = match self.walker {
            Walker::LongFormat { entries, .. } => Walker::LongFormat { entries, fill },
            other => other,
        };
        Self { walker, ..self }
    }

    /// The machine with it.
    pub fn setup(self) -> Setup {
        let mut setup = Setup {
            walker: self.walker,
            kernel: if self.large {
                KernelSettings::large(self.base)
            } else {
                KernelSettings::plain(self.base)
            },
            ..Setup::default()
        };
        if let Some(order) = self.fragmented {
            setup.kernel.memory_bytes = FRAGMENTED_BYTES;
            setup.fragmentation = Some(Fragmentation {
                movable_percent: MOVABLE_PERCENT,
                ..Fragmentation::complete(order)
            });
        }
        match self.system {
            None => setup,
            Some(system) => Setup {
                processor: Processor {
                    sub_block_order: system.sub_block_order,
                    ..setup.processor
                },
                kernel: KernelSettings {
                    policy: system.policy,
                    ..setup.kernel
                },
                advice: system.advice,
                ..setup
            },
        }
    }

    /// Where the thesis puts its rules for large pages, if they are another system's.
    pub fn class(self) -> Option<Class> {
        let system = self.system?;
        Some(system.policy.rules().class())
    }

    /// Bytes of 2^order of its pages.
    pub const fn page_bytes(self, order: u8) -> u64 {
        self.base.bytes() << order
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(system) = self.system {
            return f.pad(system.name);
        }
        let base = match self.base {
            BasePage::Kib4 => "4K ",
            BasePage::Kib16 => "",
            BasePage::Kib64 => "64K ",
        };
        let (walker, fill) = match self.walker {
            Walker::None => ("none", ""),
            Walker::ShortFormat => ("SF", ""),
            Walker::LongFormat { fill, .. } => match fill {
                Fill::First => ("LF", ""),
                Fill::Missed => ("LF", " missed"),
                Fill::All => ("LF", " all"),
                Fill::BaseOnly => ("LF", " base only"),
            },
        };
        let large = if self.large { "+LP" } else { "" };
        f.pad(&format!("{base}{walker}{large}{fill}"))
    }
}
