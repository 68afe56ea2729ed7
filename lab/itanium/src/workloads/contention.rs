//! High contention (thesis, section 4.3.3 and figure 4.5).

use super::{EventSink, ProgramEvent, Touch, emit_map_and_fill};
use crate::Result;

/// The page size in the program's code.
const PAGE_BYTES: u64 = 16384;

/// Processes that take turns; each goes over a few neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentionWorkload {
    /// Number of processes.
    pub processes: u32,
    /// Pages of 16 KiB in each process.
    pub pages: u32,
    /// Rounds over its pages in one turn. The thesis does not state how long a turn is.
    pub rounds: u32,
    /// Turns of each process.
    pub turns: u32,
}

impl ContentionWorkload {
    /// `processes` processes over 160 KiB each.
    pub const fn of(processes: u32) -> Self {
        Self {
            processes,
            pages: 10,
            rounds: 10,
            turns: 100,
        }
    }

    pub(super) fn emit_events(&self, sink: EventSink<'_>) -> Result {
        let bytes = u64::from(self.pages) * PAGE_BYTES;
        for process in 0..self.processes {
            emit_map_and_fill(process, 0, bytes, sink)?;
        }
        sink(ProgramEvent::Measure)?;
        for _ in 0..self.turns {
            for process in 0..self.processes {
                for touch in 0..self.rounds * self.pages {
                    sink(ProgramEvent::Touch(Touch {
                        process,
                        offset: u64::from(touch % self.pages) * PAGE_BYTES,
                        useful_cycles: 1,
                        ..Touch::STORE
                    }))?;
                }
            }
        }
        Ok(())
    }
}
