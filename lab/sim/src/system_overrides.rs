//! Settings of managers that experiments vary.

use crate::kernel::ZeroingSpec;
use hawkeye_manager::Settings;
use hawkeye_policy::policies::PolicySettings;
use hawkeye_policy::{
    BloatThreshold, CoverageAveraging, CpuBudget, Setting, SettingError, Watermarks,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings for every system alike. `None`: each system's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SystemOverrides {
    /// Period of sampling windows, in seconds.
    pub period_s: Option<f64>,
    /// Length of a sampling window, in seconds.
    pub window_s: Option<f64>,
    /// Most promotions in total.
    pub max_promotions: Option<u64>,
    /// The manager's CPU budget, in per cent of a core.
    pub cpu_percent: Option<f64>,
    /// Share of memory in use at which recovery of bloat starts, in per cent.
    pub high_watermark_percent: Option<f64>,
    /// Share of memory in use at which recovery ends, in per cent.
    pub low_watermark_percent: Option<f64>,
    /// Fewest zero base pages with which a huge page is split (1-512).
    pub bloat_zero_pages: Option<u16>,
    /// Weight of the newest window in the average of coverage (over 0, at most 1).
    pub weight_new: Option<f64>,
    /// For Ingens: share of a region that must be in use, in per cent.
    pub utilisation_percent: Option<f64>,
    /// Base pages that the zeroing thread zeroes per second, if there is one.
    pub zeroed_pages_per_s: Option<u64>,
    /// Whether the zeroing thread's stores bypass the caches.
    pub zeroing_non_temporal: Option<bool>,
}

impl SystemOverrides {
    /// A system's settings, overridden by these.
    pub(crate) fn override_settings(
        &self,
        own: Settings,
        told: PolicySettings,
    ) -> Result<(Settings, PolicySettings), SettingError> {
        let mut settings = own;
        if let Some(period_s) = self.period_s {
            settings.period = duration_of_seconds(Setting::Period, period_s)?;
        }
        if let Some(window_s) = self.window_s {
            settings.window = duration_of_seconds(Setting::Window, window_s)?;
        }
        settings.window = settings.window.min(settings.period);
        settings.max_promotions = self.max_promotions.or(settings.max_promotions);
        if let Some(percent) = self.cpu_percent {
            settings.cpu = CpuBudget::new(percent)?;
        }
        if self.high_watermark_percent.is_some() || self.low_watermark_percent.is_some() {
            let (high, low) = (self.high_watermark_percent, self.low_watermark_percent);
            let high = high.unwrap_or(settings.watermarks.high_percent());
            let low = low.unwrap_or(settings.watermarks.low_percent().min(high));
            settings.watermarks = Watermarks::new(high, low)?;
        }
        if let Some(pages) = self.bloat_zero_pages {
            settings.bloat = BloatThreshold::new(pages)?;
        }
        if let Some(weight) = self.weight_new {
            settings.average = CoverageAveraging::new(weight)?;
        }
        let mut told = PolicySettings { average: settings.average, ..told };
        if let Some(percent) = self.utilisation_percent {
            told.ingens = told.ingens.with_utilisation_percent(percent)?;
        }
        Ok((settings, told))
    }

    pub(crate) fn override_zeroing_spec(&self, own: Option<ZeroingSpec>) -> Option<ZeroingSpec> {
        own.map(|own| ZeroingSpec {
            pages_per_s: self.zeroed_pages_per_s.unwrap_or(own.pages_per_s),
            non_temporal: self.zeroing_non_temporal.unwrap_or(own.non_temporal),
        })
    }
}

fn duration_of_seconds(setting: Setting, value: f64) -> Result<Duration, SettingError> {
    let time = Duration::try_from_secs_f64(value);
    time.map_err(|_| SettingError::new(setting, value, "0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::policies::IngensSettings;

    #[test]
    fn a_utilisation_leaves_each_system_its_own_switch() {
        let overrides =
            SystemOverrides { utilisation_percent: Some(50.0), ..SystemOverrides::default() };
        for switch in [0.0, 0.5] {
            let ingens = IngensSettings::new(90.0, switch).expect("it is valid");
            let own = PolicySettings { ingens, ..PolicySettings::default() };
            let told = overrides.override_settings(Settings::default(), own).expect("is valid").1;
            assert_eq!(Ok(told.ingens), IngensSettings::new(50.0, switch));
        }
    }
}
