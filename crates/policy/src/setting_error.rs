//! The error of settings: a value outside its range.

use std::fmt;
use thiserror::Error;

/// A setting was given an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting} must be {allowed}, not {value}")]
pub struct SettingError {
    /// Name of the setting for users, with its unit.
    pub setting: &'static str,
    /// The given value.
    pub value: String,
    /// The allowed values, worded to follow "must be".
    pub allowed: &'static str,
}

impl SettingError {
    /// `setting` can't be `value`; it must be `allowed` (worded to follow "must be").
    pub fn new(setting: &'static str, value: impl fmt::Display, allowed: &'static str) -> Self {
        Self { setting, value: value.to_string(), allowed }
    }

    /// An error unless the value is valid.
    pub fn error_unless_valid(
        fits: bool,
        setting: &'static str,
        value: impl fmt::Display,
        allowed: &'static str,
    ) -> Result<(), Self> {
        if fits { Ok(()) } else { Err(Self::new(setting, value, allowed)) }
    }
}

/// `percent` when it is over 0 and at most 100; an error for NaN.
pub(crate) fn check_positive_percent(
    percent: f64,
    setting: &'static str,
) -> Result<f64, SettingError> {
    check_positive_up_to(100.0, percent, setting, "over 0 and at most 100")
}

/// `value` when it is over 0 and at most `max`; an error for NaN.
pub(crate) fn check_positive_up_to(
    max: f64,
    value: f64,
    setting: &'static str,
    allowed: &'static str,
) -> Result<f64, SettingError> {
    SettingError::error_unless_valid(value > 0.0 && value <= max, setting, value, allowed)?;
    Ok(value)
}
