//! Limits that keep a region from being promoted under any policy.

use crate::bloat_recovery::BloatThreshold;
use crate::event::Event;
use crate::observation::{Observation, ProcessId};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use crate::promotion::Promotion;
use crate::recovered_regions::RecoveredRegions;
use crate::refusal_cooldown::RefusalCooldown;
use crate::rule_huge_memory_limits::RuleHugeMemoryLimits;
use crate::shared_regions::SharedRegions;
use std::time::Duration;

/// The limits of single regions and of the processes of a rule. Memory and pace have their own
/// limits ([`MemoryGuard`](crate::MemoryGuard),
/// [`PromotionCountBudget`](crate::PromotionCountBudget)).
#[derive(Clone, Debug, Default)]
pub struct RegionPromotionLimits {
    /// Regions that the kernel refused.
    pub cooldown: RefusalCooldown,
    /// Regions that other processes share.
    pub shared: SharedRegions,
    /// Regions that recovery has split.
    pub recovered: RecoveredRegions,
    /// The most huge memory of each rule.
    pub huge: RuleHugeMemoryLimits,
}

impl RegionPromotionLimits {
    /// Uses `bloat` as the threshold of recovery.
    pub fn with_recovery_threshold(bloat: BloatThreshold) -> Self {
        Self { recovered: RecoveredRegions::new(bloat), ..Self::default() }
    }

    /// Takes in what happened.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        self.cooldown.apply_event(now, event);
        self.shared.apply_event(now, event);
        self.recovered.apply_event(now, event);
        self.huge.apply_event(event);
    }

    /// Takes in one round of samples.
    pub fn observe(&mut self, observation: &Observation) {
        for sample in &observation.processes {
            self.huge.observe_process(sample);
        }
        self.recovered.observe(observation);
        self.shared.observe(observation);
    }

    /// Forgets the processes for which `there` is false, and expired entries.
    pub fn retain_processes(&mut self, now: Duration, there: impl Fn(ProcessId) -> bool) {
        self.cooldown.retain_processes(&there);
        self.cooldown.forget_expired(now);
        self.shared.retain_processes(&there);
        self.shared.forget_expired(now);
        self.recovered.retain_processes(&there);
        self.recovered.forget_expired(now);
        self.huge.retain_processes(there);
    }

    /// Whether the region may be promoted.
    pub fn may_promote_within_limits(&self, promotion: &Promotion, now: Duration) -> bool {
        let Promotion { process, region, .. } = *promotion;
        self.cooldown.allows(process, region, now)
            && self.shared.may_promote(process, region, now)
            && self.recovered.may_promote(process, region)
            && self.huge.allows_another_huge_page(process)
    }

    /// Upper limit of the memory that a promotion takes, in bytes, including copies of shared
    /// pages.
    pub fn max_bytes_taken_by_promotion(&self, promotion: &Promotion) -> u64 {
        let copied = self.shared.copied_pages_upper_bound(promotion.process, promotion.region);
        (u64::from(added_pages_upper_bound(promotion)) + u64::from(copied)) * BASE_PAGE_BYTES
    }
}

/// Upper limit of the base pages that a promotion adds: the missing ones in blocks where some page
/// is present.
pub fn added_pages_upper_bound(promotion: &Promotion) -> u16 {
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
    use crate::test_support::{process, region};

    fn added(order: PageOrder, present: u16) -> u16 {
        added_pages_upper_bound(&Promotion {
            order,
            ..Promotion::to_huge_page(process(1), region(0), present, None, Reason::new("a test"))
        })
    }

    #[test]
    fn a_promotion_adds_the_missing_base_pages() {
        assert_eq!(added(PageOrder::HUGE, 500), 12);
        assert_eq!(added(PageOrder::HUGE, 1), 511);
        assert_eq!(added(PageOrder::CONTIGUOUS, 3), 45);
        assert_eq!(added(PageOrder::CONTIGUOUS, 500), 12);
        assert_eq!(added(PageOrder::HUGE_CONTIGUOUS, 512), 0);
    }
}
