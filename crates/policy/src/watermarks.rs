//! When memory is too full to promote, and from which cgroup to take it back.
//!
//! ```text
//!  memory of the machine and its cgroups --> guard: MemoryGuard --> hold promotions (Hold)
//!                                              |      ^         `-> recover (Shortage)
//!                     when to look again <- looking  adaptive: start earlier when memory grows fast
//! ```

mod adaptive;
mod guard;
mod looking;

pub use guard::{Assessment, MemoryGuard, RecoverFrom};

use crate::error::{SettingError, positive_up_to};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use thiserror::Error;

/// Shares of memory in use between which recovery starts and ends (paper, sections 3.2 and 3.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    high_percent: f64,
    low_percent: f64,
}

impl Watermarks {
    /// Recovery starts above `high_percent` and goes on until under `low_percent`
    /// (0 < low < high <= 100).
    pub fn new(high_percent: f64, low_percent: f64) -> Result<Self, SettingError> {
        let high = "high watermark (%)";
        positive_up_to(100.0, high_percent, high, "over 0 and at most 100")?;
        if low_percent > 0.0 && low_percent < high_percent {
            Ok(Self {
                high_percent,
                low_percent,
            })
        } else {
            let low = "low watermark (%)";
            Err(SettingError::new(
                low,
                low_percent,
                "over 0 and under the high watermark",
            ))
        }
    }

    /// Above it recovery starts at the latest and nothing is promoted, in per cent of memory.
    pub fn high_percent(self) -> f64 {
        self.high_percent
    }

    /// Under it recovery ends, in per cent of memory.
    pub fn low_percent(self) -> f64 {
        self.low_percent
    }
}

impl Default for Watermarks {
    /// The paper's 85 and 70 %.
    fn default() -> Self {
        Self {
            high_percent: 85.0,
            low_percent: 70.0,
        }
    }
}

/// Which watermarks hold for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatermarkTable {
    /// The machine's.
    pub machine: Watermarks,
    /// Those of cgroups that are not named.
    pub groups: Watermarks,
    /// Those of single cgroups, by path (`/system.slice/db.service`); they hold for the groups
    /// inside too, unless these are named themselves.
    pub by_group: HashMap<String, Watermarks>,
}

impl WatermarkTable {
    /// The watermarks of the machine or of a cgroup.
    pub fn of(&self, scope: &Scope) -> Watermarks {
        let Scope::Group(path) = scope else {
            return self.machine;
        };
        let ancestors = std::path::Path::new(path).ancestors();
        ancestors
            .filter_map(|group| self.by_group.get(group.to_str()?))
            .next()
            .copied()
            .unwrap_or(self.groups)
    }
}

impl From<Watermarks> for WatermarkTable {
    /// The same for all.
    fn from(marks: Watermarks) -> Self {
        Self {
            machine: marks,
            groups: marks,
            by_group: HashMap::new(),
        }
    }
}

/// Whose memory is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine's.
    Machine,
    /// A cgroup's, by its path.
    Group(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Group(name) => write!(f, "cgroup {name}"),
        }
    }
}

/// Why promotion waits.
#[derive(Clone, Debug, PartialEq, Error, Serialize)]
#[serde(tag = "hold", rename_all = "kebab-case")]
pub enum Hold {
    /// The state of memory is not known (yet).
    #[error("the state of memory is not known")]
    Unknown,
    /// Memory is over the high watermark.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, over the high watermark of {high_percent} %"
    )]
    AboveHigh {
        /// Whose.
        scope: Scope,
        /// In use, per cent.
        used_percent: f64,
        /// The high watermark, per cent.
        high_percent: f64,
    },
    /// Memory is under the high watermark, but would be full before recovery could be done with it.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory and grows by {} MB/s, which has recovery start at {start_percent:.1} %",
        growth_bytes_per_s / 1_000_000
    )]
    FillingUp {
        /// Whose.
        scope: Scope,
        /// In use, per cent.
        used_percent: f64,
        /// The share at which recovery starts at this growth, per cent.
        start_percent: f64,
        /// How fast use grows, bytes per second.
        growth_bytes_per_s: u64,
    },
    /// The promotion would bring memory over the mark at which it is recovered.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, and {} KiB more would bring it over the {start_percent:.1} % at which it is recovered",
        bytes >> 10
    )]
    WouldCross {
        /// Whose.
        scope: Scope,
        /// In use, per cent.
        used_percent: f64,
        /// What the promotion takes, in bytes.
        bytes: u64,
        /// The share at which recovery starts, per cent.
        start_percent: f64,
    },
    /// Memory was over the high watermark and is not yet under the low one.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, being recovered until under {low_percent} %"
    )]
    Recovering {
        /// Whose.
        scope: Scope,
        /// In use, per cent.
        used_percent: f64,
        /// The low watermark, per cent.
        low_percent: f64,
    },
    /// Tasks wait for memory.
    #[error(
        "tasks of {scope} waited for memory {pressure_percent:.1} % of the last 10 s, more than {limit_percent} %"
    )]
    Pressure {
        /// Whose.
        scope: Scope,
        /// Share of the last 10 s (PSI "some avg10"), per cent.
        pressure_percent: f64,
        /// The most at which promotion goes on, per cent.
        limit_percent: f64,
    },
}

/// The numbers that have memory recovered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// In use, per cent.
    pub used_percent: f64,
    /// The share above which recovery starts at this growth, per cent.
    pub start_percent: f64,
    /// How fast use grows, bytes per second.
    pub growth_bytes_per_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_in_order() {
        for (high, low) in [
            (70.0, 85.0),
            (85.0, 85.0),
            (101.0, 70.0),
            (85.0, 0.0),
            (f64::NAN, 1.0),
        ] {
            assert!(Watermarks::new(high, low).is_err(), "{high}, {low}");
        }
        assert!(Watermarks::new(85.0, f64::NAN).is_err());
        assert_eq!(Watermarks::new(85.0, 70.0), Ok(Watermarks::default()));
    }

    #[test]
    fn a_group_has_its_own_marks_or_those_above_it() -> Result<(), SettingError> {
        let table = WatermarkTable {
            groups: Watermarks::new(80.0, 60.0)?,
            by_group: HashMap::from([
                ("/db".to_owned(), Watermarks::new(95.0, 90.0)?),
                ("/db/test".to_owned(), Watermarks::new(50.0, 40.0)?),
            ]),
            ..WatermarkTable::default()
        };
        let high = |path: &str| table.of(&Scope::Group(path.to_owned())).high_percent();
        assert_eq!(table.of(&Scope::Machine).high_percent(), 85.0);
        assert_eq!(high("/web"), 80.0);
        assert_eq!(high("/dbx"), 80.0);
        assert_eq!(high("/db"), 95.0);
        assert_eq!(high("/db/main"), 95.0);
        assert_eq!(high("/db/test/1"), 50.0);
        Ok(())
    }
}
