//! What keeps a region from being promoted, whatever the policy.

use crate::cooldown::Cooldown;
use crate::event::Event;
use crate::huge_limit::HugeLimits;
use crate::observation::{Observation, ProcessId};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use crate::plan::Promotion;
use crate::recovered::RecoveredRegions;
use crate::recovery::BloatThreshold;
use crate::shared::SharedRegions;
use std::time::Duration;

/// The limits of single regions and of the processes of a rule. Memory has a guard of its own
/// ([`MemoryGuard`](crate::MemoryGuard)), and so has the pace
/// ([`PromotionBudget`](crate::PromotionBudget)).
#[derive(Clone, Debug, Default)]
pub struct PromotionLimits {
    /// What the kernel refused.
    pub cooldown: Cooldown,
    /// What other processes share.
    pub shared: SharedRegions,
    /// What recovery has split.
    pub recovered: RecoveredRegions,
    /// The most huge memory of each rule.
    pub huge: HugeLimits,
}

impl PromotionLimits {
    /// `bloat` is the threshold of recovery.
    pub fn new(bloat: BloatThreshold) -> Self {
        Self {
            recovered: RecoveredRegions::new(bloat),
            ..Self::default()
        }
    }

    /// Takes in what happened.
    pub fn apply(&mut self, now: Duration, event: &Event) {
        self.cooldown.apply(now, event);
        self.shared.apply(now, event);
        self.recovered.apply(event);
        self.huge.apply(event);
    }

    /// Takes in one round of samples.
    pub fn observe(&mut self, observation: &Observation) {
        for sample in &observation.processes {
            self.huge.observe(sample);
        }
        self.recovered.observe(observation);
        self.shared.observe(observation);
    }

    /// Forgets the processes for which `there` is false, and what is long past.
    pub fn retain_processes(&mut self, now: Duration, there: impl Fn(ProcessId) -> bool) {
        self.cooldown.retain_processes(&there);
        self.cooldown.expire(now);
        self.shared.retain_processes(&there);
        self.shared.expire(now);
        self.huge.retain_processes(there);
    }

    /// Whether the region may be promoted.
    pub fn allow(&self, promotion: &Promotion, now: Duration) -> bool {
        let Promotion {
            process, region, ..
        } = *promotion;
        self.cooldown.allows(process, region, now)
            && self.shared.may_promote(process, region, now)
            && self.recovered.may_promote(process, region)
            && self.huge.allows(process)
    }

    /// Memory that a promotion takes at the most, in bytes, copies of shared pages included.
    pub fn taken_bytes(&self, promotion: &Promotion) -> u64 {
        let copied = self
            .shared
            .copied_pages(promotion.process, promotion.region);
        (u64::from(added_pages(promotion)) + u64::from(copied)) * BASE_PAGE_BYTES
    }
}

/// Base pages that a promotion adds at the most: those that were not there, of the blocks that
/// something is present in.
pub fn added_pages(promotion: &Promotion) -> u16 {
    let present = promotion.expected_present.min(PAGES_PER_REGION);
    let absent = PAGES_PER_REGION - present;
    let most = u64::from(present) * (promotion.order.pages() - 1);
    u16::try_from(most).map_or(absent, |most| most.min(absent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageOrder;
    use crate::reason::Reason;
    use crate::testing::{process, region};

    fn added(order: PageOrder, present: u16) -> u16 {
        added_pages(&Promotion {
            process: process(1),
            region: region(0),
            order,
            expected_present: present,
            saved_us_per_s: None,
            reason: Reason::new("a test"),
        })
    }

    #[test]
    fn memory_is_taken_for_what_was_not_there() {
        assert_eq!(added(PageOrder::HUGE, 500), 12);
        assert_eq!(added(PageOrder::HUGE, 1), 511);
        assert_eq!(added(PageOrder::CONTIGUOUS, 3), 45);
        assert_eq!(added(PageOrder::CONTIGUOUS, 500), 12);
        assert_eq!(added(PageOrder::HUGE_CONTIGUOUS, 512), 0);
    }
}
