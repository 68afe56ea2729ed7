//! Pace of khugepaged.

use crate::budget::{Rate, TokenBucket};
use crate::page::PAGES_PER_REGION;
use std::time::Duration;

/// How fast regions are promoted. Only successes count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PromotionPace {
    /// khugepaged's pace: a batch, then sleep.
    Khugepaged {
        /// Base pages in a batch; 512 make one region, and a batch is at least one.
        pages_to_scan: u32,
        /// Time from the start of one batch to the start of the next (the batch itself takes
        /// khugepaged next to no time).
        scan_sleep: Duration,
    },
    /// This many regions per second.
    PerSecond(Rate),
    /// As fast as the manager takes proposals.
    Unlimited,
}

impl PromotionPace {
    /// The kernel's default of `pages_to_scan`, in base pages: 8 regions.
    pub const DEFAULT_PAGES_TO_SCAN: u32 = 4096;
    /// The kernel's default of `scan_sleep_millisecs`.
    pub const DEFAULT_SCAN_SLEEP: Duration = Duration::from_secs(10);
}

impl Default for PromotionPace {
    fn default() -> Self {
        Self::Khugepaged {
            pages_to_scan: Self::DEFAULT_PAGES_TO_SCAN,
            scan_sleep: Self::DEFAULT_SCAN_SLEEP,
        }
    }
}

/// Keeps to a [`PromotionPace`]. A proposal is spent at once and given back when it failed, so that
/// any number of proposals can be under way.
#[derive(Debug)]
pub(super) enum KhugepagedPacer {
    Batches {
        size: u32,
        every: Duration,
        began: Option<Duration>,
        spent: u32,
    },
    PerSecond(TokenBucket),
    Unlimited,
}

impl KhugepagedPacer {
    pub(super) fn new(pace: PromotionPace) -> Self {
        match pace {
            PromotionPace::Khugepaged {
                pages_to_scan,
                scan_sleep,
            } => Self::Batches {
                size: (pages_to_scan / u32::from(PAGES_PER_REGION)).max(1),
                every: scan_sleep,
                began: None,
                spent: 0,
            },
            PromotionPace::PerSecond(rate) => Self::PerSecond(TokenBucket::one_second(rate)),
            PromotionPace::Unlimited => Self::Unlimited,
        }
    }

    pub(super) fn take_promotion_token(&mut self, now: Duration) -> bool {
        match self {
            Self::Batches {
                size,
                every,
                began,
                spent,
            } => {
                if began.is_none_or(|began| now >= began.saturating_add(*every)) {
                    *began = Some(now);
                    *spent = 0;
                }
                let left = *spent < *size;
                *spent += u32::from(left);
                left
            }
            Self::PerSecond(bucket) => bucket.take_tokens_now(now, 1),
            Self::Unlimited => true,
        }
    }

    pub(super) fn give_back_promotion_token(&mut self) {
        match self {
            Self::Batches { spent, .. } => *spent = spent.saturating_sub(1),
            Self::PerSecond(bucket) => bucket.give_back_tokens(1),
            Self::Unlimited => {}
        }
    }
}
