//! When memory is too full to promote, and from which cgroup memory is recovered.
//!
//! ```text
//!  memory of the machine and its cgroups --> MemoryGuard --> PromotionBlockReason
//!                                                ^       `-> recover (MemoryShortage)
//!    recovery_timing: start earlier when memory grows fast, and when to read again
//! ```

mod memory_guard;
mod recovery_timing;

pub use memory_guard::{MemoryGuard, UrgentWorkPayers};

use crate::setting_error::{Setting, SettingError, check_positive_percent};
use serde::Serialize;
use std::collections::HashMap;
use thiserror::Error;

/// Shares of memory in use at which recovery starts and ends (paper, sections 3.2 and 3.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    high_percent: f64,
    low_percent: f64,
}

impl Watermarks {
    /// Recovery starts above `high_percent` and goes on until use is under `low_percent` (0 < low <
    /// high <= 100).
    pub fn new(high_percent: f64, low_percent: f64) -> Result<Self, SettingError> {
        check_positive_percent(high_percent, Setting::HighWatermark)?;
        let fits = low_percent > 0.0 && low_percent < high_percent;
        let allowed = "over 0 and under the high watermark";
        SettingError::error_unless_valid(fits, Setting::LowWatermark, low_percent, allowed)?;
        Ok(Self { high_percent, low_percent })
    }

    /// Above it recovery has started and nothing is promoted, in per cent of memory.
    pub fn high_percent(self) -> f64 {
        self.high_percent
    }

    /// Under it recovery ends, in per cent of memory. In a cgroup that fills very fast, it starts
    /// and ends earlier.
    pub fn low_percent(self) -> f64 {
        self.low_percent
    }
}

impl Default for Watermarks {
    /// The paper's 85 and 70 %.
    fn default() -> Self {
        Self { high_percent: 85.0, low_percent: 70.0 }
    }
}

/// Watermarks of the machine and of cgroups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatermarkTable {
    /// The machine's.
    pub machine: Watermarks,
    /// Those of cgroups that are not named.
    pub groups: Watermarks,
    /// Those of single cgroups, by path (`/system.slice/db.service`). They also hold for nested
    /// cgroups that are not named themselves.
    pub by_group: HashMap<String, Watermarks>,
}

impl WatermarkTable {
    /// The watermarks of the machine or of a cgroup.
    pub fn for_scope(&self, scope: &MemoryScope) -> Watermarks {
        let MemoryScope::Group(path) = scope else { return self.machine };
        let mut ancestors = std::path::Path::new(path).ancestors();
        let named = ancestors.find_map(|group| self.by_group.get(group.to_str()?));
        named.copied().unwrap_or(self.groups)
    }
}

impl From<Watermarks> for WatermarkTable {
    /// The same watermarks for the machine and every cgroup.
    fn from(marks: Watermarks) -> Self {
        Self { machine: marks, groups: marks, by_group: HashMap::new() }
    }
}

/// The memory that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryScope {
    /// That of the whole machine.
    #[strum(to_string = "the machine")]
    Machine,
    /// That of a cgroup, by its path.
    #[strum(to_string = "cgroup {0}")]
    Group(String),
}

/// Why promotion waits.
#[derive(Clone, Debug, PartialEq, Error, Serialize)]
#[serde(tag = "hold", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the messages and the units in the names say it")]
pub enum PromotionBlockReason {
    #[error("the state of memory is not known")]
    Unknown,
    #[error(
        "not all memory limits of its cgroups can be read; in a container, run HawkEye with the machine's /sys/fs/cgroup"
    )]
    LimitsUnknown,
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, over the high watermark of {high_percent} %"
    )]
    AboveHigh { scope: MemoryScope, used_percent: f64, high_percent: f64 },
    /// Memory is under the high watermark, but would be full before recovery could finish.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory and grows by {} MB/s; at this growth, recovery starts at {start_percent:.1} %",
        growth_bytes_per_s / 1_000_000
    )]
    FillingUp {
        scope: MemoryScope,
        used_percent: f64,
        /// The share at which recovery starts at this growth, in per cent.
        start_percent: f64,
        growth_bytes_per_s: u64,
    },
    /// The promotion would bring memory over the mark at which recovery starts.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory, and {} KiB more would bring it over the {start_percent:.1} % at which recovery starts",
        bytes >> 10
    )]
    WouldCross {
        scope: MemoryScope,
        used_percent: f64,
        /// Memory that the promotion takes, in bytes.
        bytes: u64,
        /// The share at which recovery starts, in per cent.
        start_percent: f64,
    },
    /// Memory was over the high watermark and is not yet under the low one.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory; recovery goes on until it uses less than {low_percent} %"
    )]
    Recovering {
        scope: MemoryScope,
        used_percent: f64,
        /// The low watermark, or less in a cgroup that fills very fast.
        low_percent: f64,
    },
    /// Recovery for a group in danger is limited to a quarter of a core.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory and fills it as fast as it is recovered; recovery has used up its CPU time there and goes on in {rests_for_s:.0} s"
    )]
    RecoveryRests { scope: MemoryScope, used_percent: f64, rests_for_s: f64 },
    /// Urgent recovery of all groups together is limited too.
    #[error(
        "{scope} uses {used_percent:.1} % of its memory and would be full soon; cgroups have used up the CPU time of urgent recovery, so for {rests_for_s:.0} s it is recovered like others"
    )]
    NotUrgent { scope: MemoryScope, used_percent: f64, rests_for_s: f64 },
    #[error(
        "tasks of {scope} waited for memory {pressure_percent:.1} % of the last 10 s, more than {limit_percent} %"
    )]
    Pressure {
        scope: MemoryScope,
        /// Share of the last 10 s (PSI "some avg10"), in per cent.
        pressure_percent: f64,
        /// The highest pressure at which promotion goes on, in per cent.
        limit_percent: f64,
    },
}

/// The figures that cause recovery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryShortage {
    /// Memory in use, in per cent.
    pub used_percent: f64,
    /// The share above which recovery starts at this growth, in per cent.
    pub start_percent: f64,
    /// Growth of use, in bytes per second.
    pub growth_bytes_per_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_in_order() {
        for (high, low) in [(70.0, 85.0), (85.0, 85.0), (101.0, 70.0), (85.0, 0.0), (f64::NAN, 1.0)]
        {
            assert!(Watermarks::new(high, low).is_err(), "{high}, {low}");
        }
        assert!(Watermarks::new(85.0, f64::NAN).is_err());
        assert_eq!(Watermarks::new(85.0, 70.0), Ok(Watermarks::default()));
    }

    #[test]
    fn a_cgroup_has_its_own_watermarks_or_those_of_an_ancestor() -> Result<(), SettingError> {
        let table = WatermarkTable {
            groups: Watermarks::new(80.0, 60.0)?,
            by_group: HashMap::from([
                ("/db".to_owned(), Watermarks::new(95.0, 90.0)?),
                ("/db/test".to_owned(), Watermarks::new(50.0, 40.0)?),
            ]),
            ..WatermarkTable::default()
        };
        let high =
            |path: &str| table.for_scope(&MemoryScope::Group(path.to_owned())).high_percent();
        assert_eq!(table.for_scope(&MemoryScope::Machine).high_percent(), 85.0);
        assert_eq!(high("/web"), 80.0);
        assert_eq!(high("/dbx"), 80.0);
        assert_eq!(high("/db"), 95.0);
        assert_eq!(high("/db/main"), 95.0);
        assert_eq!(high("/db/test/1"), 50.0);
        Ok(())
    }
}
