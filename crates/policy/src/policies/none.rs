//! No promotion at all: the baseline that shows what managing costs, and what those use who only look.

use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::plan::Promotion;
use crate::policy::{ExplainPolicy, Needs, Policy};
use std::time::Duration;

/// Never promotes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPromotion {
    needs: Needs,
}

impl NoPromotion {
    /// Its name on the command line.
    pub const NAME: &'static str = "none";

    /// Looks at nothing either.
    pub const BLIND: Self = Self {
        needs: Needs::NOTHING,
    };

    /// Wants to see coverage and overhead: for those who measure and change nothing (`hawkeye record`).
    pub const WATCHING: Self = Self {
        needs: Needs::COVERAGE.with(Needs::OVERHEAD),
    };
}

impl Policy for NoPromotion {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn observe(&mut self, _observation: &Observation) {}

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        None
    }

    fn settle(&mut self, _process: ProcessId, _region: RegionAddr, _: Option<Duration>) {}
}

impl ExplainPolicy for NoPromotion {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, observation, sample};

    #[test]
    fn promotes_nothing_whatever_it_sees() {
        for mut policy in [NoPromotion::BLIND, NoPromotion::WATCHING] {
            policy.observe(&observation(&[(1, vec![sample(1, 512)])]));
            assert_eq!(policy.next_promotion(at(1000)), None);
        }
        let needs = NoPromotion::WATCHING.needs();
        assert!(needs.coverage() && needs.overhead());
    }
}
