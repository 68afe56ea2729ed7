//! The error of settings: a value outside its range.

use std::fmt;
use thiserror::Error;

/// Defines [`Setting`]: each with its name for users, and its key in the daemon's configuration.
macro_rules! define_settings {
    ($($setting:ident: $name:literal, $key:literal;)*) => {
        /// A setting that is checked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Setting {
            $(#[doc = $name] $setting,)*
        }

        impl Setting {
            /// Its name for users, with its unit.
            pub fn name(self) -> &'static str {
                match self { $(Self::$setting => $name,)* }
            }

            /// Its key in a table of the daemon's configuration; empty where no single key is its.
            pub fn key(self) -> &'static str {
                match self { $(Self::$setting => $key,)* }
            }
        }
    };
}

define_settings! {
    Window: "window (s)", "window";
    Period: "period (s)", "period";
    NewestWeight: "weight of the newest sample", "newest_weight";
    SamplingSlowdown: "slowdown by sampling (%)", "slowdown_percent";
    SamplingCpuShare: "sampling's share of the CPU budget (%)", "cpu_share_percent";
    Cpu: "CPU budget (% of one core)", "cpu_percent";
    SavingsShare: "promotions' share of what they save (%)", "promotion_return_percent";
    Rate: "rate (per second)", "";
    Reserve: "reserve (bytes)", "reserve";
    PressureLimit: "memory pressure limit (%)", "pressure_limit_percent";
    HighWatermark: "high watermark (%)", "high_percent";
    LowWatermark: "low watermark (%)", "low_percent";
    BloatThreshold: "bloat threshold (zero base pages)", "bloat_pages";
    MinResident: "least anonymous memory of a managed process (bytes)", "min_resident";
    ScanInterval: "interval between scans for processes (s)", "look_every";
    MaxProcesses: "managed processes", "max_processes";
    PrefaultThreads: "prefault threads", "threads";
    UsualZeroingRate: "usual zeroing rate (base pages per second)", "pages_per_s";
    HighestZeroingRate: "highest zeroing rate (base pages per second)", "most_pages_per_s";
    Weight: "weight", "weight";
    MinGain: "minimum gain (%)", "min_gain_percent";
    MaxHuge: "maximum huge memory (bytes)", "max_huge";
    Warm: "warm-start memory (bytes)", "warm";
    Utilisation: "utilisation (%)", "";
    FragmentationIndex: "fragmentation index", "";
}

/// A setting was given an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} must be {allowed}, not {value}", .setting.name())]
pub struct SettingError {
    /// The setting.
    pub setting: Setting,
    /// The given value.
    pub value: String,
    /// The allowed values, worded to follow "must be".
    pub allowed: &'static str,
}

impl SettingError {
    /// `setting` can't be `value`; it must be `allowed` (worded to follow "must be").
    pub fn new(setting: Setting, value: impl fmt::Display, allowed: &'static str) -> Self {
        Self { setting, value: value.to_string(), allowed }
    }

    /// An error unless the value is valid.
    pub fn error_unless_valid(
        fits: bool,
        setting: Setting,
        value: impl fmt::Display,
        allowed: &'static str,
    ) -> Result<(), Self> {
        if fits { Ok(()) } else { Err(Self::new(setting, value, allowed)) }
    }
}

/// `percent` when it is over 0 and at most 100; an error for NaN.
pub(crate) fn check_positive_percent(percent: f64, setting: Setting) -> Result<f64, SettingError> {
    check_positive_up_to(100.0, percent, setting, "over 0 and at most 100")
}

/// `value` when it is over 0 and at most `max`; an error for NaN.
pub(crate) fn check_positive_up_to(
    max: f64,
    value: f64,
    setting: Setting,
    allowed: &'static str,
) -> Result<f64, SettingError> {
    SettingError::error_unless_valid(value > 0.0 && value <= max, setting, value, allowed)?;
    Ok(value)
}
