//! No promotion: the baseline that shows the cost of managing, and the policy for measurement only.

use crate::bloat_recovery::RecoveryOrder;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::policy::{ExplainPolicy, Policy, PolicyProperties};
use crate::promotion::{MeasuredPromotionCost, Promotion};
use crate::sample_kinds::SampleKinds;
use std::collections::HashSet;
use std::time::Duration;

/// Never promotes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPromotion {
    name: &'static str,
    needs: SampleKinds,
    properties: PolicyProperties,
}

impl NoPromotion {
    /// Needs no samples either.
    pub const BLIND: Self =
        Self { name: "none", needs: SampleKinds::NOTHING, properties: PolicyProperties::USUAL };

    /// Needs page walks by region: they show what a split of each huge page would cost.
    pub const GUARD: Self = Self {
        name: "guard",
        needs: SampleKinds::OVERHEAD,
        properties: PolicyProperties {
            recovery_order: RecoveryOrder::MostBytesPerSlowdown,
            only_recovers: true,
            ..PolicyProperties::USUAL
        },
    };

    /// Needs coverage and overhead: for measuring without changing anything (`hawkeye record`).
    pub const WATCHING: Self = Self {
        name: "none",
        needs: SampleKinds::COVERAGE.union(SampleKinds::OVERHEAD),
        properties: PolicyProperties::USUAL,
    };
}

impl Policy for NoPromotion {
    fn name(&self) -> &'static str {
        self.name
    }

    fn sample_kinds(&self) -> SampleKinds {
        self.needs
    }

    fn properties(&self) -> PolicyProperties {
        self.properties
    }

    fn observe(&mut self, _observation: &Observation) {}

    fn pop_next_promotion(
        &mut self,
        _now: Duration,
        _supply: HugePageReadiness,
        _held: &HashSet<ProcessId>,
    ) -> Option<Promotion> {
        None
    }

    fn on_promotion_result(
        &mut self,
        _process: ProcessId,
        _region: RegionAddr,
        _cost: Option<MeasuredPromotionCost>,
    ) {
    }
}

impl ExplainPolicy for NoPromotion {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{next_proposal, observation, sample};

    #[test]
    fn the_policy_none_promotes_nothing() {
        for mut policy in [NoPromotion::BLIND, NoPromotion::GUARD, NoPromotion::WATCHING] {
            policy.observe(&observation(&[(1, vec![sample(1, 512)])]));
            assert_eq!(next_proposal(&mut policy), None);
        }
        let needs = NoPromotion::WATCHING.sample_kinds();
        assert!(needs.includes_coverage() && needs.includes_overhead());
    }
}
