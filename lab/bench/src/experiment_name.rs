//! Names of experiments.

use serde::{Serialize, Serializer};
use std::fmt;

/// The name of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExperimentName {
    /// What it shows, in words with hyphens.
    pub name: &'static str,
    /// The number of the paper's table or figure, or an earlier name, which JSON still has; empty
    /// if there is none.
    pub alias: &'static str,
}

impl ExperimentName {
    /// A name with an alias.
    pub const fn from_name_and_alias(name: &'static str, alias: &'static str) -> Self {
        Self { name, alias }
    }

    /// Whether a user means this experiment; underscores count as hyphens.
    pub fn matches_name_or_alias(&self, text: &str) -> bool {
        let text = text.replace('_', "-");
        text == self.name || !self.alias.is_empty() && text == self.alias
    }
}

impl From<&'static str> for ExperimentName {
    fn from(name: &'static str) -> Self {
        Self::from_name_and_alias(name, "")
    }
}

impl fmt::Display for ExperimentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias {
            "" => f.write_str(self.name),
            alias => write!(f, "{} ({alias})", self.name),
        }
    }
}

/// The alias if there is one, because earlier JSON had only that.
impl Serialize for ExperimentName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.alias.is_empty() { self.name } else { self.alias })
    }
}
