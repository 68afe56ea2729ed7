//! Tlbcover (thesis, section 6.2.2): random changes of a table in memory.

use super::{EventSink, ProgramEvent, Touch, emit_map_and_fill};
use crate::Result;
use hawkeye_sim::rng::SimulationRng;

/// References to places in a table, all equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbcoverWorkload {
    /// Bytes of the table.
    pub bytes: u64,
    /// Number of references.
    pub accesses: u32,
    /// Cycles of the program's own work between references.
    pub useful_cycles: u32,
}

impl TlbcoverWorkload {
    /// Run 1 to 11 of the thesis. According to its text they range from 1 to 512 MiB, but by
    /// doubling that is ten. Chosen: 512 KiB for the first. Large pages gain nothing there on base
    /// pages of 4 KiB (table 6.2), so the TLB must hold the table.
    ///
    /// The largest run's times (114 and 104 s) and 19.23 cycles for a miss give 219 cycles from
    /// miss to miss on 16 KiB pages. 200 of them are the program's.
    pub const fn run(number: u32) -> Self {
        Self {
            bytes: (1 << 18) << number,
            accesses: 1_000_000,
            useful_cycles: 200,
        }
    }

    pub(super) fn emit_events(&self, seed: u64, sink: EventSink<'_>) -> Result {
        let mut rng = SimulationRng::new(seed, 0x71bc);
        emit_map_and_fill(0, 0, self.bytes, sink)?;
        sink(ProgramEvent::Measure)?;
        for _ in 0..self.accesses {
            sink(ProgramEvent::Touch(Touch {
                offset: rng.draw_below(self.bytes) & !7,
                useful_cycles: self.useful_cycles,
                ..Touch::STORE
            }))?;
        }
        Ok(())
    }
}
