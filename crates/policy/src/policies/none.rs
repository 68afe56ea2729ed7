//! No promotion at all: the baseline that shows what managing costs.

use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::plan::Promotion;
use crate::policy::{Needs, Policy};
use std::time::Duration;

/// Never promotes anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoPromotion;

impl NoPromotion {
    /// Its name on the command line.
    pub const NAME: &'static str = "none";
}

impl Policy for NoPromotion {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn observe(&mut self, _observation: &Observation) {}

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        None
    }

    fn settle(&mut self, _process: ProcessId, _region: RegionAddr, _: Option<Duration>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, observation, sample};

    #[test]
    fn promotes_nothing() {
        let mut policy = NoPromotion;
        policy.observe(&observation(&[(1, vec![sample(1, 512)])]));
        assert_eq!(policy.next_promotion(at(1000)), None);
    }
}
