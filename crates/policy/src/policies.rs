//! Every policy, and a constructor by name.
//!
//! | policy | promotes first |
//! |---|---|
//! | [`hawkeye`] | the region that saves most CPU time; nothing that does not pay for itself |
//! | [`access_map_policy`], as `hawkeye-pmu` | the hottest region of the process with most overhead |
//! | [`access_map_policy`], as `hawkeye-g` | the highest access-map bucket of all processes |
//! | [`ingens`] | well-used regions, by utilisation, fragmentation and fair shares |
//! | [`linux`] | in order of address, as khugepaged does |
//! | [`none`], also as `guard` | nothing |
//! | [`hawkeye`], as `emd` | as `hawkeye` |
//!
//! Each also has an order in which recovery splits bloated huge pages:
//! [`PolicyProperties::recovery_order`](crate::PolicyProperties::recovery_order).
//!
//! Read [`none`] first: it shows what a policy needs. The other policies share
//! `ProcessStates`, the state by process. CONTRIBUTING.md says how to add a policy.

pub mod access_map_policy;
pub mod hawkeye;
pub mod ingens;
pub mod linux;
pub mod none;

pub use access_map_policy::AccessMapPolicy;
pub use hawkeye::{Hawkeye, PromotionFloor};
pub use ingens::{Ingens, IngensSettings};
pub use linux::LinuxPolicy;
pub use none::NoPromotion;

use crate::budget::RatePerSecond;
use crate::coverage_averaging::CoverageAveraging;
use crate::policy::Policy;
use thiserror::Error;

/// Settings of all policies. Every value in here is valid by its type, so making a policy fails
/// only for an unknown name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicySettings {
    /// How coverage is averaged, by all policies that use coverage.
    pub average: CoverageAveraging,
    /// For `hawkeye` and `emd`.
    pub floor: PromotionFloor,
    /// For `ingens`.
    pub ingens: IngensSettings,
    /// Regions that `linux` promotes per second; `None`: khugepaged's pace.
    pub linux_rate: Option<RatePerSecond>,
}

type PolicyConstructor = fn(&PolicySettings) -> Box<dyn Policy>;

/// Each policy, and what it promotes first, as in the help of `--policy`.
const POLICIES: &[(PolicyConstructor, &str)] = &[
    (
        |s| Box::new(Hawkeye::new(s.average, s.floor)),
        "by what each promotion saves; none where translation costs under 2 %",
    ),
    (|s| Box::new(AccessMapPolicy::hawkeye_g(s.average)), "by access coverage"),
    (|s| Box::new(AccessMapPolicy::hawkeye_pmu(s.average)), "by overhead, then coverage"),
    (
        |s| Box::new(Hawkeye::with_recovery_by_emd(s.average, s.floor)),
        "as hawkeye; recovers the most bloated regions first",
    ),
    (
        |s| Box::new(Ingens::new(s.ingens)),
        "by memory held; regions 90 % in use while memory is fragmented",
    ),
    (|s| Box::new(LinuxPolicy::new(s.linux_rate)), "khugepaged's order and pace"),
    (|_| Box::new(NoPromotion::GUARD), "nothing; recovers bloat where that costs least speed"),
    (|_| Box::new(NoPromotion::BLIND), "nothing; recovers bloat as hawkeye-g does"),
];

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no policy {name:?}; the policies are {}", joined_policy_names())]
pub struct UnknownPolicy {
    /// The requested name.
    pub name: String,
}

/// The names of all policies, with commas between them.
pub fn joined_policy_names() -> String {
    policy_names().collect::<Vec<_>>().join(", ")
}

/// The names of all policies.
pub fn policy_names() -> impl Iterator<Item = &'static str> {
    policy_names_and_summaries().map(|(name, _)| name)
}

/// All policies: name, and what each promotes first.
pub fn policy_names_and_summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = POLICIES.iter();
    all.map(|(make, first)| (make(&PolicySettings::default()).name(), *first))
}

/// Makes the policy with this name.
pub fn make_policy_by_name(
    name: &str,
    settings: &PolicySettings,
) -> Result<Box<dyn Policy>, UnknownPolicy> {
    POLICIES
        .iter()
        .map(|(make, _)| make(settings))
        .find(|policy| policy.name() == name)
        .ok_or_else(|| UnknownPolicy { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_region::FileRegion;
    use crate::huge_page_reserve_planner::HugePageReadiness;
    use crate::observation::RegionSample;
    use crate::test_support::{at_second, observation_with_overheads, process, sample};
    use crate::translation_overhead::TranslationOverheadSource;
    use std::collections::HashSet;

    /// Each policy that promotes, after a round of samples of this many processes with these
    /// regions.
    fn policies_that_saw(
        processes: usize,
        regions: &[RegionSample],
    ) -> impl Iterator<Item = Box<dyn Policy>> {
        let each = vec![(Some(20.0), regions.to_vec()); processes];
        let seen = observation_with_overheads(&each, TranslationOverheadSource::Counters);
        let all = POLICIES.iter().map(|(make, _)| make(&PolicySettings::default()));
        let promoting = all.filter(|policy| !["guard", "none"].contains(&policy.name()));
        promoting.map(move |mut policy| {
            policy.observe(&seen);
            policy
        })
    }

    #[test]
    fn what_waits_in_a_held_process_goes_on_waiting() {
        for mut policy in policies_that_saw(2, &[sample(1, 512), sample(2, 512)]) {
            let rounds: [&[u32]; 6] = [&[1], &[1], &[1], &[], &[], &[]];
            let found = rounds.map(|held| {
                let held = held.iter().map(|pid| process(*pid)).collect();
                let ready = HugePageReadiness::Ready;
                let next = policy.pop_next_promotion(at_second(0), ready, &held);
                next.map(|promotion| promotion.process.pid)
            });
            let expected = [Some(2), Some(2), None, Some(1), Some(1), None];
            assert_eq!(found, expected, "{}", policy.name());
        }
    }

    #[test]
    fn proposals_name_the_part_of_the_file_that_was_sampled() {
        let file = FileRegion { inode: 7, device: 1, index: 3 };
        for file in [Some(file), None] {
            for mut policy in policies_that_saw(1, &[RegionSample { file, ..sample(1, 512) }]) {
                let ready = HugePageReadiness::Ready;
                let next = policy.pop_next_promotion(at_second(0), ready, &HashSet::new());
                assert_eq!(next.map(|next| next.file), Some(file), "{}", policy.name());
            }
        }
    }

    #[test]
    fn each_policy_has_its_order_of_recovery() {
        use crate::bloat_recovery::RecoveryOrder::{
            LowestOverheadFirst, MostBloatedFirst, MostBytesPerSlowdown,
        };
        let orders = ["hawkeye", "guard", "emd", "hawkeye-g", "hawkeye-pmu", "none"].map(|name| {
            let policy = make_policy_by_name(name, &PolicySettings::default()).expect("is there");
            policy.properties().recovery_order
        });
        let (ours, paper) = (MostBytesPerSlowdown, LowestOverheadFirst);
        assert_eq!(orders, [ours, ours, MostBloatedFirst, paper, paper, paper]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let made = make_policy_by_name("best", &PolicySettings::default()).map(|p| p.name());
        let error = made.expect_err("it is unknown").to_string();
        assert!(error.starts_with("there is no policy \"best\"; the policies are hawkeye, "));
        assert!(policy_names().all(|name| error.contains(name)), "{error}");
    }

    #[test]
    fn no_two_policies_have_one_name() {
        let distinct: std::collections::BTreeSet<_> = policy_names().collect();
        assert_eq!(distinct.len(), POLICIES.len());
    }
}
