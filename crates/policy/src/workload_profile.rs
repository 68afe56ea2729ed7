//! Profiles that workloads ask for themselves, beside the rules of the configuration.

use crate::settings_profile::SettingsProfile;
use serde::Serialize;

/// What a workload may ask for. A later one lets HawkEye do more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadProfile {
    /// It is left alone.
    Never,
    /// It is managed with this profile.
    Managed(SettingsProfile),
}

impl WorkloadProfile {
    /// Each one with its name.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("never", Self::Never),
        ("guard", Self::Managed(SettingsProfile::Guard)),
        ("balanced", Self::Managed(SettingsProfile::Balanced)),
        ("speed", Self::Managed(SettingsProfile::Speed)),
    ];

    /// The profile with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, profile)| *profile)
    }
}

/// The profile that a workload asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileRequest {
    /// The name of the profile as the workload writes it. No profile may have that name.
    pub name: String,
    /// Where it asks.
    pub source: ProfileRequestSource,
}

/// Where a workload asks for a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum ProfileRequestSource {
    /// In an attribute of its cgroup, or of one above it.
    #[strum(serialize = "its cgroup")]
    Cgroup,
    /// In an annotation of its Kubernetes pod.
    #[strum(serialize = "its pod")]
    Pod,
    /// In the unit file or a drop-in of its systemd unit, or of a slice above it.
    #[strum(serialize = "its systemd unit")]
    Unit,
}
