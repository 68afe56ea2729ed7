//! Cost of promotions, from those so far.

use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::page::PageOrder;
use std::collections::BTreeMap;
use std::time::Duration;

/// Costs of the two kinds that promotions have: with a huge page that is ready, and with one that
/// the kernel must get first.
#[derive(Clone, Debug, Default)]
pub(super) struct PromotionCosts {
    ready: BTreeMap<PageOrder, AverageCost>,
    not_ready: BTreeMap<PageOrder, AverageCost>,
    /// How the kernel gets the page of the next promotion.
    pub(super) supply: HugePageReadiness,
    /// The time of the last observation.
    pub(super) now: Duration,
}

/// An average, and when a promotion last changed it.
#[derive(Clone, Copy, Debug)]
struct AverageCost {
    cpu: Duration,
    at: Duration,
}

impl PromotionCosts {
    /// Assumed cost of a promotion to a huge page before the first one (measured: 370-440
    /// us).
    const FIRST: Duration = Duration::from_micros(400);
    /// Weight of the newest promotion in the average.
    const NEWEST: f64 = 0.1;
    /// One promotion counts as at most this many times the average. A call that waits for a lock
    /// may spin, so a process can make one use a second of CPU time.
    const MOST_TIMES_AVERAGE: u32 = 16;
    /// An average without promotions for this long is forgotten. Otherwise promotions that were
    /// slow for a while could stop all others for ever: where none pays, none shows that they are
    /// fast again.
    const KEPT: Duration = Duration::from_secs(3600);

    /// Cost of the next promotion to pages of this size. A size without promotions so far counts
    /// as the cost of a huge page for each of its regions.
    pub(super) fn expected_cost(&self, order: PageOrder) -> Duration {
        let regions = || u32::try_from(order.regions_per_page()).unwrap_or(u32::MAX);
        let known = |costs: &BTreeMap<PageOrder, AverageCost>| {
            let recent = |order: PageOrder| {
                let cost = costs.get(&order).filter(|cost| self.now < cost.at + Self::KEPT);
                cost.map(|cost| cost.cpu)
            };
            recent(order).or_else(|| Some(recent(PageOrder::HUGE)? * regions()))
        };
        let ready = || known(&self.ready).unwrap_or_else(|| Self::FIRST * regions());
        match self.supply {
            HugePageReadiness::Ready => ready(),
            HugePageReadiness::NotReady { fill } => {
                known(&self.not_ready).unwrap_or_else(|| ready() + fill * regions())
            }
        }
    }

    /// Takes in the CPU time of a promotion, with the supply that it was made with.
    pub(super) fn record_promotion_cost(&mut self, order: PageOrder, cpu: Duration) {
        let before = self.expected_cost(order);
        let newest = cpu.min(before * Self::MOST_TIMES_AVERAGE);
        let average = before.mul_f64(1.0 - Self::NEWEST) + newest.mul_f64(Self::NEWEST);
        let costs = match self.supply {
            HugePageReadiness::Ready => &mut self.ready,
            HugePageReadiness::NotReady { .. } => &mut self.not_ready,
        };
        costs.insert(order, AverageCost { cpu: average, at: self.now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_kept_per_size_once_a_size_was_promoted() {
        let mut costs = PromotionCosts::default();
        let (small, large) = (PageOrder::CONTIGUOUS, PageOrder::HUGE_CONTIGUOUS);
        assert_eq!(costs.expected_cost(small), PromotionCosts::FIRST);
        assert_eq!(costs.expected_cost(large), PromotionCosts::FIRST * 16);
        for _ in 0..200 {
            costs.record_promotion_cost(small, Duration::from_micros(20));
        }
        assert!(costs.expected_cost(small) < Duration::from_micros(21));
        assert_eq!(costs.expected_cost(PageOrder::HUGE), PromotionCosts::FIRST);
    }

    #[test]
    fn one_slow_promotion_counts_little_and_many_are_forgotten_after_an_hour() {
        let mut costs = PromotionCosts::default();
        let huge = PageOrder::HUGE;
        costs.record_promotion_cost(huge, Duration::from_secs(10));
        assert!(costs.expected_cost(huge) < PromotionCosts::FIRST * 3);
        for _ in 0..100 {
            costs.record_promotion_cost(huge, Duration::from_secs(10));
        }
        costs.now = PromotionCosts::KEPT - Duration::from_nanos(1);
        assert!(costs.expected_cost(huge) > Duration::from_secs(9));
        costs.now = PromotionCosts::KEPT;
        assert_eq!(costs.expected_cost(huge), PromotionCosts::FIRST);
    }

    #[test]
    fn the_two_kinds_of_cost_do_not_mix() {
        let mut costs = PromotionCosts::default();
        let fill = Duration::from_micros(4600);
        costs.supply = HugePageReadiness::NotReady { fill };
        assert_eq!(costs.expected_cost(PageOrder::HUGE), PromotionCosts::FIRST + fill);
        for _ in 0..200 {
            costs.record_promotion_cost(PageOrder::HUGE, Duration::from_micros(6000));
        }
        assert!(costs.expected_cost(PageOrder::HUGE) > Duration::from_micros(5999));
        costs.supply = HugePageReadiness::Ready;
        assert_eq!(costs.expected_cost(PageOrder::HUGE), PromotionCosts::FIRST);
    }
}
