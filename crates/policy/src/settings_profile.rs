//! Profiles: one word for a behaviour. Individual settings override parts of it.

use serde::{Deserialize, Serialize};

/// What HawkEye does for a program. Every profile recovers bloat. A later one does more.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SettingsProfile {
    /// Nothing is promoted.
    Guard,
    /// What pays for itself is promoted. First touches are left to the kernel.
    #[default]
    Balanced,
    /// The same, and memory is huge at its first touch wherever that can be arranged for the
    /// managed program alone.
    Speed,
}

impl SettingsProfile {
    /// Name of the policy that the profile implies.
    pub fn policy_name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Balanced | Self::Speed => "hawkeye",
        }
    }

    /// Whether memory is promoted.
    pub fn promotes(self) -> bool {
        self != Self::Guard
    }

    /// Whether memory should be huge at its first touch: by prefault where a core is spare, and by
    /// switches of the program's allocator.
    pub fn wants_huge_first_touch(self) -> bool {
        self == Self::Speed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{self, PolicySettings};

    #[test]
    fn a_profile_implies_an_existing_policy_that_promotes_if_the_profile_does() {
        use SettingsProfile::{Balanced, Guard, Speed};
        for profile in [Guard, Balanced, Speed] {
            let policy =
                policies::make_policy_by_name(profile.policy_name(), &PolicySettings::default());
            let kinds = policy.expect("an existing policy").sample_kinds();
            assert!(kinds.includes_overhead() && !kinds.includes_coverage(), "{profile}");
            assert!(profile.promotes() || !profile.wants_huge_first_touch(), "{profile}");
        }
    }
}
