//! A model of mcf, the thesis' fastest program with large pages (section 6.3.5).

use super::{EventSink, ProgramEvent, Touch, emit_map_and_fill};
use crate::Result;
use hawkeye_sim::rng::SimulationRng;

/// The advance in an array before it turns to the next: the base page in a row of table 6.7.
const STEP_BYTES: u64 = 16 << 10;

/// A few long-lived arrays, each read from end to end in turn, and small blocks that are hardly
/// used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct McfWorkload {
    /// Bytes of each array.
    pub arrays: [u64; 3],
    /// Number of small blocks, and the length of each.
    pub blocks: (u32, u64),
    /// Number of steps over the arrays.
    pub steps: u32,
    /// References in each step.
    pub references: u32,
    /// Cycles of the program's own work in each step.
    pub useful_cycles: u32,
    /// Steps, of a million, that are followed by a reference to a small block.
    pub aside_per_million: f64,
}

impl McfWorkload {
    /// 85 MiB of addresses (figure 6.14b), of which 35 % are on pages of order 0 and 2 (table 6.9):
    /// blocks of 80 KiB, chosen for their proportion. The division of the rest among arrays is
    /// chosen for that table, too. There are 218 cycles between misses (table 6.7), 19 of them for
    /// the miss. 2.79 % of references missed (table 6.8), hence 36 in each step. References to
    /// small blocks are chosen for the misses that remained, 1 of 1,905 (table 6.7).
    pub const THESIS: Self = Self {
        arrays: [48 << 20, 5 << 20, 2 << 20],
        blocks: (380, 80 << 10),
        steps: 1_000_000,
        references: 36,
        useful_cycles: 199,
        aside_per_million: 530.0,
    };

    pub(super) fn emit_events(&self, seed: u64, sink: EventSink<'_>) -> Result {
        let mut rng = SimulationRng::new(seed, 0x3cf);
        let arrays = self.arrays.len() as u32;
        let lengths = self.arrays.iter().copied();
        let blocks = std::iter::repeat_n(self.blocks.1, self.blocks.0 as usize);
        for (mapping, bytes) in (0..).zip(lengths.chain(blocks)) {
            emit_map_and_fill(0, mapping, bytes, sink)?;
        }
        sink(ProgramEvent::Measure)?;
        let mut touch = |mapping, offset| {
            sink(ProgramEvent::Touch(Touch {
                mapping,
                offset,
                write: false,
                references: self.references,
                useful_cycles: self.useful_cycles,
                ..Touch::STORE
            }))
        };
        for step in 0..self.steps {
            let array = step % arrays;
            let bytes = self.arrays.get(array as usize).copied().unwrap_or(1);
            let at = u64::from(step / arrays) * STEP_BYTES % bytes;
            touch(array, at)?;
            if rng.chance(self.aside_per_million * 1e-6) {
                let block = rng.draw_below(self.blocks.0.into()) as u32;
                touch(arrays + block, rng.draw_below(self.blocks.1) & !7)?;
            }
        }
        Ok(())
    }
}
