//! The result of a check. Unknown is not false.

use serde::Serialize;

/// The result of trying something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum KernelCheckResult {
    /// Seen to work.
    Works,
    /// Tried, and this happened instead.
    Fails(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl KernelCheckResult {
    /// Whether it was seen to work.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}
