//! The kernels that the thesis compares.

use hawkeye_sim::itanium::Setup;
use hawkeye_sim::itanium::address::BasePage;
use hawkeye_sim::itanium::kernel::KernelSettings;
use hawkeye_sim::itanium::mmu::{Fill, Walker};
use std::fmt;

/// A kernel: its page size, how it sets the walker, and whether it has large pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    base: BasePage,
    walker: Walker,
    large: bool,
}

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
        }
    }

    /// With large pages.
    pub const fn large(self) -> Self {
        Self {
            large: true,
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
        Setup {
            walker: self.walker,
            kernel: if self.large {
                KernelSettings::large(self.base)
            } else {
                KernelSettings::plain(self.base)
            },
            ..Setup::default()
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
