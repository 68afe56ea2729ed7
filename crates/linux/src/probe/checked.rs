//! Unknown is not false.

use serde::Serialize;

/// The outcome of trying something: unknown is not false.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum Checked {
    /// Seen to work.
    Works,
    /// Tried, and this happened instead.
    Fails(String),
    /// Not tried, for this reason.
    NotTried(String),
}

impl Checked {
    /// Whether it was seen to work.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }

    pub(super) fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Fails, |()| Self::Works)
    }
}
