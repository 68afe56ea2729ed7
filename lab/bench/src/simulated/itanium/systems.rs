//! The systems that the thesis classifies (section 2.4), with the advice that they get for a
//! workload.

use hawkeye_itanium::PageSizeAdvice;
use hawkeye_itanium::address::BasePage;
use hawkeye_itanium::kernel::policies::{
    ApproxOnline, Asap, Cover, HalfReferenced, HpUx, HugeTlb, Irix, Navarro, PageReservation,
    PageSizePolicy, Solaris, Winwood,
};
use hawkeye_itanium::mmu::{RX2600_COSTS, WalkerMode};

/// A system on a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThesisSystem {
    /// Its name in tables.
    pub name: &'static str,
    /// Its rules.
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
    fn order(self) -> u8 {
        let base = BasePage::Kib16.shift();
        self.advice.page_bytes.ilog2().saturating_sub(base) as u8
    }
}

impl ThesisSystem {
    const fn of(name: &'static str, policy: PageSizePolicy) -> Self {
        Self {
            name,
            policy,
            advice: None,
            sub_block_order: 0,
        }
    }

    const fn with_advice(name: &'static str, policy: PageSizePolicy, told: ThesisAdvice) -> Self {
        Self {
            advice: Some(told.advice),
            ..Self::of(name, policy)
        }
    }

    /// The thesis' own rule.
    pub const THESIS: Self = Self::of("thesis", PageSizePolicy::Cover(Cover));

    /// Reservations up to an order; without a limit, up to all orders.
    pub fn navarro(name: &'static str, limit: Option<u8>) -> Self {
        let daemon = Some(Irix::default().daemon);
        Self::of(name, PageSizePolicy::Navarro(Navarro { limit, daemon }))
    }

    /// Counts misses, up to `percent` per cent of a page's cost.
    pub fn approx_online(name: &'static str, percent: u32) -> Self {
        let rules =
            ApproxOnline::ski_rental(&RX2600_COSTS, WalkerMode::None, BasePage::Kib16, percent);
        Self::of(name, PageSizePolicy::ApproxOnline(rules))
    }

    /// A zone of large pages.
    pub fn winwood(told: ThesisAdvice) -> Self {
        let (order, pages) = (told.order(), told.pages);
        Self::with_advice(
            "Winwood",
            PageSizePolicy::Winwood(Winwood { order, pages }),
            told,
        )
    }

    /// A pool of large pages.
    pub fn huge_tlb(told: ThesisAdvice) -> Self {
        let (order, pages) = (told.order(), told.pages);
        Self::with_advice(
            "HugeTLB",
            PageSizePolicy::HugeTlb(HugeTlb { order, pages }),
            told,
        )
    }

    /// All systems that do not change the walker.
    pub fn all(told: ThesisAdvice) -> Vec<Self> {
        let half = HalfReferenced {
            order: 2,
            references: 1_000_000,
        };
        vec![
            Self::huge_tlb(told),
            Self::winwood(told),
            Self::with_advice("Solaris MPSS", PageSizePolicy::Solaris(Solaris), told),
            Self::THESIS,
            Self::of("HP-UX", PageSizePolicy::HpUx(HpUx::default())),
            Self::with_advice("HP-UX, hint", PageSizePolicy::HpUx(HpUx::default()), told),
            Self::with_advice("IRIX", PageSizePolicy::Irix(Irix::default()), told),
            Self::navarro("Navarro", None),
            Self::of("Romer, asap", PageSizePolicy::Asap(Asap)),
            Self::of("half-referenced", PageSizePolicy::HalfReferenced(half)),
            Self {
                sub_block_order: 4,
                ..Self::of(
                    "Talluri and Hill",
                    PageSizePolicy::PageReservation(PageReservation { order: 4 }),
                )
            },
        ]
    }
}
