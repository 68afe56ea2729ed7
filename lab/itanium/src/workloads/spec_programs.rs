//! Models of two of the thesis' programs: vortex, the slowest one with large pages (sections 6.3.1
//! to 6.3.4), and mcf, the fastest one (section 6.3.5).

use super::{MemoryTouch, ProgramEvent, ProgramEventSink, emit_fill_touches, emit_map_and_fill};
use crate::Result;
use crate::kernel::MappingBacking;
use hawkeye_sim::rng::SimulationRng;

const KIB: u64 = 1 << 10;

/// Lengths of blocks, and how many of a thousand have each, chosen to give the shares of table 6.6.
/// 132 KiB is the step by which C's `malloc` grows when a request is smaller.
const BLOCKS: [(u64, u64); 4] =
    [(64 * KIB, 110), (132 * KIB, 370), (272 * KIB, 360), (640 * KIB, 160)];

/// Small blocks in 25 MiB of addresses with references all over them. Now and then the program
/// frees a block and allocates another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VortexWorkload {
    /// Bytes in use.
    pub bytes: u64,
    /// Number of runs of references, each at another place.
    pub accesses: u32,
    /// References in each run.
    pub references: u32,
    /// Cycles of the program's own work in each run.
    pub useful_cycles: u32,
    /// Bytes of the program's own data, from its file.
    pub own_bytes: u64,
    /// Share of the places that are in the program's own data.
    pub own_share: f64,
    /// Runs, of a million, after which the program frees and allocates a block.
    pub reallocated_per_million: f64,
}

impl VortexWorkload {
    /// 25 MiB of addresses (figure 6.14a). The size of the program's own data and the share of
    /// references to it are chosen together. They fit the cost of a miss with large pages (table
    /// 6.3) and the misses that the walker fills then (table 6.5). References all over the blocks
    /// alone would make 81 cycles of 61: pinning entries then adds misses on large pages only. From
    /// those follow 622 cycles between misses (section 6.3.3: 922 with large pages, 300 more than
    /// without). 19 of them are for the miss, as 85 % of the places miss. There are 243 references
    /// in each run, of which .35 % missed (table 6.5).
    ///
    /// Three processes with 25 MiB each had 8,802 page faults in all (table 6.6). That is less than
    /// five times all blocks, in about 4 * 10^8 places: 4 of a million.
    pub const THESIS: Self = Self {
        bytes: 25 << 20,
        accesses: 1_000_000,
        references: 243,
        useful_cycles: 510,
        own_bytes: 640 << 10,
        own_share: 0.2,
        reallocated_per_million: 4.0,
    };

    pub(super) fn emit_events(&self, seed: u64, sink: ProgramEventSink<'_>) -> Result {
        let mut rng = SimulationRng::new(seed, 0x0e2);
        sink(ProgramEvent::Map {
            process: 0,
            mapping: 0,
            bytes: self.own_bytes,
            at: None,
            backing: MappingBacking::File,
        })?;
        emit_fill_touches(0, 0, self.own_bytes, sink)?;
        let mut blocks: Vec<u64> = Vec::new();
        let mut allocated = 0;
        while allocated < self.bytes {
            let bytes = random_block_length(&mut rng);
            emit_map_and_fill(0, 1 + blocks.len() as u32, bytes, sink)?;
            blocks.push(bytes);
            allocated += bytes;
        }
        sink(ProgramEvent::Measure)?;
        for _ in 0..self.accesses {
            let (mapping, offset) = if rng.chance(self.own_share) {
                (0, rng.draw_below(self.own_bytes))
            } else {
                let (block, offset) = block_and_offset_of_byte(&blocks, rng.draw_below(allocated));
                (1 + block, offset)
            };
            sink(ProgramEvent::Touch(MemoryTouch {
                mapping,
                offset: offset & !7,
                references: self.references,
                useful_cycles: self.useful_cycles,
                ..MemoryTouch::STORE
            }))?;
            if rng.chance(self.reallocated_per_million * 1e-6) {
                let block = rng.draw_below(blocks.len() as u64) as u32;
                sink(ProgramEvent::Unmap { process: 0, mapping: 1 + block })?;
                let bytes = random_block_length(&mut rng);
                if let Some(known) = blocks.get_mut(block as usize) {
                    allocated = allocated - *known + bytes;
                    *known = bytes;
                }
                emit_map_and_fill(0, 1 + block, bytes, sink)?;
            }
        }
        Ok(())
    }
}

fn random_block_length(rng: &mut SimulationRng) -> u64 {
    let mut number = rng.draw_below(BLOCKS.iter().map(|(_, weight)| weight).sum());
    let mut chosen = 0;
    for (bytes, weight) in BLOCKS {
        chosen = bytes;
        if number < weight {
            break;
        }
        number -= weight;
    }
    chosen
}

/// The block that holds a byte of all blocks, and the offset in it.
fn block_and_offset_of_byte(blocks: &[u64], mut byte: u64) -> (u32, u64) {
    for (block, bytes) in (0..).zip(blocks) {
        if byte < *bytes {
            return (block, byte);
        }
        byte -= bytes;
    }
    (0, 0)
}

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

    pub(super) fn emit_events(&self, seed: u64, sink: ProgramEventSink<'_>) -> Result {
        let mut rng = SimulationRng::new(seed, 0x3cf);
        let arrays = self.arrays.len() as u32;
        let lengths = self.arrays.iter().copied();
        let blocks = std::iter::repeat_n(self.blocks.1, self.blocks.0 as usize);
        for (mapping, bytes) in (0..).zip(lengths.chain(blocks)) {
            emit_map_and_fill(0, mapping, bytes, sink)?;
        }
        sink(ProgramEvent::Measure)?;
        let mut touch = |mapping, offset| {
            sink(ProgramEvent::Touch(MemoryTouch {
                mapping,
                offset,
                write: false,
                references: self.references,
                useful_cycles: self.useful_cycles,
                ..MemoryTouch::STORE
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
