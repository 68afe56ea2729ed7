//! Cost of address translation to a process, and its uncertainty.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Source of an overhead figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TranslationOverheadSource {
    /// Hardware counters: cycles in page walks over cycles.
    Counters,
    /// Walk-rate sampling: the pages touched in short windows, weighted with the cost of their
    /// walks on this machine.
    #[serde(rename = "run-rate")]
    WalkRate,
    /// Not measured: an assumed figure where no measurement is possible.
    Assumed,
}

/// The share of its CPU time that a process spends in address translation. Under base pages, huge
/// pages would save it; under huge pages, it is what they still cost (paper, Table 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranslationOverhead {
    /// The best estimate, in per cent (0-100).
    pub percent: f64,
    /// The part that accesses to memory under huge pages cost, in per cent of the process's CPU
    /// time. Promotions don't save it. 0 where it isn't known, as with counters.
    pub huge_percent: f64,
    /// Lower bound, in per cent.
    pub low_percent: f64,
    /// Upper bound, in per cent.
    pub high_percent: f64,
    /// The measurement is capped here: the true figure may be higher than all of these.
    pub at_least: bool,
    /// The source of the figure.
    pub source: TranslationOverheadSource,
}

impl TranslationOverhead {
    /// The most that promotions can save of it, in per cent of the process's CPU time.
    pub fn savable_percent(&self) -> f64 {
        (self.percent - self.huge_percent).max(0.0)
    }

    /// A figure without known error, entirely from base pages.
    pub fn new_without_error(percent: f64, source: TranslationOverheadSource) -> Self {
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

impl fmt::Display for TranslationOverhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.at_least { "at least " } else { "" };
        write!(f, "{least}{:.1} %", self.percent)?;
        if self.high_percent - self.low_percent >= 0.1 {
            write!(f, " ({:.1}-{:.1})", self.low_percent, self.high_percent)?;
        }
        Ok(())
    }
}
