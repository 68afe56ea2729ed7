//! The result of a check. Unknown is not false.

use serde::Serialize;

/// The result of trying something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum CheckResult {
    /// Seen to work.
    Works,
    /// Tried, and this happened instead.
    Fails(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl CheckResult {
    /// Whether it was seen to work.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}
