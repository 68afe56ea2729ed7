//! Short and long forms of experiments.

use std::time::Duration;

/// The form of an experiment: how long and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A few minutes, and sizes that show the tendency.
    Quick,
    /// The sizes that are claimed.
    Full,
}

/// Length and size of experiments that measure programs in turn.
#[derive(Clone, Copy)]
pub struct TurnSettings {
    /// Memory of each program.
    pub mib: u64,
    pub turns: usize,
    pub turn: Duration,
    /// Timeout for a policy to make its promotions, or for an estimate.
    pub at_most: Duration,
}

impl Scale {
    /// Sizes of the short and of the long form: MiB, turns, milliseconds of a turn, and the
    /// timeout.
    pub fn choose_turn_settings(self, quick: [u64; 4], full: [u64; 4]) -> TurnSettings {
        let [mib, turns, turn_ms, at_most_ms] = self.short_or_long(quick, full);
        TurnSettings {
            mib,
            turns: turns as usize,
            turn: Duration::from_millis(turn_ms),
            at_most: Duration::from_millis(at_most_ms),
        }
    }

    /// The value of the short or of the long form.
    pub fn short_or_long<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}
