//! Settings that a machine's rules give one process.

use crate::page::HUGE_PAGE_BYTES;
use crate::setting_error::{Setting, SettingError, check_positive_percent, check_positive_up_to};
use crate::settings_profile::SettingsProfile;
use serde::{Deserialize, Serialize};

/// What the rules set for a process that is managed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSettings {
    /// Weight of its gain relative to other processes (finite, over 0; 1 unless set).
    pub weight: f64,
    /// Minimum overhead for promotions by policies that use overhead, in per cent. `None`: the
    /// policy's own limit.
    pub min_gain_percent: Option<f64>,
    /// The most memory under huge pages for all processes of its rule together, in bytes (the
    /// paper's limit against starvation).
    pub max_huge_bytes: Option<u64>,
    /// Memory that is zeroed and mapped as soon as the process starts, in bytes (prefault). `None`:
    /// it is not known to touch all of its memory.
    pub warm_bytes: Option<u64>,
    /// Whether its memory is promoted. If not, only its bloat is recovered.
    pub promotes: bool,
    /// Whether its memory is prefaulted, where prefault runs.
    pub prefaults: bool,
    /// Whether its shared memory is promoted, too.
    pub shared_memory: bool,
    /// The profile that its rule names, or that its workload asks for. `None`: the daemon's.
    pub profile: Option<SettingsProfile>,
    /// The rule that it falls under, by its index.
    pub rule: Option<usize>,
}

impl ProcessSettings {
    /// The highest weight: beyond it all other processes may as well be excluded.
    const MAX_WEIGHT: f64 = 1000.0;

    /// Minimum overhead for promotions where no rule sets one, in per cent (paper, section 4).
    pub const MIN_OVERHEAD_PERCENT: f64 = 2.0;

    /// These rules with the behaviour of a profile.
    pub fn with_profile(self, profile: SettingsProfile) -> Self {
        Self {
            profile: Some(profile),
            promotes: profile.promotes(),
            prefaults: profile.wants_huge_first_touch() || self.warm_bytes.is_some(),
            ..self
        }
    }

    /// Overhead below which nothing is promoted, in per cent.
    pub fn min_overhead_to_promote_percent(self) -> f64 {
        self.min_gain_percent.unwrap_or(Self::MIN_OVERHEAD_PERCENT)
    }

    /// Checks values that a user gave: the weight is at most 1000, a limit at least a huge page.
    pub fn check(self) -> Result<Self, SettingError> {
        let weight = "over 0 and at most 1000";
        check_positive_up_to(Self::MAX_WEIGHT, self.weight, Setting::Weight, weight)?;
        if let Some(percent) = self.min_gain_percent {
            check_positive_percent(percent, Setting::MinGain)?;
        }
        for (setting, size) in
            [(Setting::MaxHuge, self.max_huge_bytes), (Setting::Warm, self.warm_bytes)]
        {
            if let Some(bytes) = size {
                let (fits, allowed) = (bytes >= HUGE_PAGE_BYTES, "at least one huge page (2 MiB)");
                SettingError::error_unless_valid(fits, setting, bytes, allowed)?;
            }
        }
        Ok(self)
    }
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            weight: 1.0,
            min_gain_percent: None,
            max_huge_bytes: None,
            warm_bytes: None,
            promotes: true,
            prefaults: true,
            shared_memory: false,
            profile: None,
            rule: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(terms: ProcessSettings) -> Option<Setting> {
        terms.check().err().map(|error| error.setting)
    }

    #[test]
    fn terms_out_of_range_are_refused() {
        let usual = ProcessSettings::default();
        assert_eq!(usual.check(), Ok(usual));
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(ProcessSettings { weight, ..usual }), Some(Setting::Weight));
        }
        let gain = |percent| ProcessSettings { min_gain_percent: Some(percent), ..usual };
        assert_eq!(refused(gain(100.0)), None);
        assert_eq!(refused(gain(101.0)), Some(Setting::MinGain));
        let limit = |bytes| ProcessSettings { max_huge_bytes: Some(bytes), ..usual };
        assert_eq!(refused(limit(HUGE_PAGE_BYTES)), None);
        assert_eq!(refused(limit(4096)), Some(Setting::MaxHuge));
        let warm = ProcessSettings { warm_bytes: Some(4096), ..usual };
        assert_eq!(refused(warm), Some(Setting::Warm));
    }

    #[test]
    fn a_profile_decides_unless_the_rule_has_a_warm_start() {
        let usual = ProcessSettings::default();
        let warm = ProcessSettings { warm_bytes: Some(HUGE_PAGE_BYTES), ..usual };
        for (rules, profile, expected) in [
            (usual, SettingsProfile::Guard, (false, false)),
            (usual, SettingsProfile::Balanced, (true, false)),
            (usual, SettingsProfile::Speed, (true, true)),
            (warm, SettingsProfile::Balanced, (true, true)),
        ] {
            let rules = rules.with_profile(profile);
            assert_eq!((rules.promotes, rules.prefaults), expected, "{profile}");
        }
    }
}
