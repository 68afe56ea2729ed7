//! What the rules of a machine say about one process.

use serde::{Deserialize, Serialize};

/// The terms on which a process is managed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// How much its gain counts beside that of others (finite, over 0; 1 unless set).
    pub weight: f64,
    /// Under this overhead nothing of it is promoted by policies that go by overhead, in per cent;
    /// `None`: the policy's own limit.
    pub min_gain_percent: Option<f64>,
    /// Memory under huge pages that all processes of its rule may have together, in bytes (the
    /// paper's limit against starvation).
    pub max_huge_bytes: Option<u64>,
    /// Which rule it falls under, by its place among the rules.
    pub rule: Option<usize>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            weight: 1.0,
            min_gain_percent: None,
            max_huge_bytes: None,
            rule: None,
        }
    }
}
