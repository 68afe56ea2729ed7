//! One run of many.

use hawkeye_sim::simulate::Simulated;
use serde::Serialize;

/// A run, with the value of what was varied.
#[derive(Serialize)]
pub struct Entry {
    /// Its dotted key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parameter: String,
    /// As it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The seed.
    pub seed: u64,
    /// What came of it.
    #[serde(flatten)]
    pub run: Simulated,
}
