//! The systems that the thesis classifies (section 2.4), with the advice that they get for a
//! workload.

use hawkeye_itanium::PageSizeAdvice;
use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::kernel::policies::{CompactionDaemonSettings, PageSizePolicy};
use hawkeye_itanium::mmu::{RX2600_COSTS, WalkerMode};

/// A system on a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThesisSystem {
    /// Its name in tables.
    pub name: &'static str,
    pub policy: PageSizePolicy,
    /// Advice from the program or its administrator.
    pub advice: Option<PageSizeAdvice>,
    /// Sub-blocks of the processor's TLB entries.
    pub sub_block_order: u8,
}

/// Advice for a workload that a programmer or an administrator would give to systems that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThesisAdvice {
    /// Page size, and the minimum length of mappings that use it.
    pub advice: PageSizeAdvice,
    /// Number of reserved pages of this size, for systems with a pool.
    pub pages: u32,
}

impl ThesisAdvice {
    fn page_order(self) -> u8 {
        let base = BasePageSize::Kib16.shift();
        self.advice.page_bytes.ilog2().saturating_sub(base) as u8
    }
}

impl ThesisSystem {
    const fn new_without_advice(name: &'static str, policy: PageSizePolicy) -> Self {
        Self { name, policy, advice: None, sub_block_order: 0 }
    }

    const fn new_with_advice(
        name: &'static str,
        policy: PageSizePolicy,
        told: ThesisAdvice,
    ) -> Self {
        Self { advice: Some(told.advice), ..Self::new_without_advice(name, policy) }
    }

    /// The thesis' own rule.
    pub const THESIS: Self = Self::new_without_advice("thesis", PageSizePolicy::Cover);

    /// Reservations up to an order; without a limit, up to all orders.
    pub fn navarro(name: &'static str, limit: Option<u8>) -> Self {
        let daemon = Some(CompactionDaemonSettings::IRIX);
        Self::new_without_advice(name, PageSizePolicy::Navarro { limit, daemon })
    }

    /// Counts misses, up to `percent` per cent of a page's cost.
    pub fn approx_online(name: &'static str, percent: u32) -> Self {
        let costs = &RX2600_COSTS;
        let policy = PageSizePolicy::approx_online_ski_rental(
            costs,
            WalkerMode::None,
            BasePageSize::Kib16,
            percent,
        );
        Self::new_without_advice(name, policy)
    }

    /// A zone of large pages.
    pub fn winwood(told: ThesisAdvice) -> Self {
        let (order, pages) = (told.page_order(), told.pages);
        Self::new_with_advice("Winwood", PageSizePolicy::Winwood { order, pages }, told)
    }

    /// A pool of large pages.
    pub fn huge_tlb(told: ThesisAdvice) -> Self {
        let (order, pages) = (told.page_order(), told.pages);
        Self::new_with_advice("HugeTLB", PageSizePolicy::HugeTlb { order, pages }, told)
    }

    /// All systems that do not change the walker.
    pub fn all_with_unchanged_walker(told: ThesisAdvice) -> Vec<Self> {
        let half = PageSizePolicy::HalfReferenced { order: 2, references: 1_000_000 };
        vec![
            Self::huge_tlb(told),
            Self::winwood(told),
            Self::new_with_advice("Solaris MPSS", PageSizePolicy::Solaris, told),
            Self::THESIS,
            Self::new_without_advice("HP-UX", PageSizePolicy::HP_UX),
            Self::new_with_advice("HP-UX, hint", PageSizePolicy::HP_UX, told),
            Self::new_with_advice(
                "IRIX",
                PageSizePolicy::Irix(CompactionDaemonSettings::IRIX),
                told,
            ),
            Self::navarro("Navarro", None),
            Self::new_without_advice("Romer, asap", PageSizePolicy::Asap),
            Self::new_without_advice("half-referenced", half),
            Self {
                sub_block_order: 4,
                ..Self::new_without_advice(
                    "Talluri and Hill",
                    PageSizePolicy::PageReservation { order: 4 },
                )
            },
        ]
    }
}
