//! Tlbcover (thesis, section 6.2.2): random changes of a table in memory.

use super::{Event, Sink, Touch, allocate};
use crate::ItaniumError;
use hawkeye_sim::rng::Rng;
use serde::Serialize;

/// References to a table, each as likely to be to any place as to any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tlbcover {
    /// The table.
    pub bytes: u64,
    /// How many.
    pub accesses: u32,
    /// Cycles of the program's own from one to the next.
    pub useful_cycles: u32,
}

impl Tlbcover {
    /// Run 1 to 11 of the thesis. Its text has them range from 1 to 512 MiB, which by doubling are ten. Chosen: 512 KiB for the first, as
    /// large pages gain nothing there on base pages of 4 KiB (table 6.2): the TLB must hold the table.
    ///
    /// 219 cycles from miss to miss on 16 KiB pages follow from the largest one's times (114 and 104 s) and 19.23 cycles for a miss; 200
    /// of them are the program's.
    pub const fn run(number: u32) -> Self {
        Self {
            bytes: (1 << 18) << number,
            accesses: 1_000_000,
            useful_cycles: 200,
        }
    }

    pub(super) fn play(&self, seed: u64, sink: Sink<'_>) -> Result<(), ItaniumError> {
        let mut rng = Rng::new(seed, 0x71bc);
        allocate(0, 0, self.bytes, sink)?;
        sink(Event::Measure)?;
        for _ in 0..self.accesses {
            sink(Event::Touch(Touch {
                process: 0,
                mapping: 0,
                offset: rng.below(self.bytes) & !7,
                write: true,
                references: 1,
                useful_cycles: self.useful_cycles,
            }))?;
        }
        Ok(())
    }
}
