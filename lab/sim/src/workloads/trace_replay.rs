//! How a trace is played.

use crate::trace::{AccessKind, BadRecordHandling, TraceAccess};
use std::path::PathBuf;

/// A trace, and how it is played.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceReplay {
    /// The file.
    pub path: PathBuf,
    /// How to handle records that are not of its format.
    pub bad: BadRecordHandling,
    /// The program's own work for each instruction, in cycles (0.01-1e6), if the trace has any.
    pub cycles_per_instruction: f64,
    /// The program's own work for each access, in cycles, if the trace has no instructions.
    pub cycles_per_access: f64,
    /// Share of walk time that it waits for, in per cent.
    pub waited_percent: f64,
    /// Equal consecutive accesses that each access stands for (1-1e9), as for a sampled trace.
    pub scale: f64,
}

/// First address that programs can't have, with page tables of four levels.
const END: u64 = 1 << 47;

impl TraceReplay {
    /// A trace that is played unchanged. The processor does one instruction per cycle, four per
    /// access, and waits for walks. A trace contains none of these figures.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            bad: BadRecordHandling::Fail,
            cycles_per_instruction: 1.0,
            cycles_per_access: 4.0,
            waited_percent: 100.0,
            scale: 1.0,
        }
    }

    /// Whether an access is to a program's data.
    pub(crate) fn is_data_access(access: &TraceAccess) -> bool {
        access.kind != AccessKind::Fetch && access.address < END
    }
}
