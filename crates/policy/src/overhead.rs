//! What address translation costs a process, and how well that is known.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a figure of overhead comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverheadSource {
    /// Hardware counters: cycles in page walks over cycles.
    Counters,
    /// Run-rate: the pages touched in short windows, weighed with what their walks cost here.
    RunRate,
    /// Not measured: a stand-in where nothing can be.
    Assumed,
}

/// The share of its CPU time that a process spends in address translation: what huge pages would
/// save it where it has base pages, or still costs where it has them (paper, Table 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The best estimate, in per cent (0-100).
    pub percent: f64,
    /// What of it accesses to memory under huge pages cost, in per cent of the process's CPU time: promotions don't
    /// save that. 0 where it isn't known, as by counters.
    #[serde(default)]
    pub huge_percent: f64,
    /// It is hardly less than this, in per cent.
    pub low_percent: f64,
    /// It is hardly more than this, in per cent.
    pub high_percent: f64,
    /// What can be seen here is capped: the true figure may be higher than all of these.
    pub at_least: bool,
    /// Where it comes from.
    pub source: OverheadSource,
}

impl Overhead {
    /// What promotions can save of it at most, in per cent of the process's CPU time.
    pub fn savable_percent(&self) -> f64 {
        (self.percent - self.huge_percent).max(0.0)
    }

    /// A figure without known error, all of it from base pages.
    pub fn exact(percent: f64, source: OverheadSource) -> Self {
        Self {
            percent,
            huge_percent: 0.0,
            low_percent: percent,
            high_percent: percent,
            at_least: false,
            source,
        }
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.at_least { "at least " } else { "" };
        write!(f, "{least}{:.1} %", self.percent)?;
        if self.high_percent - self.low_percent >= 0.1 {
            write!(f, " ({:.1}-{:.1})", self.low_percent, self.high_percent)?;
        }
        Ok(())
    }
}
