//! A process's address space as a strip.

use hawkeye_policy::CoverageSource;
use serde::{Deserialize, Serialize};

/// The regions of a process in address order, in columns of about as many regions each: by its last sample, and what
/// was promoted and split since.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Strip {
    /// Whose.
    pub pid: u32,
    /// Owner of the process, if that is known.
    pub uid: Option<u32>,
    /// How long ago it was sampled; `None`: not yet.
    pub age_s: Option<f64>,
    /// Where the access figures come from.
    pub source: Option<CoverageSource>,
    /// The columns, as many as were asked for at most.
    pub columns: Vec<Column>,
}

/// Neighbouring regions of a process: those of 2 MiB with anything in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// First byte of the first; `None`: not for who asks.
    pub start: Option<u64>,
    /// First byte after the last.
    pub end: Option<u64>,
    /// Whether nothing is mapped, or nothing present, between the column before and this one.
    pub after_gap: bool,
    /// How many.
    pub regions: u64,
    /// Of these, huge.
    pub huge: u64,
    /// Of these, accessed and free to be promoted.
    pub candidates: u64,
    /// Base pages present.
    pub present_pages: u64,
    /// Base pages accessed in the last window; all of a huge page or none.
    pub accessed_pages: u64,
    /// Page walks per second of CPU time, where they were seen by region.
    pub walks_per_s: u64,
}

impl Strip {
    /// Columns that a strip has at most.
    pub const MOST_COLUMNS: u16 = 512;

    /// The same for those who may not know where a process has its memory.
    pub fn without_addresses(mut self) -> Self {
        for column in &mut self.columns {
            (column.start, column.end) = (None, None);
        }
        self
    }
}
