//! Short and long forms of experiments.

/// How long and how large the experiments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Minutes, and sizes that show the direction.
    Quick,
    /// The sizes that are claimed.
    Full,
}
