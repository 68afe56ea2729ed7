//! No promotion, but everything looked at: for those who measure and change nothing.

use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::plan::Promotion;
use crate::policy::{Needs, Policy};
use std::time::Duration;

/// Wants to see coverage and overhead, and promotes nothing. It has no name on the command line: `hawkeye record` uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watching;

impl Policy for Watching {
    fn name(&self) -> &'static str {
        "none"
    }

    fn needs(&self) -> Needs {
        Needs::CoverageAndOverhead
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
    fn sees_all_and_promotes_nothing() {
        let mut policy = Watching;
        policy.observe(&observation(&[(1, vec![sample(1, 512)])]));
        assert_eq!(policy.next_promotion(at(1000)), None);
        assert!(policy.needs().coverage() && policy.needs().overhead());
    }
}
