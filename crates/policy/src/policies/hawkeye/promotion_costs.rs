//! Cost of promotions, from those so far.

use crate::page::PageOrder;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct PromotionCosts(BTreeMap<PageOrder, Duration>);

impl PromotionCosts {
    /// Assumed cost of a promotion to a huge page before the first one (`kernel-facts.md`: 370-440
    /// us).
    const FIRST: Duration = Duration::from_micros(400);
    /// Weight of the newest promotion in the average.
    const NEWEST: f64 = 0.1;

    /// Cost of a promotion to pages of this size. A size without promotions so far counts as the
    /// cost of a huge page for each of its regions.
    pub(super) fn of(&self, order: PageOrder) -> Duration {
        let known = self.0.get(&order);
        known.copied().unwrap_or_else(|| {
            let huge = self.0.get(&PageOrder::HUGE).copied();
            huge.unwrap_or(Self::FIRST) * u32::try_from(order.regions()).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn record(&mut self, order: PageOrder, took: Duration) {
        let average = self.of(order).mul_f64(1.0 - Self::NEWEST) + took.mul_f64(Self::NEWEST);
        self.0.insert(order, average);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_kept_per_size_once_a_size_was_promoted() {
        let mut costs = PromotionCosts::default();
        let (small, large) = (PageOrder::CONTIGUOUS, PageOrder::HUGE_CONTIGUOUS);
        assert_eq!(costs.of(small), PromotionCosts::FIRST);
        assert_eq!(costs.of(large), PromotionCosts::FIRST * 16);
        for _ in 0..200 {
            costs.record(small, Duration::from_micros(20));
        }
        assert!(costs.of(small) < Duration::from_micros(21));
        assert_eq!(costs.of(PageOrder::HUGE), PromotionCosts::FIRST);
    }
}
