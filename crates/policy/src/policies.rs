//! Every policy, and how to get one by its name.
//!
//! | policy | promotes first |
//! |---|---|
//! | [`hawkeye`] | the region that saves most CPU time; nothing that does not pay for itself |
//! | [`hawkeye_pmu`] | the most accessed region of the process with the highest overhead |
//! | [`hawkeye_g`] | the highest access-map bucket of all processes |
//! | [`ingens`] | well-used regions, by utilisation, fragmentation and fair shares |
//! | [`linux`] | in order of address, as khugepaged does |
//! | [`none`] | nothing |
//!
//! Read [`none`] first: it shows what a policy must have. `members` is the state by process that
//! the others share. CONTRIBUTING.md says how to add one.

pub mod hawkeye;
pub mod hawkeye_g;
pub mod hawkeye_pmu;
pub mod ingens;
pub mod linux;
mod members;
pub mod none;

pub use hawkeye::{Hawkeye, HawkeyeSettings};
pub use hawkeye_g::{HawkeyeG, HawkeyeGSettings};
pub use hawkeye_pmu::{HawkeyePmu, HawkeyePmuSettings};
pub use ingens::{Ingens, IngensSettings};
pub use linux::{LinuxOrder, LinuxSettings, Pace};
pub use none::NoPromotion;

use crate::average::CoverageAverage;
use crate::policy::Policy;
use thiserror::Error;

/// What policies can be told. Every value in here is valid by its type, so that making a policy
/// fails only for a name that doesn't exist.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicySettings {
    /// How coverage is averaged, by all policies that go by coverage.
    pub average: CoverageAverage,
    /// For `ingens`.
    pub ingens: IngensSettings,
    /// For `linux`.
    pub linux: LinuxSettings,
}

type Make = fn(&PolicySettings) -> Box<dyn Policy>;

/// Each policy, by how it is made.
const POLICIES: &[Make] = &[
    |s| {
        Box::new(Hawkeye::new(HawkeyeSettings {
            average: s.average,
            ..HawkeyeSettings::default()
        }))
    },
    |s| Box::new(HawkeyeG::new(HawkeyeGSettings { average: s.average })),
    |s| Box::new(HawkeyePmu::new(HawkeyePmuSettings { average: s.average })),
    |s| Box::new(Ingens::new(s.ingens)),
    |s| Box::new(LinuxOrder::new(s.linux)),
    |_| Box::new(NoPromotion::BLIND),
];

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no policy {name:?}; the policies are {}", known_names())]
pub struct UnknownPolicy {
    /// The name that was asked for.
    pub name: String,
}

/// The names of all policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES
        .iter()
        .map(|make| make(&PolicySettings::default()).name())
}

/// Makes the policy of that name.
pub fn by_name(name: &str, settings: &PolicySettings) -> Result<Box<dyn Policy>, UnknownPolicy> {
    POLICIES
        .iter()
        .map(|make| make(settings))
        .find(|policy| policy.name() == name)
        .ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
        })
}

fn known_names() -> String {
    names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_makes_the_policy_of_that_name() {
        for name in names() {
            let made = by_name(name, &PolicySettings::default()).map(|p| p.name());
            assert_eq!(made, Ok(name));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = by_name("best", &PolicySettings::default()).map(|p| p.name());
        let error = error
            .map_err(|e| e.to_string())
            .expect_err("no such policy");
        assert!(error.starts_with("there is no policy \"best\"; the policies are hawkeye, "));
        assert!(names().all(|name| error.contains(name)), "{error}");
    }

    #[test]
    fn no_two_policies_have_one_name() {
        let distinct: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(distinct.len(), POLICIES.len());
    }
}
